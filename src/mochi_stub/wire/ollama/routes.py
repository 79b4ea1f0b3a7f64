"""Ollama's own HTTP interface: the paths, and the models that the stub has."""

from __future__ import annotations

from mochi_stub.answer import Answer, Handler, Request, Result, Routes, Stub
from mochi_stub.wire.ollama import models, refusals
from mochi_stub.wire.ollama.embeddings import embed, embeddings
from mochi_stub.wire.ollama.generation import chat, generate
from mochi_stub.wire.ollama.gotypes import read_body
from mochi_stub.wire.ollama.model_admin import copy, create, delete, find_blob, send_blob
from mochi_stub.wire.ollama.names import parse_name, routed
from mochi_stub.wire.ollama.pull_push import pull, push
from mochi_stub.wire.ollama.requests import SHOW

VERSION = "0.33.0"
TEXT = b"text/plain; charset=utf-8"


def root(_stub: Stub, _request: Request) -> Result:
    """GET /"""
    return Answer(200, b"Ollama is running", TEXT)


def version(_stub: Stub, _request: Request) -> Result:
    """GET /api/version"""
    return refusals.json_answer({"version": VERSION})


def status(_stub: Stub, _request: Request) -> Result:
    """GET /api/status: the stub has no cloud"""
    return refusals.json_answer({"cloud": {"disabled": True, "source": "env"}})


def tags(stub: Stub, _request: Request) -> Result:
    """GET /api/tags"""
    return refusals.json_answer(models.tags(stub.models))


def ps(stub: Stub, _request: Request) -> Result:
    """GET /api/ps"""
    now = stub.scheduler.now()
    return refusals.json_answer({"models": [models.running(loaded, now) for loaded in stub.scheduler.loaded()]})


def show(stub: Stub, request: Request) -> Result:
    """POST /api/show"""
    body = read_body(request.body, "ShowRequest", SHOW)
    name = body.get("model") or body.get("name") or ""
    if not name:
        raise refusals.model_required()
    bare, place = routed(name)
    if place == "cloud":
        raise refusals.no_remote_details()
    parsed = parse_name(bare)
    missing = refusals.not_found(parsed.short if parsed else name)
    model = refusals.local_model(stub, name, malformed=refusals.invalid_name(), missing=missing)
    if model.remote:
        raise refusals.no_remote_details()
    return refusals.json_answer(models.show(model))


def _reading(handler: Handler) -> dict[str, Handler]:
    return {"HEAD": handler, "GET": handler}


_HANDLERS: Routes = {
    "/": _reading(root),
    "/api/version": _reading(version),
    "/api/status": {"GET": status},
    "/api/tags": _reading(tags),
    "/api/ps": {"GET": ps},
    "/api/show": {"POST": show},
    "/api/chat": {"POST": chat},
    "/api/generate": {"POST": generate},
    "/api/embed": {"POST": embed},
    "/api/embeddings": {"POST": embeddings},
    "/api/pull": {"POST": pull},
    "/api/push": {"POST": push},
    "/api/create": {"POST": create},
    "/api/copy": {"POST": copy},
    "/api/delete": {"DELETE": delete},
    "/api/blobs/*": {"POST": send_blob, "HEAD": find_blob},
}
ROUTES: Routes = {
    path: {method: refusals.refusing(handler) for method, handler in methods.items()}
    for path, methods in _HANDLERS.items()
}
