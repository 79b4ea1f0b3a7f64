"""The stall timeout counts from the last content, whatever other bytes arrive."""

import socket
import time
from collections.abc import Callable, Iterable
from contextlib import aclosing

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
from tests.support.raw_ollama import RawOllama, line, stream_head

STALL_SECONDS = 0.2
PAUSE_SECONDS = 0.02
HELLO: list[ChatMessage] = [{"role": "user", "content": "Hello!"}]

Chat = Callable[[socket.socket], None]


class City(BaseModel):
    """A form for an answer."""

    name: str


def dribbles(start: bytes, parts: Iterable[bytes]) -> Chat:
    """Return a handler that sends `start`, then one part at a time, faster than the stall
    timeout.
    """

    def chat(connection: socket.socket) -> None:
        connection.sendall(start)
        for part in parts:
            time.sleep(PAUSE_SECONDS)
            connection.sendall(part)

    return chat


ENDLESS = 500
BLANK_LINES = dribbles(stream_head() + line("Hi"), [b"\n"] * ENDLESS)
EMPTY_LINES = dribbles(stream_head() + line("Hi"), [line("")] * ENDLESS)
NO_MESSAGES = dribbles(stream_head() + line("Hi"), [b"{}\n"] * ENDLESS)
HALF_LINE = dribbles(stream_head() + line("Hi") + b'{"', [b"x"] * ENDLESS)
HEADER = dribbles(b"HTTP/1.1 200 OK\r\nX-Header: ", [b"x"] * ENDLESS)
BODY = dribbles(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", [b" "] * ENDLESS)
CONTENT = dribbles(stream_head(), [line("Hi ")] * 20 + [line("there", done=True)])


@cases(
    "chat",
    [BLANK_LINES, EMPTY_LINES, NO_MESSAGES, HALF_LINE, HEADER],
    ids=[
        "blank lines",
        "lines without text",
        "lines without a message",
        "half a line",
        "header bytes",
    ],
)
async def test_stream_without_content_times_out(chat: Chat) -> None:
    with (
        RawOllama(chat) as ollama,
        pytest.raises(OllamaError, match="sent no data before the timeout"),
    ):
        async with aclosing(AsyncOllamaClient(ollama.url, stall_timeout=STALL_SECONDS)) as client:
            await client.chat("raw", HELLO)


async def test_slow_stream_with_content_does_not_time_out() -> None:
    with RawOllama(CONTENT) as ollama:
        async with aclosing(AsyncOllamaClient(ollama.url, stall_timeout=STALL_SECONDS)) as client:
            answer = await client.chat("raw", HELLO)
    assert answer.message["content"] == "Hi " * 20 + "there"


@pytest.mark.parametrize("chat", [HEADER, BODY], ids=["header bytes", "body bytes"])
async def test_structured_response_that_dribbles_times_out(chat: Chat) -> None:
    with (
        RawOllama(chat) as ollama,
        pytest.raises(OllamaError, match="sent no data before the timeout"),
    ):
        async with aclosing(
            AsyncInstructorOllamaClient(ollama.url, timeout=STALL_SECONDS)
        ) as client:
            await client.structured_response("raw", HELLO, City)


@pytest.mark.parametrize("chat", [BLANK_LINES, HALF_LINE], ids=["blank lines", "half a line"])
def test_sync_stream_without_content_times_out(chat: Chat) -> None:
    with (
        RawOllama(chat) as ollama,
        OllamaClient(ollama.url, stall_timeout=STALL_SECONDS) as client,
        pytest.raises(OllamaError, match="sent no data before the timeout"),
    ):
        client.chat("raw", HELLO)
