"""Anthropic's HTTP interface below `/v1`: paths and models."""

from __future__ import annotations

from typing import Any

from mochi_stub.answer import ANY, Request, Result, Routes, Stub
from mochi_stub.catalogue import Model
from mochi_stub.wire.anthropic.errors import find_model, json_answer, refusal
from mochi_stub.wire.anthropic.messages import count_tokens, messages
from mochi_stub.wire.anthropic.request_schema import COUNT, MESSAGES
from mochi_stub.wire.provider_pipeline import Refused, checked, listed, refusing


def models(stub: Stub, request: Request) -> Result:
    """GET /v1/models, for Anthropic's clients"""
    shown = [_shown(model) for model in listed(stub.models)]
    ends = {"first_id": shown[0]["id"] if shown else None, "last_id": shown[-1]["id"] if shown else None}
    return json_answer({"data": shown, "has_more": False, **ends}, stub.plan(request.body))


def model(stub: Stub, request: Request) -> Result:
    """GET /v1/models/{id}, for Anthropic's clients"""
    found = find_model(stub, request.path.partition("/models/")[2])
    return json_answer(_shown(found), stub.plan(request.body))


def wrong_method(_stub: Stub, _request: Request) -> Result:
    """A known path with another method"""
    raise Refused(405, "Method Not Allowed")


def unknown_path(_stub: Stub, _request: Request) -> Result:
    """Any other path"""
    raise Refused(404, "Not Found")


def _shown(model: Model) -> dict[str, Any]:
    moment = f"{model.modified_at[:19]}Z"
    return {"type": "model", "id": model.name, "display_name": model.name, "created_at": moment}


_OWN: Routes = {
    "/messages": {"POST": checked(MESSAGES, messages)},
    "/messages/count_tokens": {"POST": checked(COUNT, count_tokens)},
    "/messages/*": {ANY: unknown_path},
}
ROUTES = refusing(_OWN, wrong_method, refusal)
SHARED = refusing(
    {"/models": {"GET": models}, "/models/*": {"GET": model}, "/*": {ANY: unknown_path}}, wrong_method, refusal
)
"""Paths that other providers have too."""
