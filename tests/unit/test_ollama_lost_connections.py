"""Lines that arrived before the connection was lost are part of the answer."""

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import aclosing, suppress
from threading import Event
from typing import Any

import anyio
import pytest
import uvloop

from mochi_server.errors import OllamaError
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.endpoint import parse_endpoint
from mochi_server.ollama.errors import is_out_of_memory
from mochi_server.ollama.payloads import chat_payload
from mochi_server.ollama.transport import Transport
from tests.support.raw_ollama import RawOllama, line, whole

ROUNDS = 3
WORDS = [f"word {number} " for number in range(1000)]
LINES = b"".join(map(line, WORDS))
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n"


def chunked(words: list[str]) -> bytes:
    """Return an answer in chunks, without the last chunk."""
    return (
        HEAD
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + b"".join(b"%x\r\n%s\r\n" % (len(w), w) for w in map(line, words))
    )


CHUNKED = chunked(WORDS)


def closes(data: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(data)


def resets(data: bytes) -> Callable[[socket.socket], None]:
    def chat(connection: socket.socket) -> None:
        connection.sendall(data)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return chat


CONNECTIONS = {
    "closed inside a chunked body": closes(CHUNKED),
    "closed before the declared length": closes(HEAD + b"Content-Length: 1000000\r\n\r\n" + LINES),
    "reset inside a chunked body": resets(CHUNKED),
}


async def receive_text(url: str, pause: float) -> str:
    """Return the text of an answer that breaks, for a consumer that pauses after each chunk."""
    words: list[str] = []
    async with aclosing(AsyncOllamaClient(url)) as client:
        with suppress(OllamaError):
            async for piece in client.chat_stream("raw", [{"role": "user", "content": "Hello!"}]):
                words.append(piece.message["content"])
                await asyncio.sleep(pause)
    return "".join(words)


@pytest.mark.parametrize(
    "loop",
    [
        pytest.param(asyncio.new_event_loop, id="asyncio", marks=pytest.mark.slow),
        pytest.param(uvloop.new_event_loop, id="uvloop"),
    ],
)
@pytest.mark.parametrize("pause", [0, 0.0001], ids=["fast consumer", "slow consumer"])
@pytest.mark.parametrize("chat", CONNECTIONS.values(), ids=CONNECTIONS)
def test_lost_connection_keeps_the_lines_received(
    chat: Callable[[socket.socket], None],
    pause: float,
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    with RawOllama(chat) as ollama:
        running = loop()
        try:
            answers = {
                running.run_until_complete(receive_text(ollama.url, pause)) for _ in range(ROUNDS)
            }
        finally:
            running.close()
    assert answers == {"".join(WORDS)}


@pytest.mark.parametrize("rest", [b"no-size\r\n", b"1\r\n\n\n\r\n"], ids=["no size", "too long"])
async def test_malformed_chunk_ends_the_answer(rest: bytes) -> None:
    def chat(connection: socket.socket) -> None:
        connection.sendall(CHUNKED)
        Event().wait(0.05)  # so that the client reads the valid chunks alone
        connection.sendall(rest)
        connection.recv(1)  # returns when the client closes the connection

    lines: list[dict[str, Any]] = []
    payload = chat_payload("raw", [{"role": "user", "content": "Hello!"}])
    with RawOllama(chat) as ollama:
        transport = Transport(
            parse_endpoint(ollama.url), connect_timeout=5, stall_timeout=60, check_seconds=0.05
        )
        with anyio.fail_after(30), pytest.raises(OllamaError, match="ended before it was done"):
            await transport.post("/api/chat", payload, lines.extend)
        await transport.aclose()
    assert [each["message"]["content"] for each in lines] == WORDS


async def test_error_of_the_consumer_is_not_one_of_the_connection() -> None:
    def fail(_: list[dict[str, Any]]) -> None:
        raise KeyError("a fault of the consumer")

    payload = chat_payload("raw", [{"role": "user", "content": "Hello!"}])
    with RawOllama(closes(CHUNKED)) as ollama, pytest.raises(KeyError):
        async with aclosing(AsyncOllamaClient(ollama.url)) as client:
            await client.post_chat(payload, fail)


async def test_error_that_arrives_in_two_parts_is_read_completely() -> None:
    sent = whole(
        b'{"error":"model requires more system memory (9 GiB) than is available"}',
        status="500 Internal Error",
    )

    def chat(connection: socket.socket) -> None:
        connection.sendall(sent[:-20])
        Event().wait(0.05)  # so that the client reads the first part alone
        connection.sendall(sent[-20:])

    with RawOllama(chat) as ollama:
        client = AsyncOllamaClient(ollama.url)
        with pytest.raises(OllamaError, match="than is available") as raised:
            await client.post_chat(chat_payload("raw", []), lambda _: None)
        await client.aclose()
    assert is_out_of_memory(raised.value)
