"""Embeddings of OpenAI's API, computed by Ollama."""

import struct
from base64 import b64encode
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Annotated, Any, Literal

import orjson
from pydantic import BeforeValidator, Field, Tag

from mochi_server.errors import ModelNotFound, OllamaError, ValidationFailed
from mochi_server.inference.gateway import ModelGateway
from mochi_server.inference.requests import FixedPrompt, ModelRequest
from mochi_server.inference.token_estimate import PromptSize
from mochi_server.ollama.types import ModelInfo
from mochi_server.protocols.schemas import TEXT_OR_LIST, EmptyOptions, RejectedOption
from mochi_server.schemas.common import Schema, Text, UnstoredBody
from mochi_server.util.validation import Items

_TOKENS = (
    "token IDs are not supported; send text instead (LangChain: `check_embedding_ctx_length=False`)"
)
_MAX_TEXTS = 2048


def _check_list(value: Any) -> Any:
    if isinstance(value, list) and value:
        if isinstance(value[0], int | list):
            raise ValueError(_TOKENS)
        if len(value) > _MAX_TEXTS:
            raise ValueError(f"must not contain more than {_MAX_TEXTS} texts")
    return value


_InputText = Annotated[Text, Field(min_length=1)]
_Input = Annotated[
    Annotated[_InputText, Tag("text")]
    | Annotated[Items[_InputText], Field(min_length=1), Tag("list")],
    TEXT_OR_LIST,
    BeforeValidator(_check_list),
]


class EmbeddingRequest(
    UnstoredBody, json_schema_extra={"examples": [{"model": "nomic-embed-text", "input": "Hello!"}]}
):
    """Texts to embed. Unknown fields are ignored."""

    model: str = Field(min_length=1, description="Model of Ollama.")
    input: _Input = Field(description=f"A text, or a list of up to {_MAX_TEXTS} texts.")
    dimensions: int | None = Field(
        None, ge=1, description="Length of the vectors, for models that support it."
    )
    encoding_format: Literal["float", "base64"] | None = Field(
        None, description="`float` (default) or `base64`."
    )

    options: EmptyOptions = Field(None, description="Only `{}` is supported.")
    num_ctx: RejectedOption = Field(
        None, description="Not supported. The server sets the context window."
    )


class EmbeddingUsage(Schema):
    """Number of tokens in the texts, as counted by Ollama."""

    prompt_tokens: int
    total_tokens: int


class Embedding(Schema):
    """Embedding of a text: numbers, or base64 of 32-bit floats in little-endian order."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingList(Schema):
    """Embeddings in the order of the texts."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


_BATCH_SIZE = 64
"""Maximum number of texts in a request to Ollama.

Parsing a large response in one step would block other requests.
"""


async def embed(
    gateway: ModelGateway, request: EmbeddingRequest, on_started: Callable[[], None]
) -> bytes:
    """Return embeddings of the texts as a JSON response in OpenAI's format.

    ``on_started`` is called once, after the response to the first batch. Raises ``OllamaBusy`` if
    too many requests wait, ``ValidationFailed`` if a text does not fit into the context window, and
    the errors of Ollama.
    """
    ticket = gateway.admit()
    model = request.model
    texts = [request.input] if isinstance(request.input, str) else request.input
    try:  # the window of a chat model, so that Ollama does not reload it
        allocation = gateway.allocate(await gateway.find_model(model))
    except ModelNotFound:  # not a chat model
        allocation = gateway.allocate(ModelInfo(model, 0)).fixed(None)
    prompt = _Texts((), PromptSize(max(len(text) for text in texts)))
    # Without truncation, Ollama rejects a text that is too long.
    payload: dict[str, Any] = {"model": model, "truncate": False}
    if request.dimensions:
        payload["dimensions"] = request.dimensions
    packs = request.encoding_format == "base64"
    data: list[orjson.Fragment] = []
    tokens = 0
    for start in range(0, len(texts), _BATCH_SIZE):
        batch = texts[start : start + _BATCH_SIZE]
        body = await _embed_batch(
            gateway,
            ModelRequest(
                allocation=allocation,
                payload=payload | {"input": batch},
                prompt=prompt,
                ticket=ticket,
            ),
        )
        if start == 0:
            on_started()
        vectors = body.get("embeddings")
        if not isinstance(vectors, list) or len(vectors) != len(batch):
            raise OllamaError(
                f"Ollama did not send one embedding for each of the {len(batch)} texts."
            )
        # Encode each batch immediately, because encoded vectors need less memory than lists of
        # numbers.
        for index, vector in enumerate(vectors, start):
            data.append(_encoded(index, vector, packs=packs))
        tokens += body.get("prompt_eval_count") or 0
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return orjson.dumps({"object": "list", "data": data, "model": model, "usage": usage})


async def _embed_batch(gateway: ModelGateway, request: ModelRequest) -> Mapping[str, Any]:
    """Return Ollama's response to a request for embeddings.

    Raises ``ModelNotFound`` if the model cannot embed, and the errors of Ollama.
    """
    try:
        return await gateway.embed(request)
    except OllamaError as error:
        if error.details.get("upstream_status") != HTTPStatus.NOT_IMPLEMENTED:
            raise
        installed = await gateway.fleet.list_installed()
        names = [
            model.name.removesuffix(":latest")
            for model in installed
            if model.has_capability("embedding")
        ]
        raise ModelNotFound(
            request.model, kind="embedding", models=names, is_other_kind=True
        ) from error


def _encoded(index: int, vector: list[float], *, packs: bool) -> orjson.Fragment:
    """Return an embedding as JSON, with numbers or with base64 (``packs``)."""
    embedding: list[float] | str = vector
    if packs:
        embedding = b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
    item = {"object": "embedding", "index": index, "embedding": embedding}
    return orjson.Fragment(orjson.dumps(item))


class _Texts(FixedPrompt):
    """Texts of a request. Their size is the size of the longest text."""

    async def fit(self, refused_tokens: int | None) -> FixedPrompt:
        if refused_tokens is not None:
            raise ValidationFailed.at(
                "input", "a text is longer than the context window of the model; split it"
            )
        return self
