"""Route table of Ollama's API, and the handlers that list models: `/api/tags` and `/api/ps`."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from mochi_stub.http.http_result import Handler, HttpResponse, Request, Result, Routes, Stub
from mochi_stub.models.catalogue import Model
from mochi_stub.models.scheduler import LoadedModel
from mochi_stub.wire.ollama import errors
from mochi_stub.wire.ollama import model_admin as admin
from mochi_stub.wire.ollama.generation import chat, embed, embeddings, generate
from mochi_stub.wire.ollama.go_json import timestamp
from mochi_stub.wire.ollama.model_create import create
from mochi_stub.wire.ollama.model_names import short_name
from mochi_stub.wire.ollama.model_show import details, show
from mochi_stub.wire.provider_pipeline import list_models

VERSION = "0.33.0"
NO_CLOUD = {"cloud": {"disabled": True, "source": "env"}}
NO_WEB = "ollama cloud is disabled:"
NEVER = 292 * 365.25 * 24 * 3600
"""Seconds until `expires_at` in `/api/ps` for a model that stays loaded forever."""


def tags(stub: Stub, _request: Request) -> Result:
    """List the models (`GET /api/tags`), newest first. Models modified in the same second keep the configured order."""
    ordered = sorted(list_models(stub.models), key=lambda model: _second(model.modified_at), reverse=True)
    return errors.json_answer({"models": [_list_entry(model) for model in ordered]})


def ps(stub: Stub, _request: Request) -> Result:
    now = stub.scheduler.now()
    return errors.json_answer({"models": [_loaded_object(loaded, now) for loaded in stub.scheduler.loaded()]})


def _loaded_object(loaded: LoadedModel, now: float) -> dict[str, Any]:
    model, name = loaded.model, short_name(loaded.model)
    return {
        "name": name,
        "model": name,
        "size": model.size,
        "digest": model.digest,
        "details": details(model, model.quantization),
        "expires_at": timestamp(int(min(loaded.expires_at(now), now + NEVER) * 1e9)),
        "size_vram": model.size,
        "context_length": loaded.context_length,
    }


def _list_entry(model: Model) -> dict[str, Any]:
    # Ollama lists models without their pooling and chat template, so it reports embedding models as chat models.
    name = short_name(model)
    remote = {"remote_model": model.remote.model, "remote_host": model.remote.host} if model.remote else {}
    lengths = {"context_length": model.context_length, "embedding_length": model.embedding_length}
    has_listed_capabilities = model.can("completion") and model.habit != "native"
    return {
        "name": name,
        "model": name,
        **remote,
        "modified_at": model.modified_at,
        "size": model.size,
        "digest": model.digest,
        "details": {
            **details(model, model.listed_quantization or model.quantization),
            **{key: value for key, value in lengths.items() if value},
        },
        "capabilities": model.capabilities if has_listed_capabilities else ("completion",),
    }


def _second(timestamp: str) -> float:
    return datetime.strptime(timestamp[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=timezone.utc).timestamp()


def _unavailable(status: int, message: str) -> Handler:
    return lambda _stub, _request: errors.json_answer({"error": message}, status)


def _constant(answer: HttpResponse) -> dict[str, Handler]:
    return _get_and_head(lambda _stub, _request: answer)


def _get_and_head(handler: Handler) -> dict[str, Handler]:
    return {"HEAD": handler, "GET": handler}


_SIGN_OUT = _unavailable(500, "there was an error signing out")
ROUTES: Routes = {
    "/": _constant(HttpResponse(200, b"Ollama is running", b"text/plain; charset=utf-8")),
    "/api/version": _constant(errors.json_answer({"version": VERSION})),
    "/api/status": {"GET": lambda _stub, _request: errors.json_answer(NO_CLOUD)},
    "/api/tags": _get_and_head(tags),
    "/api/ps": {"GET": ps},
    "/api/show": {"POST": show},
    "/api/chat": {"POST": chat},
    "/api/generate": {"POST": generate},
    "/api/embed": {"POST": embed},
    "/api/embeddings": {"POST": embeddings},
    "/api/pull": {"POST": admin.pull},
    "/api/push": {"POST": admin.push},
    "/api/create": {"POST": create},
    "/api/copy": {"POST": admin.copy},
    "/api/delete": {"DELETE": admin.delete},
    "/api/blobs/*": {"HEAD": admin.find_blob, "POST": admin.send_blob},
    "/api/me": {"POST": _unavailable(503, "account unavailable")},
    "/api/signout": {"POST": _SIGN_OUT},
    "/api/user/keys/*": {"DELETE": _SIGN_OUT},
    "/api/experimental/web_search": {"POST": _unavailable(403, f"{NO_WEB} web search is unavailable")},
    "/api/experimental/web_fetch": {"POST": _unavailable(403, f"{NO_WEB} web fetch is unavailable")},
    "/api/experimental/model-recommendations": {"GET": lambda *_: errors.json_answer({"recommendations": []})},
}
