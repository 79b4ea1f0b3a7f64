"""Bare FastAPI app with the middleware and the log of mochi-server.

One route posts a request to Ollama and streams the answer. Another one sends a file.
"""

import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import uvicorn
from fastapi import FastAPI, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel

from mochi_server import MochiServerSettings, create_app
from mochi_server.telemetry import logging as logs
from mochi_server.util.text import SecretMasker
from mochi_server.web.http_protocol import StrictHttpProtocol
from mochi_server.web.request_log import RequestLogMiddleware
from tests.benchmarks.relays.listening import chat_body

FILE_PATH = "/file"


class ChatMessage(BaseModel):
    """Body of the request for an answer."""

    message: str


def bare_app(url: str, file: Path) -> FastAPI:
    """Return an app that streams answers from the Ollama at ``url``, and sends ``file``."""
    own = create_app(MochiServerSettings())
    pools: list[aiohttp.ClientSession] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as pool:
            pools.append(pool)
            yield

    app = FastAPI(middleware=own.user_middleware, lifespan=lifespan)
    app.state = own.state  # the middleware reads it

    async def relay(model: str) -> AsyncIterator[bytes]:
        async with pools[0].post(f"{url}/api/chat", data=chat_body(model)) as response:
            async for data in response.content.iter_any():
                yield data

    @app.post("/api/v1/chat/{model}/stream")
    async def stream(model: str, _: ChatMessage) -> StreamingResponse:
        return StreamingResponse(relay(model), media_type="text/event-stream")

    @app.get(FILE_PATH)
    async def send_file() -> Response:
        return Response(file.read_bytes(), media_type="application/json")

    return app


def main(url: str, file: str = os.devnull) -> None:
    """Serve on a free port, which is printed, until SIGTERM."""
    logs.configure("INFO", "text", SecretMasker([]))
    app = RequestLogMiddleware(bare_app(url, Path(file)), lambda *_: None)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    config = uvicorn.Config(
        app,
        http=StrictHttpProtocol,
        interface="asgi3",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
    )
    sys.stdout.write(f"bare FastAPI is at http://127.0.0.1:{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(*sys.argv[1:])
