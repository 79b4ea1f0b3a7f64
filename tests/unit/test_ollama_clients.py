"""Each test runs with the synchronous and the asynchronous client."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import pytest
from pydantic import BaseModel

from mochi_server.errors import ModelNotFound, OllamaError, OllamaUnreachable
from mochi_server.ollama import (
    AsyncInstructorOllamaClient,
    AsyncOllamaClient,
    ChatMessage,
    ChatResponse,
    ModelInfo,
    OllamaClient,
)
from mochi_server.ollama.endpoint import parse_endpoint
from mochi_server.ollama.errors import refusal_error, translate
from mochi_stub import StubServer
from mochi_stub.prompt import ToolCall
from mochi_stub.reply import Failure, Reply, Text
from tests.support.cases import cases
from tests.support.holding import GatedStub
from tests.support.raw_ollama import RawOllama, whole
from tests.support.stub import chats

T = TypeVar("T")

TWO_TAGS = (
    b'{"models":[{"name":"dark:latest","digest":"d1","details":{}},{"name":"known:latest","digest":"d2",'
    b'"details":{"context_length":4096},"capabilities":["completion","tools"]}]}'
)
HELLO: list[ChatMessage] = [{"role": "user", "content": "Hello!"}]


class Sync:
    """Synchronous client with the calls of these tests."""

    def __init__(self, url: str) -> None:
        self._url = url

    def models(self) -> list[ModelInfo]:
        with OllamaClient(self._url) as client:
            return client.list_models()

    def find(self, name: str) -> ModelInfo:
        with OllamaClient(self._url) as client:
            return client.find_model(name)

    def stream(self, **arguments: Any) -> list[ChatResponse]:
        with OllamaClient(self._url) as client:
            return list(client.chat_stream(messages=HELLO, **arguments))

    def chat(self, **arguments: Any) -> ChatResponse:
        with OllamaClient(self._url) as client:
            return client.chat(messages=HELLO, **arguments)


class Async:
    """Asynchronous client with the same calls."""

    def __init__(self, url: str) -> None:
        self._url = url

    def models(self) -> list[ModelInfo]:
        return self._run(lambda client: client.list_models())

    def find(self, name: str) -> ModelInfo:
        return self._run(lambda client: client.find_model(name))

    def stream(self, **arguments: Any) -> list[ChatResponse]:
        async def collect(client: AsyncOllamaClient) -> list[ChatResponse]:
            return [piece async for piece in client.chat_stream(messages=HELLO, **arguments)]

        return self._run(collect)

    def chat(self, **arguments: Any) -> ChatResponse:
        return self._run(lambda client: client.chat(messages=HELLO, **arguments))

    def _run(self, call: Callable[[AsyncOllamaClient], Awaitable[T]]) -> T:
        async def run() -> T:
            client = AsyncOllamaClient(self._url)
            try:
                return await call(client)
            finally:
                await client.aclose()

        return asyncio.run(run())


@pytest.fixture(params=[Sync, Async])
def client(request: pytest.FixtureRequest, stub: StubServer) -> Sync | Async:
    made: Sync | Async = request.param(stub.url)
    return made


@pytest.fixture(params=[Sync, Async])
def kind(request: pytest.FixtureRequest) -> type[Sync | Async]:
    made: type[Sync | Async] = request.param
    return made


def test_models_that_can_chat_are_listed(client: Sync | Async) -> None:
    names = [model.name for model in client.models()]
    assert names[0] == "mochi:latest"
    assert "mochi-embed:latest" not in names


def test_model_without_details_does_not_hide_others(kind: type[Sync | Async]) -> None:
    with RawOllama(lambda _: None, show=b"no JSON", tags=TWO_TAGS) as ollama:
        assert [model.name for model in kind(ollama.url).models()] == ["known:latest"]


def test_model_is_found_by_name_without_tag(client: Sync | Async) -> None:
    model = client.find("MOCHI")
    assert (model.name, model.context_length, model.has_capability("thinking")) == (
        "mochi:latest",
        40960,
        True,
    )


@cases("name", ["nobody", "mochi-embed"])
def test_model_that_cannot_chat_is_not_found(client: Sync | Async, name: str) -> None:
    with pytest.raises(ModelNotFound):
        client.find(name)


def test_chat_equals_its_collected_stream(client: Sync | Async) -> None:
    pieces = client.stream(model="mochi", think=False, context_window=4096)
    whole = client.chat(model="mochi", think=False, context_window=4096)
    assert [piece.done for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert "".join(piece.message["content"] for piece in pieces) == whole.message["content"]
    assert whole.message["content"].endswith("Hello!")
    assert whole.eval_count == pieces[-1].eval_count is not None


def test_ids_of_tool_calls_are_kept(kind: type[Sync | Async]) -> None:
    reply = Reply.of("", tool_calls=[ToolCall("now", {"zone": "UTC"}, id="call_x")])
    with StubServer(speed=0, resolve=lambda _: reply) as stub:
        answer = kind(stub.url).chat(
            model="mochi", tools=[{"type": "function", "function": {"name": "now"}}]
        )
    (call,) = answer.message["tool_calls"]
    assert call == {
        "id": "call_x",
        "function": {"index": 0, "name": "now", "arguments": {"zone": "UTC"}},
    }


def test_unicode_line_separators_do_not_split_text(kind: type[Sync | Async]) -> None:
    text = ["a\u0085b", "c\u2028d\u2029", "e\x0bf"]
    with StubServer(speed=0, resolve=lambda _: Reply([Text(text)])) as stub:
        assert kind(stub.url).chat(model="mochi").message["content"] == "".join(text)


@cases("chunks", [["Hi"], []], ids=["in mid-stream", "before it"])
def test_errors_have_the_message_of_ollama(kind: type[Sync | Async], chunks: list[str]) -> None:
    reply = Reply([Text(chunks), Failure("kaput")])
    with (
        StubServer(speed=0, resolve=lambda _: reply) as stub,
        pytest.raises(OllamaError, match="kaput"),
    ):
        kind(stub.url).chat(model="mochi")


def test_unknown_model_is_not_found(client: Sync | Async) -> None:
    with pytest.raises(ModelNotFound):
        client.chat(model="nobody")


def test_unknown_host_name_is_reported_in_words() -> None:
    class NoSuchName(
        ConnectionRefusedError
    ):  # like aiohttp's exception, whose number comes from the resolver
        errno = socket.EAI_NONAME
        os_error = socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    assert (
        "http://nobody: Name or service not known."
        in translate(NoSuchName(), parse_endpoint("http://nobody")).message
    )


def test_server_without_tls_is_reported_in_words(stub: StubServer) -> None:
    with pytest.raises(OllamaUnreachable, match=r"TLS: \w+ "):
        Async(stub.url.replace("http:", "https:")).models()


def test_html_error_page_is_reported_by_its_status() -> None:
    page = b"<!DOCTYPE html>\n<html><head><title>\n502 Bad Gateway</title></head><body>nginx</body></html>"
    advice = "Check that MOCHI_OLLAMA_HOST is the address of Ollama, without a path such as /api."
    assert (
        refusal_error(502, page).message
        == f"Ollama answered with status 502 and no message. {advice}"
    )
    assert (
        refusal_error(404, b"<html>").message
        == f"Ollama answered with status 404 and no message. {advice}"
    )
    unknown_path = refusal_error(404, b"404 page not found", model="mochi")
    assert unknown_path.message == f"Ollama answered with status 404 and no message. {advice}"
    assert refusal_error(500, b'{"error": "no"}').message == "Ollama failed (500): no"


def not_found(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 404 Not Found\r\ncontent-length: 6\r\n\r\n<html>")


def moved(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 302 Found\r\nlocation: http://a.b/\r\ncontent-length: 0\r\n\r\n")


@pytest.mark.parametrize("chat", [not_found, moved])
async def test_error_about_an_address_names_the_setting_that_contains_it(
    chat: Callable[[socket.socket], None],
) -> None:
    with RawOllama(chat) as ollama:
        async with AsyncOllamaClient(ollama.url, setting="MOCHI_OLLAMA_HOSTS") as client:
            with pytest.raises(OllamaError, match="MOCHI_OLLAMA_HOSTS"):
                await client.post_chat({"model": "raw", "messages": []}, lambda _: None)


def test_stopped_server_is_unreachable(kind: type[Sync | Async], private_stub: StubServer) -> None:
    url = private_stub.url
    private_stub.stop()
    with pytest.raises(OllamaUnreachable):
        kind(url).models()
    with pytest.raises(OllamaUnreachable):
        kind(url).chat(model="mochi")


class City(BaseModel):
    """A form for an answer."""

    name: str


async def test_structured_answer_is_text_in_the_format() -> None:
    with StubServer(speed=0, resolve=lambda _: Reply.of('{"name": "Oslo"}')) as stub:
        client = AsyncInstructorOllamaClient(stub.url)
        answer = await client.structured_response("mochi", HELLO, City)
        await client.aclose()
        (sent,) = [exchange.body for exchange in chats(stub)]
    assert City.model_validate_json(answer.message["content"]) == City(name="Oslo")
    assert sent is not None
    assert sent["format"]["properties"].keys() == {"name"}


async def test_structured_answer_with_much_whitespace_is_read_quickly() -> None:
    text = f'<think>Hm.</think>\n```json\n{{"name":{" " * 3000}"Oslo"}}\n```\n'
    with StubServer(speed=0, resolve=lambda _: Reply.of((text,))) as stub:
        client = AsyncInstructorOllamaClient(stub.url)
        with anyio.fail_after(5):
            answer = await client.structured_response("mochi", HELLO, City)
        await client.aclose()
    assert City.model_validate_json(answer.message["content"]) == City(name="Oslo")


async def test_calls_at_the_same_time_share_one_model_list(private_stub: StubServer) -> None:
    client = AsyncOllamaClient(private_stub.url)
    found = await asyncio.gather(*(client.find_model("mochi") for _ in range(20)))
    await client.aclose()
    assert {model.name for model in found} == {"mochi:latest"}
    assert [exchange.path for exchange in private_stub.exchanges()].count("/api/tags") == 1


async def test_window_stays_known_while_an_answer_of_the_model_runs() -> None:
    gated = GatedStub()
    with gated.stub as stub:
        client = AsyncOllamaClient(stub.url)
        await client.chat("mochi", HELLO, context_window=4096)
        assert await client.loaded_windows() == {"mochi:latest": 4096}
        pieces = client.chat_stream(
            "mochi", [{"role": "user", "content": "hold"}], context_window=4096
        )
        await anext(pieces)
        await client.chat("mochi", HELLO, context_window=4096)
        windows = [await client.loaded_windows()]
        await pieces.aclose()
        windows.append(await client.loaded_windows())
        await client.aclose()
        requests = [exchange.path for exchange in stub.exchanges()]
    assert windows == [{"mochi:latest": 4096}] * 2
    assert requests.count("/api/ps") == 2


async def test_late_list_of_loaded_models_does_not_replace_a_newer_window() -> None:
    is_requested, may_answer = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        body = b'{"models":[]}'
        if head.startswith(b"get /api/ps"):
            is_requested.set()
            await may_answer.wait()
        else:
            _, _, length = head.partition(b"content-length: ")
            await reader.readexactly(int(length.split()[0]))
            body = b'{"message":{"role":"assistant","content":"Hi"},"done":true}\n'
        writer.write(whole(body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        async with AsyncOllamaClient(f"http://{host}:{port}") as client:
            late = asyncio.create_task(client.loaded_windows())
            await is_requested.wait()
            await client.chat("mochi", HELLO, context_window=4096)
            may_answer.set()
            await late
            assert client.last_windows == {"mochi:latest": 4096}


async def test_loaded_models_are_requested_once_until_a_chat(private_stub: StubServer) -> None:
    client = AsyncOllamaClient(private_stub.url)

    def requests() -> int:
        return sum(exchange.path == "/api/ps" for exchange in private_stub.exchanges())

    client.prefetch_loaded()
    assert await asyncio.gather(*(client.loaded_windows() for _ in range(5))) == [{}] * 5
    client.prefetch_loaded()
    assert await client.loaded_windows() == {}
    assert requests() == 1
    await client.chat("mochi", HELLO, context_window=4096)
    assert await client.loaded_windows() == {"mochi:latest": 4096}
    assert requests() == 2

    await client.chat("mochi", HELLO, context_window=4096)
    client.prefetch_loaded()
    await client.chat(
        "mochi", HELLO, context_window=8192
    )  # a request before the chat may be answered after it
    assert await client.loaded_windows() == {"mochi:latest": 8192}
    await client.chat("mochi", HELLO, context_window=8192)
    client.prefetch_loaded()
    await client.aclose()
