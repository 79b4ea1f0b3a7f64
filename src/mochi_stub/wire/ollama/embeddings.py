"""`/api/embed` and the older `/api/embeddings`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mochi_stub.answer import Answer, Request, Result, Stub
from mochi_stub.plan import NANOSECONDS_PER_PROMPT_TOKEN
from mochi_stub.scheduler import Lease, Need
from mochi_stub.wire.ollama import refusals
from mochi_stub.wire.ollama.gojson import number, number32, quoted, text
from mochi_stub.wire.ollama.gotypes import read_body
from mochi_stub.wire.ollama.requests import EMBED, EMBEDDINGS, effective_options
from mochi_stub.wire.provider_pipeline import Refused, embedded, shortened


def embed(stub: Stub, request: Request) -> Result:
    """POST /api/embed: vectors of unit length, one for each input"""
    body = read_body(request.body, "EmbedRequest", EMBED)
    given = body.get("input")
    inputs = given if isinstance(given, list) else [] if given in (None, "") else [given]
    if not all(isinstance(one, str) for one in inputs):
        raise Refused(400, "invalid input type")
    name = body.get("model", "")
    need = _need(stub, body, empty=refusals.not_found(""))

    def answered(lease: Lease) -> Answer:
        model = need.model
        room = int(lease.context * model.chars_per_token)
        if not body.get("truncate", True) and any(len(one) > room for one in inputs):
            raise Refused(400, "the input length exceeds the context length")
        vectors, tokens = [], 0
        for one in inputs:
            vector, count = embedded(stub, model, name, one[:room])
            vectors.append(",".join(map(number32, shortened(vector, max(0, body.get("dimensions", 0))))))
            tokens += count
        shown = ",".join(f"[{vector}]" for vector in vectors)
        counters = _counters(tokens, lease.load_duration) if vectors else ""
        return Answer(200, f'{{"model":{text(name)},"embeddings":[{shown}]{counters}}}'.encode(), refusals.JSON)

    return refusals.scheduled(stub, need, answered)


def embeddings(stub: Stub, request: Request) -> Result:
    """POST /api/embeddings: one vector, as the model makes it"""
    body = read_body(request.body, "EmbeddingRequest", EMBEDDINGS)
    name, prompt = body.get("model", ""), body.get("prompt", "")
    need = _need(stub, body, empty=refusals.model_required())

    def answered(_lease: Lease) -> Answer:
        vector = embedded(stub, need.model, name, prompt)[0] if prompt else []
        return Answer(200, f'{{"embedding":[{",".join(map(number, vector))}]}}'.encode(), refusals.JSON)

    return refusals.scheduled(stub, need, answered)


def _need(stub: Stub, body: Mapping[str, Any], *, empty: Refused) -> Need:
    name = body.get("model", "")
    if not name:
        raise empty
    not_pulled = Refused(404, f"model {quoted(name)} not found, try pulling it first")
    model = refusals.local_model(stub, name, malformed=refusals.not_found(name), missing=not_pulled)
    if model.remote:
        raise refusals.no_remote()
    return Need(model, effective_options(model, body.get("options", {})), body.get("keep_alive"))


def _counters(tokens: int, load_duration: int) -> str:
    total = load_duration + tokens * NANOSECONDS_PER_PROMPT_TOKEN
    return f',"total_duration":{total},"load_duration":{load_duration},"prompt_eval_count":{tokens}'
