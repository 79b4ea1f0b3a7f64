"""Embeddings of OpenAI's API, computed by Ollama."""

import struct
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, BeforeValidator, Field, Tag

from mochi_server.errors import ModelNotFound, OllamaError, ValidationFailed
from mochi_server.inference.allocation import Allocation
from mochi_server.inference.estimate import PromptSize
from mochi_server.inference.gateway import ModelGateway
from mochi_server.inference.prompt import FixedPrompt
from mochi_server.inference.request import ModelRequest
from mochi_server.models.common import Body, Text
from mochi_server.ollama.types import ModelInfo
from mochi_server.protocols.schemas import TEXT_OR_LIST, allow
from mochi_server.util.first_error import Items

EncodingFormat = Literal["float", "base64"]
_TOKENS = "token IDs are not supported; send text instead (LangChain: `check_embedding_ctx_length=False`)"
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
    Annotated[_InputText, Tag("text")] | Annotated[Items[_InputText], Field(min_length=1), Tag("list")],
    TEXT_OR_LIST,
    BeforeValidator(_check_list),
]


RejectedOption = Annotated[Any, allow(reason="this server sets the context window and the other options")]


class EmbeddingRequest(Body, json_schema_extra={"examples": [{"model": "nomic-embed-text", "input": "Hello!"}]}):
    """Texts to embed. Unknown fields are ignored."""

    model: str = Field(min_length=1, description="Model of Ollama.")
    input: _Input = Field(description=f"A text, or a list of up to {_MAX_TEXTS} texts.")
    dimensions: int | None = Field(None, ge=1, description="Length of the vectors, for models that support it.")
    encoding_format: EncodingFormat | None = Field(None, description="`float` (default) or `base64`.")

    options: RejectedOption = Field(None, description="Not supported.")
    num_ctx: RejectedOption = Field(None, description="Not supported. The server sets the context window.")

    @property
    def texts(self) -> list[str]:
        return [self.input] if isinstance(self.input, str) else self.input


class EmbeddingUsage(BaseModel):
    """Number of tokens in the texts, as counted by Ollama."""

    prompt_tokens: int
    total_tokens: int


class Embedding(BaseModel):
    """Embedding of a text: numbers, or base64 of 32-bit floats in little-endian order."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingList(BaseModel):
    """Embeddings in the order of the texts."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


_BATCH_SIZE = 64
"""Maximum number of texts in a request to Ollama. Parsing a large response in one step would block other requests."""


@dataclass(frozen=True)
class Embeddings:
    """Service that computes embeddings."""

    gateway: ModelGateway

    async def create(
        self, model: str, texts: Sequence[str], dimensions: int | None, encoding_format: EncodingFormat
    ) -> bytes:
        """Return the embeddings of ``texts`` as a JSON response in OpenAI's format.

        Raises ``ValidationFailed`` if a text does not fit into the context window, and the errors of Ollama.
        """
        data: list[orjson.Fragment] = []
        tokens = 0
        allocation, prompt = await self._allocate(model), _Texts((), PromptSize(max(map(len, texts))))
        for start in range(0, len(texts), _BATCH_SIZE):
            batch = texts[start : start + _BATCH_SIZE]
            # `truncate: false` makes Ollama reject a text that is too long.
            payload = {"model": model, "input": batch, "dimensions": dimensions, "truncate": False}
            payload = {name: value for name, value in payload.items() if value is not None}
            request = ModelRequest(allocation=allocation, payload=payload, prompt=prompt)
            body = await self.gateway.embed(request)
            vectors = body.get("embeddings")
            if not isinstance(vectors, list) or len(vectors) != len(batch):
                raise OllamaError(f"Ollama did not send one embedding for each of the {len(batch)} texts.")
            # Encode each batch immediately, because encoded vectors need less memory than lists of numbers.
            for index, vector in enumerate(vectors, start):
                packed = _packed(vector)  # also checks the vector
                embedding = b64encode(packed).decode() if encoding_format == "base64" else vector
                item = {"object": "embedding", "index": index, "embedding": embedding}
                data.append(orjson.Fragment(orjson.dumps(item)))
            count = body.get("prompt_eval_count")
            tokens += count if isinstance(count, int) else 0
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return orjson.dumps({"object": "list", "data": data, "model": model, "usage": usage})

    async def _allocate(self, model: str) -> Allocation:
        """Return the context window of a chat model, or no window for an embedding model.

        If the window with which Ollama has loaded the model is large enough, Ollama does not reload the model.
        """
        try:
            return self.gateway.allocate(await self.gateway.find_model(model))
        except ModelNotFound:  # the model is not a chat model
            return self.gateway.allocate(ModelInfo(model, 0)).fixed(None)


class _Texts(FixedPrompt):
    """Texts of a request. Their size is the size of the longest text."""

    async def fit(self, window: int | None, refused: int | None) -> FixedPrompt:  # noqa: ARG002 - as in the base class
        if refused is not None:
            raise ValidationFailed.at("input", "a text is longer than the context window of the model; split it")
        return self


def _packed(vector: Any) -> bytes:
    """Return a vector as 32-bit floats, in the byte order of OpenAI's API (little-endian).

    Raises ``OllamaError`` if ``vector`` is not a list of numbers.
    """
    try:
        return struct.pack(f"<{len(vector)}f", *vector)
    except (TypeError, OverflowError, struct.error):
        raise OllamaError("Ollama sent an embedding that is not a list of 32-bit floats.") from None
