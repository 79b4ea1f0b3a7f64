"""`/api/embed` and the older `/api/embeddings`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mochi_stub.answer import Answer, Result, Stub
from mochi_stub.catalogue import Model
from mochi_stub.embedding import embed as embed_text
from mochi_stub.embedding import normalised
from mochi_stub.plan import LOAD_DURATION, NANOSECONDS_PER_PROMPT_TOKEN
from mochi_stub.prompt import Message, Prompt, count_tokens
from mochi_stub.reply import Failure
from mochi_stub.scheduler import effective_context
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
)
from mochi_stub.wire.ollama.requests import EMBED, EMBEDDINGS, effective_options


def embed(stub: Stub, data: bytes) -> Result:
    """POST /api/embed: vectors of unit length, one for each input."""
    body = read_body(data, "EmbedRequest", EMBED)
    inputs = _inputs(body.get("input"))
    name = body.get("model", "")
    model = _model(stub, name, empty=not_found(""))
    options = _load(stub, model, body)
    found = [_embedded(stub, model, name, one) for one in _fitting(inputs, body, model, options)]
    vectors = [_shortened(vector, body.get("dimensions", 0)) for vector, _ in found]
    shown = ",".join(f"[{','.join(map(number32, vector))}]" for vector in vectors)
    counts = _counters(sum(tokens for _, tokens in found)) if found else ""
    return Answer(200, f'{{"model":{text(name)},"embeddings":[{shown}]{counts}}}'.encode(), JSON)


def embeddings(stub: Stub, data: bytes) -> Result:
    """POST /api/embeddings: one vector, as the model makes it."""
    body = read_body(data, "EmbeddingRequest", EMBEDDINGS)
    name, prompt = body.get("model", ""), body.get("prompt", "")
    model = _model(stub, name, empty=MODEL_REQUIRED)
    _load(stub, model, body)
    vector = _embedded(stub, model, name, prompt)[0] if prompt else []
    return Answer(200, f'{{"embedding":[{",".join(map(number, vector))}]}}'.encode(), JSON)


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


def _load(stub: Stub, model: Model, body: Mapping[str, Any]) -> dict[str, Any]:
    options = effective_options(model, body.get("options", {}))
    stub.scheduler.end(stub.scheduler.begin(model, options, body.get("keep_alive")))
    return options


def _fitting(inputs: list[str], body: Mapping[str, Any], model: Model, options: Mapping[str, Any]) -> list[str]:
    """The inputs, cut to the context unless the request forbids it."""
    room = int(effective_context(model, options) * model.chars_per_token)
    if not body.get("truncate", True) and any(len(one) > room for one in inputs):
        raise Refused(400, "the input length exceeds the context length")
    return [one[:room] for one in inputs]


def _embedded(stub: Stub, model: Model, name: str, one: str) -> tuple[list[float], int]:
    """The vector of one text, and its tokens. Raises Refused where the model fails."""
    reply = stub.resolve(Prompt(name, "embed", (Message("user", one),)))
    for part in reply.parts:
        if isinstance(part, Failure):
            raise Refused(part.status, part.message)
    vector = embed_text(one, model.embedding_length) if reply.embedding is None else list(reply.embedding)
    return vector, reply.usage.input or count_tokens(len(one), model.chars_per_token)


def _shortened(vector: list[float], dimensions: int) -> list[float]:
    return normalised(vector[:dimensions] if 0 < dimensions < len(vector) else vector)


def _counters(tokens: int) -> str:
    total = LOAD_DURATION + tokens * NANOSECONDS_PER_PROMPT_TOKEN
    return f',"total_duration":{total},"load_duration":{LOAD_DURATION},"prompt_eval_count":{tokens}'
