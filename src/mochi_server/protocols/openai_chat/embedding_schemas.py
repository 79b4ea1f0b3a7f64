"""Schemas of the embeddings of OpenAI's API."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, Tag

from mochi_server.models.common import Body, Text
from mochi_server.protocols.openai_chat.embeddings import EncodingFormat
from mochi_server.protocols.schemas import TEXT_OR_LIST, allow
from mochi_server.util.validation import Items

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
