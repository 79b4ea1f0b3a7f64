"""Ollama's API with the bytes of the real server: routes, and the handlers that list and describe models."""

from __future__ import annotations

from typing import Any

from mochi_stub.handlers import ANY, Handler, Result, Routes, Stub
from mochi_stub.http import HttpResponse, Request
from mochi_stub.json_encoding import go_dumps, quoted, timestamp
from mochi_stub.models import Model
from mochi_stub.providers.ollama import models as management
from mochi_stub.providers.ollama import request_schema as schema
from mochi_stub.providers.ollama.generation import chat, embed, embeddings, generate
from mochi_stub.providers.ollama.models import (
    blob_path,
    local_model,
    no_remote_details,
    not_found,
    parse_name,
    requested_name,
    routed,
    short_name,
)
from mochi_stub.providers.ollama.request_schema import checked
from mochi_stub.providers.ollama.response_encoding import json_response
from mochi_stub.providers.provider_pipeline import list_models

NEVER = 292 * 365.25 * 24 * 3600
"""Seconds until `expires_at` in `/api/ps` for a model that stays loaded forever."""


def tags(stub: Stub, _request: Request) -> Result:
    """List the models (`GET /api/tags`), newest first. Models modified in the same second keep the configured order."""
    ordered = sorted(list_models(stub.models), key=lambda model: model.modified_at[:19], reverse=True)
    return json_response({"models": [_list_entry(model) for model in ordered]})


def ps(stub: Stub, _request: Request) -> Result:
    """List the loaded models (`GET /api/ps`), latest expiry first."""
    now = stub.scheduler.now()
    models = [
        {
            "name": short_name(loaded.model),
            "model": short_name(loaded.model),
            "size": loaded.model.size,
            "digest": loaded.model.digest,
            "details": _details(loaded.model, loaded.model.quantization),
            "expires_at": timestamp(int(min(loaded.expires_at(now), now + NEVER) * 1e9)),
            "size_vram": loaded.model.size,
            "context_length": loaded.settings.context,
        }
        for loaded in stub.scheduler.loaded()
    ]
    return json_response({"models": models})


def _list_entry(model: Model) -> dict[str, Any]:
    # Ollama lists models without their pooling and chat template, so it reports embedding models as chat models.
    name = short_name(model)
    remote = {"remote_model": model.remote.model, "remote_host": model.remote.host} if model.remote else {}
    lengths = {"context_length": model.context_length, "embedding_length": model.embedding_length}
    has_listed_capabilities = model.has_capability("completion") and model.template_style != "native"
    return {
        "name": name,
        "model": name,
        **remote,
        "modified_at": model.modified_at,
        "size": model.size,
        "digest": model.digest,
        "details": {
            **_details(model, model.listed_quantization or model.quantization),
            **{key: value for key, value in lengths.items() if value},
        },
        "capabilities": model.capabilities if has_listed_capabilities else ("completion",),
    }


def show(stub: Stub, _request: Request, body: dict[str, Any]) -> Result:
    """Handle `POST /api/show`. If the field `verbose` is false, null replaces the arrays in `model_info`."""
    name = requested_name(body)
    base_name, location = routed(name)
    if location == "cloud":
        raise no_remote_details()
    parsed = parse_name(base_name)
    model = local_model(stub, name, error_if_missing=not_found(parsed.short) if parsed else None)
    if model.remote:
        raise no_remote_details()
    return json_response(_model_object(model, verbose=body.get("verbose", False)))


def _details(model: Model, quantization: str) -> dict[str, Any]:
    return {
        "parent_model": model.parent,
        "format": model.format,
        "family": model.family,
        "families": [model.family],
        "parameter_size": model.parameter_size,
        "quantization_level": quantization,
    }


def _model_object(model: Model, *, verbose: bool) -> dict[str, Any]:
    parameters = ((name, quoted(value) if isinstance(value, str) else go_dumps(value)) for name, value in _pairs(model))
    info = {
        name: None if isinstance(value, (list, tuple)) and not verbose else value
        for name, value in model.model_info.items()
    }
    fields = {
        "license": model.license,
        "modelfile": _modelfile(model),
        "parameters": "\n".join(f"{name:<30} {value}" for name, value in parameters),
        "template": model.rendered_template,
        "system": model.system,
        "details": _details(model, model.quantization),
        "model_info": info,
        "tensors": model.tensors,
        "capabilities": model.capabilities,
        "modified_at": model.modified_at,
    }
    required = ("model_info", "capabilities", "modified_at")
    return {name: value for name, value in fields.items() if value or name in required}


def _modelfile(model: Model) -> str:
    lines = [
        '# Modelfile generated by "ollama show"',
        "# To build a new Modelfile based on this, replace FROM with:",
        f"# FROM {short_name(model)}",
        "",
        f"FROM {blob_path(model.blob_digest)}",
        f"TEMPLATE {_quoted(model.modelfile_template)}",
        *([f"SYSTEM {_quoted(model.system)}"] if model.system else []),
        *(
            f"PARAMETER {name} {_quoted(value if isinstance(value, str) else go_dumps(value))}"
            for name, value in _pairs(model)
        ),
        *([f"LICENSE {_quoted(model.license)}"] if model.license else []),
    ]
    return "\n".join(lines) + "\n"


def _pairs(model: Model) -> list[tuple[str, Any]]:
    """Return the parameters of the Modelfile as pairs of name and value, with a pair for each stop sequence."""
    values = {name: value if isinstance(value, (list, tuple)) else [value] for name, value in model.parameters.items()}
    return [(name, item) for name, items in values.items() for item in items]


def _quoted(value: str) -> str:
    if "\n" not in value and value == value.strip(" "):
        return value
    return f'"""{value}"""' if '"' in value else f'"{value}"'


VERSION = "0.33.0"
NO_CLOUD = {"cloud": {"disabled": True, "source": "env"}}
NO_WEB = "ollama cloud is disabled:"


def _always(answer: HttpResponse) -> Handler:
    return lambda *_: answer


def _error(status: int, message: str) -> Handler:
    return _always(json_response({"error": message}, status))


def _get_and_head(handler: Handler) -> dict[str, Handler]:
    return {"HEAD": handler, "GET": handler}


_SIGN_OUT = _error(500, "there was an error signing out")
ROUTES: Routes = {
    "/": _get_and_head(_always(HttpResponse(200, b"Ollama is running", b"text/plain; charset=utf-8"))),
    "/api/version": _get_and_head(_always(json_response({"version": VERSION}))),
    "/api/status": {"GET": _always(json_response(NO_CLOUD))},
    "/api/tags": _get_and_head(tags),
    "/api/ps": {"GET": ps},
    "/api/show": {"POST": checked("ShowRequest", schema.SHOW, show)},
    "/api/chat": {"POST": checked("ChatRequest", schema.CHAT, chat)},
    "/api/generate": {"POST": checked("GenerateRequest", schema.GENERATE, generate)},
    "/api/embed": {"POST": checked("EmbedRequest", schema.EMBED, embed)},
    "/api/embeddings": {"POST": checked("EmbeddingRequest", schema.EMBEDDINGS, embeddings)},
    "/api/pull": {"POST": checked("PullRequest", schema.PULL, management.pull)},
    "/api/push": {"POST": _error(400, management.NO_FILES)},
    "/api/create": {"POST": checked("CreateRequest", schema.create_fields, management.create)},
    "/api/copy": {"POST": checked("CopyRequest", schema.COPY, management.copy)},
    "/api/delete": {"DELETE": checked("DeleteRequest", schema.DELETE, management.delete)},
    "/api/blobs/*": {ANY: _error(400, management.NO_FILES)},
    "/api/me": {"POST": _error(503, "account unavailable")},
    "/api/signout": {"POST": _SIGN_OUT},
    "/api/user/keys/*": {"DELETE": _SIGN_OUT},
    "/api/experimental/web_search": {"POST": _error(403, f"{NO_WEB} web search is unavailable")},
    "/api/experimental/web_fetch": {"POST": _error(403, f"{NO_WEB} web fetch is unavailable")},
    "/api/experimental/model-recommendations": {"GET": _always(json_response({"recommendations": []}))},
}
