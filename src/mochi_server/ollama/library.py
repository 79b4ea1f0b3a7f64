"""Clients of Ollama's routes without streams, built on Ollama's own library.

Import this module at the first request: the import of the library takes a quarter of the startup
time.

The library drops some fields of Ollama's responses. The models of this module add them.
"""

import re
import ssl
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import httpx
import ollama
import orjson
from ollama import ListResponse, ProcessResponse, ShowResponse
from ollama._types import ModelDetails as ListedDetails
from pydantic import BaseModel, Field

from mochi_server.ollama import errors
from mochi_server.ollama.endpoint import Endpoint
from mochi_server.ollama.transport import Transport

_NUM_CTX = re.compile(r"^num_ctx +(\d+)\s*$", re.MULTILINE)


class LengthDetails(ListedDetails):
    """Details of a model in a list. The context length is in tokens."""

    context_length: int | None = None


class ListedModel(ListResponse.Model):
    """Model in a list, with its capabilities and the host of a cloud model."""

    name: str | None = None
    details: LengthDetails | None = None
    capabilities: list[str] | None = None
    remote_host: str | None = None


class ModelList(ListResponse):
    """Response of ``/api/tags``."""

    models: Sequence[ListedModel]


class ModelDetails(ShowResponse):
    """Response of ``/api/show``: the ``ShowResponse`` of Ollama's library, with the context sizes.

    If Ollama is too old to list capabilities, every model counts as a chat model.
    """

    modelinfo: Mapping[str, Any] = Field(default_factory=dict, alias="model_info")
    capabilities: list[str] | None = Field(default=["completion"])

    @property
    def context_length(self) -> int | None:
        """Context length of the model in tokens, or None if it is unknown."""
        info = self.modelinfo
        own = info.get(f"{info.get('general.architecture')}.context_length")
        if own:
            return int(own)
        for key, value in info.items():
            if key.endswith(".context_length") and value:
                return int(value)
        return None

    @property
    def num_ctx(self) -> int | None:
        """Context window in the Modelfile, in tokens, or None."""
        window = _NUM_CTX.search(self.parameters or "")
        return int(window[1]) if window else None


class Version(BaseModel):
    """Response of ``/api/version``."""

    version: str | None = None


class PlainClient(ollama.Client):
    """Synchronous client of Ollama's library whose refusals are errors of this package.

    ``read_timeout`` is the maximum time without data, in seconds.
    """

    def __init__(self, endpoint: Endpoint, connect_timeout: float, read_timeout: float) -> None:
        super().__init__(
            endpoint.url,
            headers=endpoint.headers,
            follow_redirects=False,
            trust_env=endpoint.use_proxy,
            verify=ssl.create_default_context(),
            timeout=httpx.Timeout(read_timeout, connect=connect_timeout),
            event_hooks={"response": [_raise_for_status]},
        )

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def list(self) -> ModelList:
        return self._request(ModelList, "GET", "/api/tags")

    def show(self, model: str) -> ModelDetails:
        return self._request(ModelDetails, "POST", "/api/show", json={"model": model})


class AsyncPlainClient(ollama.AsyncClient):
    """Asynchronous client of Ollama's library that sends its requests over ``transport``.

    The caller limits the time of a request.
    """

    def __init__(self, transport: Transport) -> None:
        endpoint = transport.endpoint
        super().__init__(endpoint.url, trust_env=False, transport=_PooledTransport(transport))
        self._transport = transport

    async def list(self) -> ModelList:
        return ModelList(**await self._get("/api/tags"))

    async def show(self, model: str) -> ModelDetails:
        return await self._request(ModelDetails, "POST", "/api/show", json={"model": model})

    async def ps(self) -> ProcessResponse:
        return ProcessResponse(**await self._get("/api/ps"))

    async def _get(self, path: str) -> Any:
        # Turns wait for these requests. The library and httpx would double their CPU time.
        url = self._transport.endpoint.url + path
        return orjson.loads(await self._transport.call("GET", url, b""))

    async def version(self) -> str:
        """Return the version of Ollama, or "" if it does not report it."""
        found = await self._request(Version, "GET", "/api/version")
        return found.version or ""


class _PooledTransport(httpx.AsyncBaseTransport):
    """Transport of httpx over the connection pool of the chat requests.

    It needs half the CPU time of httpx's own transport, and raises the same errors as a chat.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        # `call` sends headers of its own, and raises for other statuses.
        body = await self._transport.call(request.method, str(request.url), request.content)
        return httpx.Response(HTTPStatus.OK, content=body)


def _raise_for_status(response: httpx.Response) -> None:
    response.read()
    sent = response.request.content
    errors.raise_for_status(
        response.status_code,
        response.headers,
        response.content,
        model=orjson.loads(sent)["model"] if sent else None,
    )
