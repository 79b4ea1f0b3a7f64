"""`/api/embed` and the older `/api/embeddings`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mochi_stub.answer import Answer, Result, Stub
from mochi_stub.catalogue import Model
from mochi_stub.embedding import embed as embed_text
from mochi_stub.embedding import normalised
from mochi_stub.plan import NANOSECONDS_PER_PROMPT_TOKEN
from mochi_stub.prompt import Message, Prompt, count_tokens
from mochi_stub.reply import Failure
from mochi_stub.scheduler import Lease, Need
from mochi_stub.wire.ollama.gojson import number, number32, text
from mochi_stub.wire.ollama.gotypes import read_body
from mochi_stub.wire.ollama.refusals import (
    JSON,
    MODEL_REQUIRED,
    NO_REMOTE,
    Refused,
    local_model,
    not_found,
    not_pulled,
    scheduled,
)
from mochi_stub.wire.ollama.requests import EMBED, EMBEDDINGS, effective_options
from mochi_stub.wire.provider_pipeline import headers_of


def embed(stub: Stub, data: bytes) -> Result:
    """POST /api/embed: vectors of unit length, one for each input."""
    body = read_body(data, "EmbedRequest", EMBED)
    inputs = _inputs(body.get("input"))
    name = body.get("model", "")
    need = _need(_model(stub, name, empty=not_found("")), body)

    def embedded(lease: Lease) -> Answer:
        fitting = _fitting(inputs, body, need.model, lease.context)
        found = [_embedded(stub, need.model, name, one) for one in fitting]
        vectors = [_shortened(vector, body.get("dimensions", 0)) for vector, _ in found]
        shown = ",".join(f"[{','.join(map(number32, vector))}]" for vector in vectors)
        counts = _counters(sum(tokens for _, tokens in found), lease.load_duration) if found else ""
        return Answer(200, f'{{"model":{text(name)},"embeddings":[{shown}]{counts}}}'.encode(), JSON)

    return scheduled(stub, need, embedded)


def embeddings(stub: Stub, data: bytes) -> Result:
    """POST /api/embeddings: one vector, as the model makes it."""
    body = read_body(data, "EmbeddingRequest", EMBEDDINGS)
    name, prompt = body.get("model", ""), body.get("prompt", "")
    need = _need(_model(stub, name, empty=MODEL_REQUIRED), body)

    def embedded(_lease: Lease) -> Answer:
        vector = _embedded(stub, need.model, name, prompt)[0] if prompt else []
        return Answer(200, f'{{"embedding":[{",".join(map(number, vector))}]}}'.encode(), JSON)

    return scheduled(stub, need, embedded)


def _inputs(given: Any) -> list[str]:
    inputs = given if isinstance(given, list) else [] if given in (None, "") else [given]
    if not all(isinstance(one, str) for one in inputs):
        raise Refused(400, "invalid input type")
    return inputs


def _model(stub: Stub, name: str, *, empty: Refused) -> Model:
    if not name:
        raise empty
    model = local_model(stub, name, malformed=not_found(name), missing=not_pulled(name))
    if model.remote:
        raise Refused(403, NO_REMOTE)
    return model


def _need(model: Model, body: Mapping[str, Any]) -> Need:
    return Need(model, effective_options(model, body.get("options", {})), body.get("keep_alive"))


def _fitting(inputs: list[str], body: Mapping[str, Any], model: Model, context: int) -> list[str]:
    """The inputs, cut to the context unless the request forbids it."""
    room = int(context * model.chars_per_token)
    if not body.get("truncate", True) and any(len(one) > room for one in inputs):
        raise Refused(400, "the input length exceeds the context length")
    return [one[:room] for one in inputs]


def _embedded(stub: Stub, model: Model, name: str, one: str) -> tuple[list[float], int]:
    """The vector of one text, and its tokens. Raises Refused where the model fails."""
    reply = stub.resolve(Prompt(name, "embed", (Message("user", one),)))
    for part in reply.parts:
        if isinstance(part, Failure):
            raise Refused(part.status, part.message, headers_of(part))
    vector = embed_text(one, model.embedding_length) if reply.embedding is None else list(reply.embedding)
    return vector, reply.usage.input or count_tokens(len(one), model.chars_per_token)


def _shortened(vector: list[float], dimensions: int) -> list[float]:
    return normalised(vector[:dimensions] if 0 < dimensions < len(vector) else vector)


def _counters(tokens: int, load_duration: int) -> str:
    total = load_duration + tokens * NANOSECONDS_PER_PROMPT_TOKEN
    return f',"total_duration":{total},"load_duration":{load_duration},"prompt_eval_count":{tokens}'
