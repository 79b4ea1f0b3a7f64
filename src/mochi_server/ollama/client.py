"""The synchronous client, for scripts and notebooks; the server itself never waits in it."""

import logging
import time
from collections.abc import Generator, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import httpx
import orjson

from mochi_server.errors import ModelNotFound, OllamaError
from mochi_server.ollama.errors import redirected, refused, translated
from mochi_server.ollama.models import ModelShelf, details_of
from mochi_server.ollama.requests import chat_payload, endpoint, merge, read_response
from mochi_server.ollama.stream import LineReader
from mochi_server.ollama.types import ChatMessage, ChatResponse, ModelDetails, ModelInfo

logger = logging.getLogger(__name__)


class OllamaClient:
    """Models and chats of one Ollama. Use it as a context manager, or ``close`` it. Give each thread its own."""

    def __init__(
        self, host: str = "http://localhost:11434", *, connect_timeout: float = 5, stall_timeout: float = 600
    ) -> None:
        self.endpoint = endpoint(host)
        self._stall_seconds = stall_timeout
        self._details: dict[str, ModelDetails] = {}
        self._http = httpx.Client(
            headers=self.endpoint.headers,
            timeout=httpx.Timeout(stall_timeout, connect=connect_timeout),
            trust_env=self.endpoint.use_proxy,
            follow_redirects=False,
            event_hooks={"response": [_refuse_redirect]},
        )

    def __enter__(self) -> "OllamaClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def list_models(self) -> list[ModelInfo]:
        """All installed models that can chat, in Ollama's order."""
        shelf = ModelShelf(self._call("GET", "/api/tags"), self._details)
        for name, digest in shelf.unknown():
            try:
                self._details[digest] = self.show_model_details(name)
            except (ModelNotFound, OllamaError) as error:
                logger.warning("Nothing is known of model %s: %s", name, error.message)
        return shelf.chat_models()

    def find_model(self, name: str) -> ModelInfo:
        """One installed model that can chat, by name. Raises ``ModelNotFound``."""
        shelf = ModelShelf(self._call("GET", "/api/tags"), self._details)
        listed, digest = shelf.find(name)
        if digest not in self._details and not listed.remote_host:
            self._details[digest] = self.show_model_details(listed.name)
        return shelf.chat_model(name)

    def show_model_details(self, name: str) -> ModelDetails:
        """What ``/api/show`` says of a model. Raises ``ModelNotFound``."""
        return details_of(self._call("POST", "/api/show", {"model": name}))

    def chat_stream(
        self,
        model: str,
        messages: Sequence[ChatMessage],
        tools: Sequence[Mapping[str, Any]] | None = None,
        think: bool | str | None = None,
        context_window: int | None = None,
    ) -> Generator[ChatResponse, None, None]:
        """A chat, piece by piece. ``context_window`` is in tokens. Close the generator to stop Ollama."""
        payload = chat_payload(model, messages, tools=tools, think=think, context_window=context_window)
        url = self.endpoint.url + "/api/chat"
        with (
            translated(self.endpoint.url),
            self._http.stream("POST", url, content=orjson.dumps(payload)) as response,
        ):
            if response.status_code >= HTTPStatus.BAD_REQUEST:
                raise refused(response.status_code, response.read(), model)
            yield from _pieces(response, self._stall_seconds)

    def chat(
        self,
        model: str,
        messages: Sequence[ChatMessage],
        tools: Sequence[Mapping[str, Any]] | None = None,
        think: bool | str | None = None,
        context_window: int | None = None,
    ) -> ChatResponse:
        """A chat, whole: the stream, drained."""
        return merge(list(self.chat_stream(model, messages, tools, think, context_window)))

    def _call(self, method: str, path: str, payload: Mapping[str, Any] | None = None) -> Any:
        with translated(self.endpoint.url):
            content = None if payload is None else orjson.dumps(payload)
            response = self._http.request(method, self.endpoint.url + path, content=content)
            if response.status_code >= HTTPStatus.BAD_REQUEST:
                raise refused(response.status_code, response.content, (payload or {}).get("model"))
            return orjson.loads(response.content)


def _refuse_redirect(response: httpx.Response) -> None:
    if response.is_redirect:
        raise redirected(response.status_code, response.headers.get("Location", ""))


def _pieces(response: httpx.Response, stall_seconds: float) -> Generator[ChatResponse, None, None]:
    reader, progress = LineReader(), time.monotonic()
    for data in response.iter_raw():
        if lines := reader.feed(data):
            yield from map(read_response, lines)
            progress = time.monotonic()
        if reader.failure is not None:
            raise reader.failure
        if reader.done:
            return
        if time.monotonic() - progress > stall_seconds:  # httpx counts from the last byte, not the last line
            raise TimeoutError
    yield from map(read_response, reader.end())
    if reader.failure is not None:
        raise reader.failure
