"""`/v1/models`: the declared models under the names with which they were declared."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from mochi_stub.answer import Request, Result, Stub
from mochi_stub.catalogue import Model
from mochi_stub.wire.asking import declared, listed
from mochi_stub.wire.openai.errors import Refused, json_answer

OWNER = "mochi-stub"


def models(stub: Stub, _request: Request) -> Result:
    """GET /v1/models"""
    return json_answer({"object": "list", "data": [_shown(model) for model in listed(stub.models)]})


def model(stub: Stub, request: Request) -> Result:
    """GET /v1/models/{id}"""
    name = request.path.partition("/models/")[2]
    found = declared(stub.models, name)
    if found is None:
        error = Refused(404, f"The model '{name}' does not exist", param="model", code="model_not_found").error
        return json_answer({"error": error}, 404)
    return json_answer(_shown(found))


def _shown(model: Model) -> dict[str, Any]:
    moment = datetime.strptime(model.modified_at[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc)
    return {"id": model.name, "object": "model", "created": int(moment.timestamp()), "owned_by": OWNER}
