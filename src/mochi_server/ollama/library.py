"""Clients of Ollama's plain routes, built on Ollama's own library.

Import this module at the first request: the import of the library takes a quarter of the time in
which the server starts.

The library drops some fields of Ollama's responses. The models of this module add them.
"""

import re
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import ollama
import orjson
from ollama import ListResponse, ShowResponse
from ollama._types import ModelDetails as ListedDetails
from pydantic import BaseModel, Field

from mochi_server.errors import MochiError
from mochi_server.ollama import errors
from mochi_server.ollama.payloads import Endpoint

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

    An Ollama that is too old to list capabilities has chat models.
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
        options = _options(endpoint, connect_timeout, read_timeout)
        super().__init__(endpoint.url, event_hooks={"response": [_raise_for_status]}, **options)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def list(self) -> ModelList:
        return self._request(ModelList, "GET", "/api/tags")

    def show(self, model: str) -> ModelDetails:
        return self._request(ModelDetails, "POST", "/api/show", json={"model": model})


class AsyncPlainClient(ollama.AsyncClient):
    """Asynchronous client of Ollama's library whose refusals are errors of this package.

    The caller limits the time of a request. A client serves one event loop.
    """

    def __init__(self, endpoint: Endpoint, connect_timeout: float) -> None:
        async def raise_for_status(response: httpx.Response) -> None:
            if not response.is_success:
                await response.aread()
                raise _refusal(response)

        options = _options(endpoint, connect_timeout, None)
        super().__init__(endpoint.url, event_hooks={"response": [raise_for_status]}, **options)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def list(self) -> ModelList:
        return await self._request(ModelList, "GET", "/api/tags")

    async def show(self, model: str) -> ModelDetails:
        return await self._request(ModelDetails, "POST", "/api/show", json={"model": model})

    async def version(self) -> str:
        """Return the version of Ollama, or "" if it does not report it."""
        found = await self._request(Version, "GET", "/api/version")
        return found.version or ""


def _options(
    endpoint: Endpoint, connect_timeout: float, read_timeout: float | None
) -> dict[str, Any]:
    is_encrypted = endpoint.url.startswith("https:")
    # Loading certificates takes longer than a request.
    context = (
        ssl.create_default_context() if is_encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    )
    return {
        "headers": endpoint.headers,
        "follow_redirects": False,
        "trust_env": endpoint.use_proxy,
        "verify": context,
        "limits": httpx.Limits(max_connections=None, max_keepalive_connections=None),
        "timeout": httpx.Timeout(read_timeout, connect=connect_timeout),
    }


def _raise_for_status(response: httpx.Response) -> None:
    if not response.is_success:
        response.read()
        raise _refusal(response)


def _refusal(response: httpx.Response) -> MochiError:
    """Return the error for a redirect or a response with status 400 or higher."""
    if response.is_redirect:
        location = response.headers.get("Location", "")
        return errors.redirect_error(response.status_code, location)
    sent = response.request.content
    model = orjson.loads(sent).get("model") if sent else None
    return errors.refusal_error(
        response.status_code,
        response.content,
        model=model,
        retry_after=response.headers.get("Retry-After"),
    )
