"""An answer that is complete although its response declares another length."""

from contextlib import aclosing

from mochi_server.ollama import AsyncOllamaClient, ChatMessage, OllamaClient
from tests.support.raw_ollama import RawOllama, line

HELLO: list[ChatMessage] = [{"role": "user", "content": "Hello!"}]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nContent-Length: 100000\r\n\r\n"


def start_ollama() -> RawOllama:
    """An Ollama whose answer ends before its declared length."""
    return RawOllama(
        lambda connection: connection.sendall(HEAD + line("Hi ") + line("there", done=True))
    )


async def test_answer_shorter_than_declared_is_complete() -> None:
    with start_ollama() as ollama:
        async with aclosing(AsyncOllamaClient(ollama.url)) as client:
            for _ in range(10):
                answer = await client.chat("raw", HELLO)
                assert (answer.message["content"], answer.done) == ("Hi there", True)


def test_sync_answer_shorter_than_declared_is_complete() -> None:
    with start_ollama() as ollama, OllamaClient(ollama.url) as client:
        assert client.chat("raw", HELLO).message["content"] == "Hi there"
