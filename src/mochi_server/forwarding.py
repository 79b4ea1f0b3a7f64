"""Requests about a turn go to the process that runs it. A layer inside of everything that checks requests.

Every answer is the other process's own: it handles the request as if it had come to it. Of all routes only those are
looked at that are about runs; whoever is asked about one that it does not run, and nobody else does, answers itself.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mochi_server.asgi import header, refuse
from mochi_server.constants import API_PREFIX
from mochi_server.errors import MochiError
from mochi_server.postgres.peers import PeerGone, Peers, Request
from mochi_server.postgres.stores import PostgresStores
from mochi_server.sessions.store import Stores

_CHAT = re.compile(rf"{API_PREFIX}/chat/([0-9a-f]{{10}})(|/stream|/stop|/run|/confirmations|/confirm-tool)/?")
_SESSION = re.compile(rf"{API_PREFIX}/sessions/([0-9a-f]{{10}})/?")
_FOR_ALL = {f"{API_PREFIX}/tools/reload", f"{API_PREFIX}/agents/reload"}
_RUN_ID = re.compile(r"([0-9a-f]{10}):\d+")
_PATIENCE_SECONDS = 30
_KEPT = ("type", "asgi", "http_version", "method", "scheme", "path", "root_path")


def peers_of(stores: Stores) -> Peers:
    """The processes that share these stores."""
    assert isinstance(stores, PostgresStores)  # noqa: S101 - there is a URL, or nobody would ask
    return stores.peers


class Forwarding:
    """The layer. ``peers`` answers with the processes of now, for they change with the app's lifespan."""

    def __init__(self, app: ASGIApp, peers: Callable[[], Peers]) -> None:
        self._app = app
        self._peers = peers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            self._peers().answer_with(lambda request: self._answer(request, scope["app"]))
            await self._app(scope, receive, send)
            return
        if scope["method"] == "POST" and scope["path"].rstrip("/") in _FOR_ALL:
            await self._done_by_others(scope, self._peers().others())
        elif scope["method"] == "DELETE" and (found := _SESSION.fullmatch(scope["path"])):
            statuses = await self._done_by_others(scope, self._peers().with_runs(found[1]))
            send = _told(send, HTTPStatus.NO_CONTENT) if HTTPStatus.NO_CONTENT in statuses else send
        try:
            process = await self._process_of(scope)
        except MochiError as error:
            await refuse(error, scope, send)
            return
        if process is None:
            await self._app(scope, receive, send)
            return
        body = await _body(receive)
        if body is not None:
            await self._forward(process, scope, body, receive, send)

    async def _answer(self, request: Request, app: object) -> None:
        """Answer a request that came to another process."""
        scope = {**orjson.loads(request.head), "app": app, "state": {}}
        scope["headers"] = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in scope["headers"]]
        scope |= {name: scope[name].encode("latin-1") for name in ("query_string", "raw_path")}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
                await request.answer(orjson.dumps({"status": message["status"], "headers": headers}).decode(), b"")
            elif message["type"] == "http.response.body" and message.get("body"):
                await request.answer(None, message["body"])

        await self._app(scope, _receiving(request.body, request.gone.wait), send)

    async def _process_of(self, scope: Scope) -> str | None:
        """The other process that has to answer, if one has."""
        method, path, peers = scope["method"], scope["path"], self._peers()
        if not (found := _CHAT.fullmatch(path)):
            return None
        session_id, what = found[1], found[2]
        if method == "POST" and what in ("", "/stream"):
            key = header(scope, b"idempotency-key")
            return await peers.claim(session_id, key) if key else None
        query = unquote(scope["query_string"].decode("latin-1"))
        heard = _RUN_ID.search(query) or _RUN_ID.search(header(scope, b"last-event-id"))
        return await peers.runs_at(session_id, heard[1] if heard else None)

    async def _forward(self, process: str, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        relaying = asyncio.ensure_future(self._relay(process, scope, body, send))
        leaving = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({relaying, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (relaying, leaving):
                task.cancel()
            await asyncio.wait({relaying, leaving})
        if relaying.cancelled():
            return
        if not relaying.result():
            await self._app(scope, _receiving(body, lambda: _disconnected(receive)), send)

    async def _relay(self, process: str, scope: Scope, body: bytes, send: Send) -> bool:
        """Pass on the other process's answer; False when it died before it began to."""
        began = False
        try:
            async with aclosing(self._peers().ask(process, _head(scope), body)) as parts:
                async for part in parts:
                    if part.head is not None:
                        began = True
                        head = orjson.loads(part.head)
                        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in head["headers"]]
                        await send({"type": "http.response.start", "status": head["status"], "headers": headers})
                    if part.data or part.is_last:
                        await send({"type": "http.response.body", "body": part.data, "more_body": not part.is_last})
        except PeerGone:
            return began
        return True

    async def _done_by_others(self, scope: Scope, others: Awaitable[list[str]]) -> list[int]:
        """Have other processes do the same first; the statuses of those that did."""
        with suppress(MochiError):
            return await asyncio.gather(*(self._done_by(process, scope) for process in await others))
        return []

    async def _done_by(self, process: str, scope: Scope) -> int:
        async def status() -> int:
            async with aclosing(self._peers().ask(process, _head(scope), b"")) as parts:
                heads = [orjson.loads(part.head) async for part in parts if part.head is not None]
            return int(heads[0]["status"]) if heads else 0

        with suppress(PeerGone, MochiError, TimeoutError, asyncio.TimeoutError):
            return await asyncio.wait_for(status(), _PATIENCE_SECONDS)
        return 0


def _told(send: Send, status: HTTPStatus) -> Send:
    """A ``send`` for what another process has done already, so that there is nothing left to be done here."""

    async def send_status(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send({"type": "http.response.start", "status": int(status), "headers": []})
            await send({"type": "http.response.body", "body": b""})

    return send_status


def _head(scope: Scope) -> str:
    """A request without its body, as JSON."""
    head = {name: scope[name] for name in _KEPT if name in scope}
    head |= {name: scope.get(name, b"").decode("latin-1") for name in ("query_string", "raw_path")}
    head["headers"] = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    head |= {name: scope.get(name) for name in ("client", "server")}
    return orjson.dumps(head).decode()


async def _body(receive: Receive) -> bytes | None:
    """The whole body; None when the client left before it was there."""
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += bytes(message.get("body", b""))
        if not message.get("more_body"):
            return body


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _receiving(body: bytes, gone: Callable[[], Awaitable[Any]]) -> Receive:
    """A ``receive`` that gives a body that is there, and then says when the client has left."""
    given = False

    async def receive() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        await gone()
        return {"type": "http.disconnect"}

    return receive
