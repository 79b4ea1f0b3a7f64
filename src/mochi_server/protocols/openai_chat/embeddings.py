"""Embeddings of OpenAI's API, computed by Ollama."""

import struct
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from mochi_server.errors import ModelNotFound, OllamaError, ValidationFailed
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.errors import is_context_refusal
from mochi_server.services.context_window import WindowRegistry

EncodingFormat = Literal["float", "base64"]

_BATCH_SIZE = 64
"""Maximum number of texts in a request to Ollama. Parsing a large response in one step would block other requests."""


@dataclass(frozen=True)
class Embeddings:
    """Service that computes embeddings."""

    client: AsyncOllamaClient
    windows: WindowRegistry

    async def create(
        self, model: str, texts: Sequence[str], dimensions: int | None, encoding_format: EncodingFormat
    ) -> bytes:
        """Return the embeddings of ``texts`` as a JSON response in OpenAI's format.

        Raises ``ValidationFailed`` if a text does not fit into the context window, and the errors of Ollama.
        """
        data: list[orjson.Fragment] = []
        tokens = 0
        options = await self._options(model, texts)
        for start in range(0, len(texts), _BATCH_SIZE):
            batch = texts[start : start + _BATCH_SIZE]
            # `truncate: false` makes Ollama reject a text that is too long.
            payload = {"model": model, "input": batch, "dimensions": dimensions, "options": options, "truncate": False}
            body = await self._embed(payload)
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

    async def _options(self, model: str, texts: Sequence[str]) -> dict[str, Any] | None:
        """Return Ollama's options with the context window of a chat model, or None for an embedding model.

        If the window with which Ollama has loaded the model is large enough, Ollama does not reload the model.
        """
        try:
            info = await self.client.find_model(model)
        except ModelNotFound:  # the model is not a chat model
            return None
        window = await self.windows.window_without_session(info, self.windows.estimate(info, max(map(len, texts))))
        return {"num_ctx": window} if window else None

    async def _embed(self, payload: dict[str, Any]) -> Any:
        payload = {name: value for name, value in payload.items() if value is not None}
        try:
            return await self.client.embed(payload)
        except OllamaError as error:
            if is_context_refusal(error):
                problem = "a text is longer than the context window of the model; split it"
                raise ValidationFailed.at("input", problem) from error
            raise


def _packed(vector: Any) -> bytes:
    """Return a vector as 32-bit floats, in the byte order of OpenAI's API (little-endian).

    Raises ``OllamaError`` if ``vector`` is not a list of numbers.
    """
    try:
        return struct.pack(f"<{len(vector)}f", *vector)
    except (TypeError, OverflowError, struct.error):
        raise OllamaError("Ollama sent an embedding that is not a list of 32-bit floats.") from None
