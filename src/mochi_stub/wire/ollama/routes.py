"""Ollama's own HTTP interface: which path does what."""

from __future__ import annotations

from mochi_stub.answer import Answer, BodyHandler, Handler, Result, Routes, Stub, on_body
from mochi_stub.wire.ollama import models
from mochi_stub.wire.ollama.creation import create
from mochi_stub.wire.ollama.embeddings import embed, embeddings
from mochi_stub.wire.ollama.generation import chat, generate
from mochi_stub.wire.ollama.gotypes import read_body
from mochi_stub.wire.ollama.management import copy, delete, find_blob, send_blob
from mochi_stub.wire.ollama.names import parse_name, routed
from mochi_stub.wire.ollama.refusals import (
    INVALID_NAME,
    MODEL_REQUIRED,
    NO_REMOTE_DETAILS,
    Refused,
    json_answer,
    local_model,
    not_found,
    refusing,
    refusing_all,
)
from mochi_stub.wire.ollama.requests import SHOW
from mochi_stub.wire.ollama.transfers import pull, push

VERSION = "0.33.0"
TEXT = b"text/plain; charset=utf-8"


def root(_stub: Stub, _data: bytes) -> Result:
    """GET /"""
    return Answer(200, b"Ollama is running", TEXT)


def version(_stub: Stub, _data: bytes) -> Result:
    """GET /api/version"""
    return json_answer({"version": VERSION})


def status(_stub: Stub, _data: bytes) -> Result:
    """GET /api/status: the stub has no cloud."""
    return json_answer({"cloud": {"disabled": True, "source": "env"}})


def tags(stub: Stub, _data: bytes) -> Result:
    """GET /api/tags"""
    return json_answer(models.tags(stub.models))


def ps(stub: Stub, _data: bytes) -> Result:
    """GET /api/ps"""
    return json_answer(models.running(stub.scheduler.loaded(), stub.scheduler.now()))


def show(stub: Stub, data: bytes) -> Result:
    """POST /api/show"""
    body = read_body(data, "ShowRequest", SHOW)
    name = body.get("model") or body.get("name") or ""
    if not name:
        raise MODEL_REQUIRED
    bare, place = routed(name)
    if place == "cloud":
        raise Refused(403, NO_REMOTE_DETAILS)
    parsed = parse_name(bare)
    model = local_model(stub, name, malformed=INVALID_NAME, missing=not_found(parsed.short if parsed else name))
    if model.remote:
        raise Refused(403, NO_REMOTE_DETAILS)
    return json_answer(models.show(model))


def _reading(handler: BodyHandler) -> dict[str, Handler]:
    return {"HEAD": on_body(handler), "GET": on_body(handler)}


ROUTES: Routes = {
    "/": _reading(root),
    "/api/version": _reading(version),
    "/api/status": {"GET": on_body(status)},
    "/api/tags": _reading(tags),
    "/api/ps": {"GET": on_body(ps)},
    "/api/show": {"POST": refusing(show)},
    "/api/chat": {"POST": refusing(chat)},
    "/api/generate": {"POST": refusing(generate)},
    "/api/embed": {"POST": refusing(embed)},
    "/api/embeddings": {"POST": refusing(embeddings)},
    "/api/pull": {"POST": refusing(pull)},
    "/api/push": {"POST": refusing(push)},
    "/api/create": {"POST": refusing(create)},
    "/api/copy": {"POST": refusing(copy)},
    "/api/delete": {"DELETE": refusing(delete)},
    "/api/blobs/*": {"POST": refusing_all(send_blob), "HEAD": refusing_all(find_blob)},
}
