"""OpenAI's API below `/v1`, as OpenAI's specification describes it: routes, models and embeddings."""

from __future__ import annotations

import base64
import struct
from datetime import datetime, timezone
from functools import partial
from typing import Any

from mochi_stub.handlers import ANY, Result, Routes, ScheduledResult, Stub
from mochi_stub.http import HttpResponse, Request
from mochi_stub.models import Model
from mochi_stub.models.scheduler import Lease
from mochi_stub.providers import provider_pipeline as pipeline
from mochi_stub.providers.openai import request_schema as schema
from mochi_stub.providers.openai.completions import chat, completions
from mochi_stub.providers.openai.request_schema import error_response, find_model, format_error
from mochi_stub.providers.openai.responses import RESPONSE, responses
from mochi_stub.reply import HttpError

OWNER = "mochi-stub"


def models(stub: Stub, _request: Request) -> Result:
    return pipeline.json_response(
        {"object": "list", "data": [_model_object(model) for model in pipeline.list_models(stub.models)]}
    )


def model(stub: Stub, request: Request) -> Result:
    name = request.path.partition("/models/")[2]
    missing = HttpError(404, f"The model '{name}' does not exist", param="model")
    return pipeline.json_response(_model_object(pipeline.find_declared(stub.models, name, missing)))


def embeddings(stub: Stub, _request: Request, body: dict[str, Any]) -> Result:
    model = find_model(stub, body.get("model"), "embedding")

    def build_response(_lease: Lease) -> HttpResponse:
        is_base64, data, tokens = body.get("encoding_format") == "base64", [], 0
        for index, text in enumerate(schema.texts(body["input"])):
            vector, count = pipeline.embed_text(stub, model, model.name, text)
            vector = pipeline.shorten_vector(vector, body.get("dimensions"))
            tokens += count
            encoded = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode() if is_base64 else vector
            data.append({"object": "embedding", "index": index, "embedding": encoded})
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        name = body.get("model", model.name)
        return pipeline.json_response({"object": "list", "data": data, "model": name, "usage": usage})

    return ScheduledResult(pipeline.usual_load(model), build_response)


def _model_object(model: Model) -> dict[str, Any]:
    created = datetime.strptime(model.modified_at[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    return {"id": model.name, "object": "model", "created": int(created.timestamp()), "owned_by": OWNER}


_checked = partial(pipeline.with_checked_body, format_error=format_error)
_ROUTES: Routes = {
    "/chat/completions": {"POST": _checked(schema.CHAT, chat)},
    "/completions": {"POST": _checked(schema.COMPLETION, completions)},
    "/responses": {"POST": _checked(RESPONSE, responses)},
    "/embeddings": {"POST": _checked(schema.EMBEDDING, embeddings)},
    "/models": {"GET": models},
    "/models/*": {"GET": model},
    "/*": {ANY: pipeline.refuse(404, "Invalid URL ({method} {path})", code=None)},
}
_WRONG_METHOD = pipeline.refuse(405, "Not allowed to {method} on {path}.", code="method_not_supported")
API = pipeline.Api(("/v1",), _ROUTES, error_response, _WRONG_METHOD)
