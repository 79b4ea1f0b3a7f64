"""The server's clients: asynchronous, over one pool; and one for structured answers."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import anyio

from mochi_server.errors import MochiError, ModelNotFound, OllamaError, OllamaUnreachable
from mochi_server.ollama.errors import translated
from mochi_server.ollama.models import ModelShelf, details_of
from mochi_server.ollama.requests import chat_payload, endpoint, merge, read_loaded, read_response
from mochi_server.ollama.stream import Line, OnLines, Transport
from mochi_server.ollama.traffic import Traffic
from mochi_server.ollama.types import ChatMessage, ChatResponse, ModelDetails, ModelInfo

if TYPE_CHECKING:
    from pydantic import BaseModel

logger = logging.getLogger(__name__)

_TAGS_FRESH_SECONDS = 2
_LOADED_FRESH_SECONDS = 2
_SHOWS_AT_ONCE = 8
_PROBE_SECONDS = 2


class AsyncOllamaClient:
    """Models and chats of one Ollama. Build one, share it, close it; it belongs to one event loop."""

    def __init__(
        self,
        host: str = "http://localhost:11434",
        *,
        connect_timeout: float = 5,
        stall_timeout: float = 600,
        traffic: Traffic | None = None,
        answered: Callable[[Line], None] = lambda _: None,
    ) -> None:
        """``answered`` is told the last line of each answer."""
        self.endpoint = endpoint(host)
        self._transport = Transport(
            self.endpoint, connect_timeout=connect_timeout, stall_timeout=stall_timeout, answered=answered
        )
        self.traffic = traffic or Traffic()
        self._details: dict[str, ModelDetails] = {}
        self._tags: tuple[float, object] = (float("-inf"), None)
        self._windows: tuple[float, dict[str, int]] = (float("-inf"), {})
        self._asking: asyncio.Task[dict[str, int]] | None = None
        self._looking: set[asyncio.Task[dict[str, int]]] = set()
        """What is under way, also where nobody waits for it any more."""

    async def aclose(self) -> None:
        """Close all connections."""
        for task in self._looking:
            task.cancel()
        await asyncio.gather(*self._looking, return_exceptions=True)
        await self._transport.aclose()

    async def is_reachable(self) -> bool:
        """Whether something that speaks Ollama's protocol answers; not asked while it is in the middle of an answer."""
        if self._transport.is_heard:
            return True
        for path in ("/api/version", "/api/tags"):
            try:
                return isinstance(await self._transport.call("GET", path, seconds=_PROBE_SECONDS), dict)
            except OllamaUnreachable:
                return False
            except OllamaError:
                continue
        return False

    async def list_models(self) -> list[ModelInfo]:
        """All installed models that can chat, in Ollama's order."""
        tags = await self._fetch_tags()
        shelf = ModelShelf(tags, self._details)
        limit = asyncio.Semaphore(_SHOWS_AT_ONCE)
        await asyncio.gather(*(self._learn(name, digest, limit) for name, digest in shelf.unknown()))
        return shelf.chat_models()

    async def find_model(self, name: str) -> ModelInfo:
        """One installed model that can chat, by name. Raises ``ModelNotFound``."""
        fetched, tags = self._tags
        if time.monotonic() - fetched > _TAGS_FRESH_SECONDS:
            tags = await self._fetch_tags()
        try:
            listed, digest = ModelShelf(tags, self._details).find(name)
        except ModelNotFound:
            tags = await self._fetch_tags()
            listed, digest = ModelShelf(tags, self._details).find(name)
        if digest not in self._details and not listed.remote_host:
            self._details[digest] = await self.show_model_details(listed.name)
        return ModelShelf(tags, self._details).chat_model(name)

    async def show_model_details(self, name: str) -> ModelDetails:
        """What ``/api/show`` says of a model. Raises ``ModelNotFound``."""
        return details_of(await self._transport.call("POST", "/api/show", {"model": name}))

    async def loaded_windows(self) -> dict[str, int]:
        """The context length that each loaded model has now, by qualified name; empty when nobody can tell."""
        self.look_ahead()
        return self._windows[1] if self._asking is None else await asyncio.shield(self._asking)

    def look_ahead(self) -> None:
        """Begin to find out what ``loaded_windows`` will be asked for soon."""
        if self._asking is None and time.monotonic() - self._windows[0] > _LOADED_FRESH_SECONDS:
            self._asking = asyncio.get_running_loop().create_task(self._fetch_windows())
            self._looking.add(self._asking)
            self._asking.add_done_callback(self._looking.discard)

    async def post_chat(self, payload: Mapping[str, Any], on_lines: OnLines) -> None:
        """Post a payload of ``chat_payload`` and pass the lines of each read to ``on_lines``. Cancel it to stop Ollama.

        Raises:
            OllamaUnreachable: The connection was refused.
            OllamaError: Ollama refused the request, broke off, or sent nothing for the stall timeout.
        """
        self._windows, self._asking = (float("-inf"), {}), None  # what is loaded changes with what is asked
        await self._transport.post("/api/chat", payload, on_lines)

    async def chat_lines(self, payload: Mapping[str, Any]) -> AsyncGenerator[list[Line], None]:
        """Yield what ``post_chat`` passes on, buffered without a limit. Close the generator to stop Ollama."""
        batches: asyncio.Queue[list[Line] | None] = asyncio.Queue()
        posting = asyncio.get_running_loop().create_task(self.post_chat(payload, batches.put_nowait))
        posting.add_done_callback(lambda _: batches.put_nowait(None))
        try:
            while (lines := await batches.get()) is not None:
                yield lines
            await posting
        finally:
            posting.cancel()
            await asyncio.gather(posting, return_exceptions=True)

    async def chat_stream(
        self,
        model: str,
        messages: Sequence[ChatMessage],
        tools: Sequence[Mapping[str, Any]] | None = None,
        think: bool | str | None = None,
        context_window: int | None = None,
    ) -> AsyncGenerator[ChatResponse, None]:
        """A chat, piece by piece. ``context_window`` is in tokens. Close the generator to stop Ollama."""
        payload = chat_payload(model, messages, tools=tools, think=think, context_window=context_window)
        async with aclosing(self.chat_lines(payload)) as batches:
            async for lines in batches:
                for line in lines:
                    yield read_response(line)

    async def chat(
        self,
        model: str,
        messages: Sequence[ChatMessage],
        tools: Sequence[Mapping[str, Any]] | None = None,
        think: bool | str | None = None,
        context_window: int | None = None,
    ) -> ChatResponse:
        """A chat, whole: the stream, drained."""
        async with aclosing(self.chat_stream(model, messages, tools, think, context_window)) as stream:
            return merge([piece async for piece in stream])

    async def _fetch_tags(self) -> object:
        tags = await self._transport.call("GET", "/api/tags")
        self._tags = (time.monotonic(), tags)
        return tags

    async def _fetch_windows(self) -> dict[str, int]:
        try:
            windows = read_loaded(await self._transport.call("GET", "/api/ps"))
        except MochiError:
            windows = {}
        if self._asking is asyncio.current_task():  # else a model was asked meanwhile
            self._windows, self._asking = (time.monotonic(), windows), None
        return windows

    async def _learn(self, name: str, digest: str, limit: asyncio.Semaphore) -> None:
        async with limit:
            try:
                self._details[digest] = await self.show_model_details(name)
            except (ModelNotFound, OllamaError) as error:
                logger.warning("Nothing is known of model %s: %s", name, error.message)


class AsyncInstructorOllamaClient:
    """Answers in the form of a Pydantic model, through the ollama-instructor library; share one and close it."""

    def __init__(
        self,
        host: str = "http://localhost:11434",
        *,
        timeout: float = 600,
        answered: Callable[[Line], None] = lambda _: None,
    ) -> None:
        self.endpoint = endpoint(host)
        self._answered = answered
        self._timeout = timeout
        self._client: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def aclose(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def structured_response(
        self,
        model: str,
        messages: Sequence[ChatMessage],
        format: "type[BaseModel]",
        *,
        options: Mapping[str, Any] | None = None,
        keep_alive: str | float | None = None,
        think: bool | None = None,
    ) -> ChatResponse:
        """One attempt at an answer in the form of ``format``; its JSON text is the message's content.

        Raises ``pydantic.ValidationError`` when the answer does not have that form, ``OllamaError`` and its kin
        when there is none.
        """
        from mochi_server.ollama.instructor import attempt  # noqa: PLC0415 - loading it costs a tenth of a second

        # The answer arrives as a whole, so the stall timeout limits all of it. httpx would count from the last byte.
        with translated(self.endpoint.url), anyio.fail_after(self._timeout):
            answer = await attempt(
                self._pool(), model, messages, format, options=options, keep_alive=keep_alive, think=think
            )
        self._answered(asdict(answer))
        return answer

    def _pool(self) -> Any:
        from mochi_server.ollama.instructor import connect  # noqa: PLC0415

        if self._client is None or self._loop is not asyncio.get_running_loop():
            self._loop = asyncio.get_running_loop()
            self._client = connect(self.endpoint, self._timeout)
        return self._client
