"""Redirects from Ollama are refused, because following one would send the conversation to another
address.
"""

import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress

import pytest
from pydantic import BaseModel

from mochi_server.errors import OllamaError
from mochi_server.ollama import (
    AsyncInstructorOllamaClient,
    AsyncOllamaClient,
    ChatMessage,
    OllamaClient,
)
from tests.support.cases import cases

HELLO: list[ChatMessage] = [{"role": "user", "content": "Hello!"}]
REFUSED = "redirect.*elsewhere.example"


class City(BaseModel):
    """A form for an answer."""

    name: str


@contextmanager
def redirecting_server(location: str, status: str = "307 Temporary Redirect") -> Iterator[str]:
    """Return the URL of a server that redirects each request."""
    head = (
        f"HTTP/1.1 {status}\r\nLocation: {location}\r\nContent-Length: 0\r\nConnection: "
        "close\r\n\r\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(65536)
                        connection.sendall(head.encode())

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


@contextmanager
def unreachable_server() -> Iterator[tuple[str, socket.socket]]:
    """The URL of a server that must not be reached, and its listener."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", listener


def assert_not_reached(listener: socket.socket) -> None:
    with pytest.raises(BlockingIOError):
        listener.accept()


async def chat(url: str) -> None:
    async with aclosing(AsyncOllamaClient(url)) as client:
        await client.chat("mochi", HELLO)


async def models(url: str) -> None:
    async with aclosing(AsyncOllamaClient(url)) as client:
        await client.list_models()


async def structured(url: str) -> None:
    async with aclosing(AsyncInstructorOllamaClient(url)) as client:
        await client.structured_response("mochi", HELLO, City)


async def sync_chat(url: str) -> None:
    with OllamaClient(url) as client:
        client.chat("mochi", HELLO)


async def sync_models(url: str) -> None:
    with OllamaClient(url) as client:
        client.list_models()


CALLS = [chat, models, structured, sync_chat, sync_models]


@cases("call", CALLS)
async def test_redirect_is_not_followed(call: Callable[[str], Awaitable[None]]) -> None:
    with unreachable_server() as (target, listener), redirecting_server(target) as url:
        with pytest.raises(OllamaError, match="redirect"):
            await call(url)
        assert_not_reached(listener)


@cases("call", CALLS)
async def test_refused_redirect_names_the_target_host_only(
    call: Callable[[str], Awaitable[None]],
) -> None:
    with (
        redirecting_server(
            "https://user:secret@elsewhere.example:8080/x?token=1", "302 Found"
        ) as url,
        pytest.raises(OllamaError, match=REFUSED) as refused,
    ):
        await call(url)
    assert "secret" not in refused.value.message
    assert "token" not in refused.value.message
