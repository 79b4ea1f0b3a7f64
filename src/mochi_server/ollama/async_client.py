"""Asynchronous clients of Ollama, for chat and for structured answers."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

import anyio
from typing_extensions import Self

from mochi_server.constants import OLLAMA_SETTING
from mochi_server.errors import MochiError, ModelNotFound, OllamaError
from mochi_server.ollama import errors, payloads
from mochi_server.ollama.endpoint import parse_endpoint
from mochi_server.ollama.payloads import (
    ModelKey,
    chat_payload,
    find_by_name,
    merge_chunks,
    qualified_name,
    read_response,
)
from mochi_server.ollama.transport import Line, OnLines, Transport
from mochi_server.ollama.types import ChatMessage, ChatResponse, ModelInfo
from mochi_server.util.imports import import_in_thread
from mochi_server.util.tasks import cancel_and_wait, start_in

if TYPE_CHECKING:
    from pydantic import BaseModel

    from mochi_server.ollama.library import AsyncPlainClient, ModelDetails

_MODELS_CACHE_SECONDS = 2
_WINDOWS_CACHE_SECONDS = 1
_MAX_PARALLEL_SHOWS = 8
SHORT_CALL_SECONDS = 5
_PROBE_SECONDS = 2

PostChat = Callable[[Mapping[str, Any], OnLines], Awaitable[object]]
"""Function that sends a chat request like ``AsyncOllamaClient.post_chat``."""


class AsyncOllamaClient:
    """Asynchronous client of one Ollama server.

    Use it in one event loop, with ``async with``, or close it.
    """

    loads_models = True
    """Whether requests load models into memory."""

    def __init__(
        self,
        host: str = "http://localhost:11434",
        *,
        connect_timeout: float = 5,
        stall_timeout: float = 600,
        can_install: bool = True,
        setting: str = OLLAMA_SETTING,
    ) -> None:
        """Timeouts are in seconds.

        If ``can_install`` is false, error messages do not advise to install models. ``setting`` is
        the environment variable that error messages name for the address.
        """
        self.endpoint = parse_endpoint(host, setting)
        self._stall_timeout = stall_timeout
        self._plain: AsyncPlainClient | None = None
        self._transport = Transport(
            self.endpoint, connect_timeout=connect_timeout, stall_timeout=stall_timeout
        )
        self._can_install = can_install
        self._details: dict[ModelKey, ModelDetails] = {}
        self._models: dict[ModelKey, ModelInfo] = {}
        self._models_fetched = 0.0
        self._refresh: asyncio.Task[dict[ModelKey, ModelInfo]] | None = None
        # None if the loaded models may have changed since the latest lookup.
        self._windows_lookup: asyncio.Task[dict[str, int] | None] | None = None
        self._windows_lookup_began = 0.0
        self._answers: Counter[str] = Counter()  # running answers by qualified name of the model
        # Windows of the loaded models at the latest lookup, updated by later answers, or None if
        # unknown.
        self.last_windows: dict[str, int] | None = None
        self.version = ""  # of Ollama, as soon as it has responded to `is_reachable`
        self._tasks: set[asyncio.Future[Any]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        await cancel_and_wait([*self._tasks])
        await self._transport.aclose()

    async def is_reachable(self) -> bool:
        """Return whether Ollama responds within 2 seconds. ``version`` is then its version."""
        try:
            async with self._plain_client(_PROBE_SECONDS) as client:
                self.version = await client.version()
        except MochiError:
            return False
        return True

    @asynccontextmanager
    async def _plain_client(
        self, seconds: float = SHORT_CALL_SECONDS
    ) -> AsyncGenerator["AsyncPlainClient", None]:
        """Yield the client of routes without streams for ``seconds``.

        Translate its errors: a timeout becomes an ``OllamaError``.
        """
        if self._plain is None:
            library = await import_in_thread("mochi_server.ollama.library")
            self._plain = library.AsyncPlainClient(self._transport)
        with errors.translating_errors(self.endpoint):
            await self._transport.open()
            with anyio.fail_after(seconds):
                yield self._plain

    async def list_models(self) -> list[ModelInfo]:
        """List the installed models that can chat, in Ollama's order."""
        installed = await self.list_installed()
        return [model for model in installed if model.has_capability("completion")]

    async def list_installed(self) -> list[ModelInfo]:
        """List all installed models, in Ollama's order."""
        models = await self._fetch_models()
        await self._fetch_missing_details(models)
        return [
            payloads.with_details(model, self._details.get(key)) for key, model in models.items()
        ]

    async def _fetch_missing_details(self, models: Mapping[ModelKey, ModelInfo]) -> None:
        """Request the details that the list of models lacks.

        Log errors, except ``OllamaUnreachable``, which is raised.
        """
        limit = asyncio.Semaphore(_MAX_PARALLEL_SHOWS)

        async def fetch_details(key: ModelKey) -> None:
            async with limit:
                try:
                    self._details[key] = await self.show_model_details(key[0])
                except (ModelNotFound, OllamaError) as error:
                    errors.log_missing_details(key[0], error)

        missing = [
            key
            for key, model in models.items()
            if key not in self._details and payloads.lacks_details(model)
        ]
        await asyncio.gather(*map(fetch_details, missing))

    async def find_model(self, name: str) -> ModelInfo:
        """Return the installed chat model ``name``.

        Raises ``ModelNotFound`` and the errors of ``post_chat``.
        """
        model = await self.find_installed(name)
        if not model.has_capability("completion"):
            raise await self.not_found(name, is_other_kind=model.has_capability("embedding"))
        return model

    async def find_installed(self, name: str) -> ModelInfo:
        """Like ``find_model``, for models that cannot chat too."""
        if time.monotonic() - self._models_fetched > _MODELS_CACHE_SECONDS:
            if self._refresh is None or self._refresh.done():
                self._refresh = start_in(self._tasks, self._fetch_models())
            await asyncio.shield(self._refresh)
        found = find_by_name(self._models, name) or find_by_name(await self._fetch_models(), name)
        if found is None:
            raise await self.not_found(name)
        key, model = found
        if model.is_cloud:
            await self._fetch_missing_details({key: model})
        elif key not in self._details:  # the list of models never has the Modelfile's `num_ctx`
            self._details[key] = await self.show_model_details(model.name)
        return payloads.with_details(model, self._details.get(key))

    def _is_cloud(self, name: str) -> bool:
        found = find_by_name(self._models, name)
        return found is not None and found[1].is_cloud

    def size_of(self, name: str) -> float | None:
        """Return the size of a model in the latest list of models, in MiB, or None if the list does
        not contain it.
        """
        found = find_by_name(self._models, name)
        return found and found[1].size_mb

    def digest(self, name: str) -> str | None:
        """Return the digest of a model in the latest list of models, or None if the list does not
        contain it.
        """
        found = find_by_name(self._models, name)
        return found and found[0][1]

    async def not_found(
        self, name: str, kind: Literal["chat", "embedding"] = "chat", *, is_other_kind: bool = False
    ) -> ModelNotFound:
        """Return the error for an unknown name of a model.

        Requests the installed models, because the error lists those of this ``kind``.
        """
        capability = "completion" if kind == "chat" else kind
        models = [
            m.name.removesuffix(":latest")
            for m in await self.list_installed()
            if m.has_capability(capability)
        ]
        return ModelNotFound(
            name,
            kind=kind,
            models=models,
            is_other_kind=is_other_kind,
            can_install=self._can_install,
        )

    async def show_model_details(self, name: str) -> "ModelDetails":
        """Return the ``ShowResponse`` of a model.

        Raises ``ModelNotFound``, ``OllamaUnreachable`` and ``OllamaError``.
        """
        async with self._plain_client() as client:
            return await client.show(name)

    async def loaded_windows(self) -> dict[str, int] | None:
        """Return the windows of the loaded models in the format of ``read_loaded``, or None if the
        request fails.
        """
        self.prefetch_loaded()
        lookup = self._windows_lookup
        assert lookup is not None  # noqa: S101 - set by prefetch_loaded
        return lookup.result() if lookup.done() else await asyncio.shield(lookup)

    def prefetch_loaded(self) -> None:
        """Request the windows of loaded models in the background, unless a recent result is
        cached.
        """
        is_stale = time.monotonic() - self._windows_lookup_began > _WINDOWS_CACHE_SECONDS
        if self._windows_lookup is None or (is_stale and self._windows_lookup.done()):
            self._windows_lookup_began = time.monotonic()
            self._windows_lookup = start_in(self._tasks, self._fetch_windows())

    async def post_chat(self, payload: Mapping[str, Any], on_lines: OnLines) -> None:
        """Post ``payload`` to ``/api/chat`` and pass batches of answer lines to ``on_lines``.

        If the calling task is cancelled, Ollama stops generating the answer. Raises
        ``ModelNotFound``, ``OllamaUnreachable``, or ``OllamaError`` if the request fails or brings
        no content for ``stall_timeout``.
        """
        name = qualified_name(payload["model"])
        is_cloud = self._is_cloud(payload["model"])
        if not is_cloud and not self._is_loaded_for(payload):
            self._windows_lookup = None  # the request may load a model
        self._answers[name] += 1
        try:
            await self._transport.post("/api/chat", payload, on_lines)
        except ModelNotFound as error:  # the model was removed after it was listed
            raise await self.not_found(payload["model"]) from error
        except OllamaError as error:
            errors.log_failure(error, payload["model"])
            raise
        finally:
            self._answers[name] -= 1
            if not self._answers[name]:
                self._windows_lookup = None  # from now on, another program may reload the model
        if is_cloud:
            return
        known = self.last_windows or {}
        window = (payload.get("options") or {}).get("num_ctx")
        # Without `num_ctx`, Ollama may have reloaded the model. The next lookup returns its window.
        self.last_windows = {**known, name: window or known.get(name, 0)}

    async def embed(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """Post ``payload`` to ``/api/embed`` and return the response.

        Raises the errors of ``post_chat``.
        """
        self._windows_lookup = None  # the request may load a model
        try:
            async with self._plain_client(self._stall_timeout) as client:
                return dict(await client.embed(**payload))
        except ModelNotFound as error:
            raise await self.not_found(payload["model"], "embedding") from error
        except OllamaError as error:
            errors.log_failure(error, payload["model"])
            raise

    async def chat_stream(
        self,
        model: str,
        messages: Sequence[ChatMessage],
        tools: Sequence[Mapping[str, Any]] | None = None,
        think: bool | str | None = None,
        context_window: int | None = None,
    ) -> AsyncGenerator[ChatResponse, None]:
        """Like ``chat``, but yield the chunks of the answer.

        If the generator is closed, Ollama stops generating.
        """
        payload = chat_payload(
            model, messages, tools=tools, think=think, context_window=context_window
        )
        batches: asyncio.Queue[list[Line]] = asyncio.Queue()
        request = asyncio.get_running_loop().create_task(
            self.post_chat(payload, batches.put_nowait)
        )
        request.add_done_callback(lambda _: batches.put_nowait([]))
        try:
            while lines := await batches.get():
                for line in lines:
                    yield read_response(line)
            await request
        finally:
            await cancel_and_wait([request])

    async def chat(
        self,
        model: str,
        messages: Sequence[ChatMessage],
        tools: Sequence[Mapping[str, Any]] | None = None,
        think: bool | str | None = None,
        context_window: int | None = None,
    ) -> ChatResponse:
        """Send messages and return the complete answer. ``context_window`` is in tokens.

        Messages and tools may also be objects of the library ``ollama``: ``Message`` and ``Tool``.

        Raises ``ModelNotFound``, ``OllamaUnreachable`` and ``OllamaError``.
        """
        chunks = self.chat_stream(model, messages, tools, think, context_window)
        return merge_chunks([chunk async for chunk in chunks])

    async def _fetch_models(self) -> dict[ModelKey, ModelInfo]:
        async with self._plain_client() as client:
            listed = await client.list()
        self._models = payloads.read_tags(listed)
        self._models_fetched = time.monotonic()
        return self._models

    def _is_loaded_for(self, payload: Mapping[str, Any]) -> bool:
        """Return whether a request needs no reload, so that the cached windows stay correct.

        A request without ``num_ctx`` is assumed to need none. However, Ollama reloads a model that
        was loaded with another window than its default. The lookup after the answer finds this.
        """
        if self._windows_lookup is None or not self._windows_lookup.done():
            return False
        loaded = (self._windows_lookup.result() or {}).get(qualified_name(payload["model"]))
        window = (payload.get("options") or {}).get("num_ctx")
        return loaded is not None and window in (None, loaded)

    async def _fetch_windows(self) -> dict[str, int] | None:
        before = self.last_windows
        try:
            async with self._plain_client() as client:
                windows = payloads.read_loaded(await client.ps())
        except MochiError:
            windows = None
        if self.last_windows is before:  # otherwise, they are newer than this response
            self.last_windows = windows
        return windows


class AsyncInstructorOllamaClient:
    """Client for structured answers: JSON that matches a Pydantic model. Close it."""

    _instructor: Any = None  # created at the first request of any client

    def __init__(
        self,
        host: str = "http://localhost:11434",
        *,
        timeout: float = 600,
        post: PostChat | None = None,
    ) -> None:
        """``timeout`` is the maximum time without new content, in seconds.

        ``post`` replaces the HTTP transport.
        """
        self._client = AsyncOllamaClient(host, stall_timeout=timeout) if post is None else None
        self._post: PostChat = post or self._client.post_chat  # type: ignore[union-attr]

    async def aclose(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.aclose()

    async def structured_response(
        self,
        model: str,
        messages: Sequence[ChatMessage],
        format: "type[BaseModel] | Mapping[str, Any]",
    ) -> ChatResponse:
        """Return an answer whose content is JSON for the Pydantic model ``format``, or raise
        ``ValidationError``.

        If ``format`` is a JSON schema, the caller must check the answer.
        """
        if self._instructor is None:
            # The import takes 0.1 seconds.
            created = await asyncio.to_thread(
                lambda: import_module("ollama_instructor").OllamaInstructorAsync()
            )
            type(self)._instructor = created
        instructor = copy(self._instructor)
        instructor.chat = self._chat
        form = _Unchecked(format) if isinstance(format, Mapping) else format
        answer: ChatResponse = await instructor.chat_completion(form, model, messages, retries=1)
        return answer

    async def _chat(
        self, model: str, messages: Sequence[ChatMessage], format: Any, **_: object
    ) -> ChatResponse:
        """Send a request of ollama-instructor.

        Remove the text around a JSON object, such as a code fence.
        """
        lines: list[Line] = []
        await self._post(chat_payload(model, messages, format=format), lines.extend)
        answer = merge_chunks([read_response(line) for line in lines])
        content = answer.message["content"]
        if "{" in content and (format.get("type") == "object" or "$ref" in format):
            answer.message["content"] = (
                content[content.find("{") : content.rfind("}") + 1] or content
            )
        return answer


class _Unchecked:
    """JSON schema in place of a Pydantic model. It accepts every answer."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.model_json_schema = lambda: schema
        self.model_validate_json = str
