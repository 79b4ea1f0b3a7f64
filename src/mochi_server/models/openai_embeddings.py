"""Schemas of the embeddings of OpenAI's API."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from mochi_server.models.common import Body, Text
from mochi_server.models.openai_messages import Items
from mochi_server.openai.embeddings import EncodingFormat

_TOKENS = "token IDs are not supported; send text instead (LangChain: `check_embedding_ctx_length=False`)"


def _as_list(value: Any) -> Any:
    """Return a single text as a list. Raise ``ValueError`` for token IDs and for an empty text."""
    texts = [value] if isinstance(value, str) else value
    if isinstance(texts, list):
        if any(isinstance(text, int | list) for text in texts[:1]):
            raise ValueError(_TOKENS)
        if "" in texts:
            raise ValueError("must not contain an empty text")
    return texts


class EmbeddingRequest(Body):
    """Texts to embed. Unknown fields are ignored."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "nomic-embed-text", "input": "Hello!"}]})

    model: str = Field(min_length=1, description="Model of Ollama.")
    input: Annotated[
        Items[Text],
        Field(min_length=1, max_length=2048, json_schema_extra={"type": ["string", "array"]}),
        BeforeValidator(_as_list),
    ] = Field(description="A text, or a list of texts.")
    dimensions: int | None = Field(None, ge=1, description="Length of the vectors, for models that support it.")
    encoding_format: EncodingFormat | None = Field(None, description="`float` (default) or `base64`.")


class EmbeddingUsage(BaseModel):
    """Ollama's token count of the texts."""

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
