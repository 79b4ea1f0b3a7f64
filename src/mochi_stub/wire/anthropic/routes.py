"""Anthropic's HTTP interface below `/v1`: which path does what."""

from __future__ import annotations

from typing import Any

from mochi_stub.answer import ANY, Handler, Request, Result, Routes, Stub
from mochi_stub.catalogue import Model
from mochi_stub.wire.anthropic.errors import json_answer, refused, refusing
from mochi_stub.wire.anthropic.messages import count_tokens, messages
from mochi_stub.wire.anthropic.shapes import COUNT, MESSAGES
from mochi_stub.wire.asking import declared, listed


def models(stub: Stub, request: Request) -> Result:
    """GET /v1/models, for Anthropic's clients"""
    shown = [_shown(model) for model in listed(stub.models)]
    ends = {"first_id": shown[0]["id"] if shown else None, "last_id": shown[-1]["id"] if shown else None}
    return json_answer({"data": shown, "has_more": False, **ends}, stub.plan(request.body))


def model(stub: Stub, request: Request) -> Result:
    """GET /v1/models/{id}, for Anthropic's clients"""
    name = request.path.partition("/models/")[2]
    found = declared(stub.models, name)
    plan = stub.plan(request.body)
    return refused(404, f"model: {name}", plan) if found is None else json_answer(_shown(found), plan)


def wrong_method(stub: Stub, request: Request) -> Result:
    """A known path, asked otherwise than it can be."""
    return refused(405, "Method Not Allowed", stub.plan(request.body))


def unknown_path(stub: Stub, request: Request) -> Result:
    """Any other path."""
    return refused(404, "Not Found", stub.plan(request.body))


def _shown(model: Model) -> dict[str, Any]:
    moment = f"{model.modified_at[:19]}Z"
    return {"type": "model", "id": model.name, "display_name": model.name, "created_at": moment}


def _only(method: str, handler: Handler) -> dict[str, Handler]:
    return {method: handler, ANY: wrong_method}


ROUTES: Routes = {
    "/messages": _only("POST", refusing(MESSAGES, messages)),
    "/messages/count_tokens": _only("POST", refusing(COUNT, count_tokens)),
    "/messages/*": {ANY: unknown_path},
}
SHARED: Routes = {
    "/models": _only("GET", models),
    "/models/*": _only("GET", model),
    "/*": {ANY: unknown_path},
}
"""Paths that other providers have too."""
