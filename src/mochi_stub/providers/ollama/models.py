"""Names of models on Ollama's API, and the handlers that list, describe, pull, create, copy and
delete models.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias

from mochi_stub.handlers import Generation, Result, Stub
from mochi_stub.http import Headers, HttpResponse, Request
from mochi_stub.json_encoding import JsonObject, go_dumps, quoted, timestamp
from mochi_stub.models import Model, sha256
from mochi_stub.models.scheduler import LoadedModel
from mochi_stub.providers import provider_pipeline as pipeline
from mochi_stub.providers.provider_pipeline import EventEncoder, headers_of, list_models
from mochi_stub.replies.chunks import Piece
from mochi_stub.reply import Failure, HttpError, Part, Reply, Text

JSON = b"application/json; charset=utf-8"
_NAME = re.compile(r"\w[\w.:-]{0,349}/\w[\w-]{0,79}/\w[\w.-]{0,79}:\w[\w.-]{0,79}", re.ASCII)


def json_response(value: object, status: int = 200, headers: Headers = ()) -> HttpResponse:
    body = go_dumps(value).encode()
    return HttpResponse(status, body, JSON, headers)


def error_response(failure: Failure, *_: object, **_details: object) -> HttpResponse:
    body = {"error": failure.message}
    return json_response(body, failure.status, headers_of(failure))


def error_line(failure: Failure) -> bytes:
    line = go_dumps({"error": failure.message})
    return f"{line}\n".encode()


@lru_cache(maxsize=4096)
def full_name(text: str) -> str:
    """Return a model name with default values for missing parts, and without a URL scheme.

    The name may be invalid.
    """
    path, colon, tag = text.rpartition(":")
    if not colon or "/" in tag:
        path = text
        tag = "latest"
    _, _, without_scheme = path.partition("://")
    parts = (without_scheme or path).split("/")
    if len(parts) == 1:
        parts.insert(0, "library")
    if len(parts) == 2:
        parts.insert(0, "registry.ollama.ai")
    path = "/".join(parts)
    return f"{path}:{tag}"


def short_name(name: str) -> str:
    """Return the name that model lists show: without the default host and namespace, but with the
    tag.
    """
    return (
        full_name(name)
        .removeprefix("registry.ollama.ai/library/")
        .removeprefix("registry.ollama.ai/")
    )


def valid_name(text: str, field: str = "") -> str:
    """Return the full name.

    Raises HttpError for an invalid name, with a message that begins with `field`, if set.
    """
    name = full_name(text)
    if _NAME.fullmatch(name):
        return name
    problem = "invalid model name"
    if field:
        problem = f"{field} {quoted(text)} is invalid"
    raise HttpError(400, problem)


def find(models: Iterable[Model], name: str) -> Model | None:
    """Return the model with this full name, or None for an unknown name.

    Names are compared case-insensitively.
    """
    wanted = name.lower()
    for model in models:
        if full_name(model.name).lower() == wanted:
            return model
    return None


def local_model(
    stub: Stub, name: str, if_empty: HttpError | None = None, if_missing: HttpError | None = None
) -> Model:
    """Return the model with this name. Raises HttpError for an empty, unknown or invalid name."""
    if not name:
        raise if_empty or HttpError(400, "model is required")
    model = find(stub.models, valid_name(name))
    if model is None:
        raise if_missing or not_found(name)
    return model


def requested_name(body: JsonObject) -> str:
    """Return the model name from the field `model` or the deprecated field `name`, or "" if both
    are missing.
    """
    return body.get("model") or body.get("name") or ""


def not_found(name: str) -> HttpError:
    return HttpError(404, f"model '{name}' not found")


NEVER = 292 * 365.25 * 24 * 3600
"""Seconds until `expires_at` in `/api/ps` for a model that stays loaded forever."""
PARTS = 4  # number of parts in which the download of a layer is reported
CREATE_FIELDS = ("from", "system", "parameters", "template")
BLOBS = "/usr/share/ollama/.ollama/models/blobs"
Step: TypeAlias = "Mapping[str, Any]"
PULLING_MANIFEST: Step = {"status": "pulling manifest"}
NO_MANIFEST = Failure("pull model manifest: file does not exist")


def tags(stub: Stub, _request: Request) -> Result:
    """List the models (`GET /api/tags`), newest first.

    Models modified in the same second keep the configured order.
    """
    models = sorted(list_models(stub), key=_second_of_change, reverse=True)
    entries = list(map(_list_entry, models))
    return json_response({"models": entries})


def _second_of_change(model: Model) -> str:
    return model.modified_at[:19]


def remote_fields(model: Model) -> dict[str, str]:
    """Return the fields that a cloud model has in lists, in `/api/show` and in its replies."""
    if model.remote is None:
        return {}
    return {"remote_model": model.remote.model, "remote_host": model.remote.host}


def ps(stub: Stub, _request: Request) -> Result:
    """List the loaded models (`GET /api/ps`), latest expiry first."""
    now = stub.scheduler.now()
    entries = []
    for loaded in stub.scheduler.loaded_models():
        entry = _loaded_entry(loaded, now)
        entries.append(entry)
    return json_response({"models": entries})


def _loaded_entry(loaded: LoadedModel, now: float) -> JsonObject:
    model = loaded.model
    name = short_name(model.name)
    expires_at = min(loaded.expires_at(now), now + NEVER)
    return {
        "name": name,
        "model": name,
        "size": model.size,
        "digest": model.digest,
        "details": _details(model, model.quantization),
        "expires_at": timestamp(int(expires_at * 1e9)),
        "size_vram": model.size,
        "context_length": loaded.settings.context,
    }


def _list_entry(model: Model) -> JsonObject:
    # Ollama lists models without reading the pooling and the chat template of the GGUF file. So it
    # lists `completion` alone, for embedding models and for those of the template style `native`.
    name = short_name(model.name)
    quantization = model.listed_quantization or model.quantization
    details = _details(model, quantization)
    if model.context_length:
        details["context_length"] = model.context_length
    if model.embedding_length:
        details["embedding_length"] = model.embedding_length
    capabilities: tuple[str, ...] = ("completion",)
    if model.has_capability("completion") and model.template_style != "native":
        capabilities = model.capabilities
    return {
        "name": name,
        "model": name,
        **remote_fields(model),
        "modified_at": model.modified_at,
        "size": model.size,
        "digest": model.digest,
        "details": details,
        "capabilities": capabilities,
    }


def show(stub: Stub, _request: Request, body: JsonObject) -> Result:
    """Handle `POST /api/show`.

    If the field `verbose` is false, null replaces the arrays in `model_info`.
    """
    name = requested_name(body)
    missing = not_found(short_name(name))
    model = local_model(stub, name, if_missing=missing)
    is_verbose = body.get("verbose", False)
    return json_response(_model_object(model, verbose=is_verbose))


def _details(model: Model, quantization: str) -> JsonObject:
    return {
        "parent_model": model.parent,
        "format": model.format,
        "family": model.family,
        "families": [model.family],
        "parameter_size": model.parameter_size,
        "quantization_level": quantization,
    }


def _model_object(model: Model, *, verbose: bool) -> JsonObject:
    parameters = []
    for name, value in _parameters(model):
        text = quoted(value) if isinstance(value, str) else go_dumps(value)
        parameters.append(f"{name:<30} {text}")
    fields = {
        "license": model.license,
        "modelfile": _modelfile(model),
        "parameters": "\n".join(parameters),
        "template": model.rendered_template,
        "system": model.system,
        "details": _details(model, model.quantization),
        **remote_fields(model),
        "model_info": _info(model, verbose=verbose),
        "tensors": model.tensors,
        "capabilities": model.capabilities,
        "modified_at": model.modified_at,
    }
    shown = {}
    for name, value in fields.items():
        if value or name in ("model_info", "capabilities", "modified_at"):
            shown[name] = value
    return shown


def _info(model: Model, *, verbose: bool) -> JsonObject:
    info = dict(model.model_info)
    if verbose:
        return info
    for name, value in info.items():
        if isinstance(value, (list, tuple)):
            info[name] = None
    return info


def _modelfile(model: Model) -> str:
    lines = [
        '# Modelfile generated by "ollama show"',
        "# To build a new Modelfile based on this, replace FROM with:",
        f"# FROM {short_name(model.name)}",
        "",
        f"FROM {BLOBS}/sha256-{model.blob_digest}",
        f"TEMPLATE {_quoted(model.modelfile_template)}",
    ]
    if model.system:
        lines.append(f"SYSTEM {_quoted(model.system)}")
    for name, value in _parameters(model):
        text = value
        if not isinstance(value, str):
            text = go_dumps(value)
        lines.append(f"PARAMETER {name} {_quoted(text)}")
    if model.license:
        lines.append(f"LICENSE {_quoted(model.license)}")
    text = "\n".join(lines)
    return f"{text}\n"


def _parameters(model: Model) -> list[tuple[str, Any]]:
    """Return the parameters of a model. A parameter with several values has several entries."""
    pairs: list[tuple[str, Any]] = []
    for name, value in model.parameters.items():
        if isinstance(value, (list, tuple)):
            pairs += [(name, item) for item in value]
        else:
            pairs.append((name, value))
    return pairs


def _quoted(value: str) -> str:
    if "\n" not in value and value == value.strip(" "):
        return value
    if '"' in value:
        return f'"""{value}"""'
    return f'"{value}"'


class ProgressLines(EventEncoder):
    """Encoder of progress steps as lines.

    `finish` is called after the last step, unless a step fails or the client disconnects. Either
    `end` or `complete_response` calls it, once.
    """

    content_type = b"application/x-ndjson"

    def __init__(self, finish: Callable[[], None]) -> None:
        self.finish = finish

    def piece(self, piece: Piece) -> str:
        return str(piece.value)

    def end(self) -> bytes:
        return self.complete_response().body + b"\n"

    def error(self, failure: Failure) -> bytes:
        return error_line(failure)

    def complete_response(self) -> HttpResponse:
        self.finish()
        return HttpResponse(200, b'{"status":"success"}', pipeline.JSON)


def progress(
    body: JsonObject,
    steps: Sequence[Step],
    failure: Failure | None = None,
    finish: Callable[[], None] = lambda: None,
) -> Generation:
    """Return a response that sends `steps` as lines, and then either sends `failure`, or calls
    `finish` and sends `success`.
    """
    parts: list[Part] = []
    if steps:
        lines = [f"{go_dumps(step)}\n" for step in steps]
        parts.append(Text(lines))
    if failure:
        parts.append(failure)
    return Generation(
        reply=Reply(parts),
        encoder=ProgressLines(finish),
        stream=body.get("stream", True),
        error_content_type=pipeline.JSON,
    )


def layers(model: Model) -> list[tuple[str, int]]:
    """Return the digest and the size in bytes of each layer, weights first."""
    texts = {
        "template": model.template,
        "license": model.license,
        "system": model.system,
    }
    if model.parameters:
        texts["params"] = go_dumps(dict(model.parameters))
    found = [(model.blob_digest, model.size)]
    for kind, text in texts.items():
        if text:
            layer = f"{kind} {text}".encode()
            digest = sha256(layer)
            found.append((digest, len(layer)))
    return found


def store(stub: Stub, model: Model, name: str) -> None:
    """Store a model under a name. It keeps its replies, and replaces a model that has this name."""
    existing = find(stub.models, name)
    if existing:
        stub.registry.remove(existing)
    source = model.source or model.name
    renamed = replace(model, name=short_name(name), source=source)
    stub.registry.add(renamed)


def stored_digests(stub: Stub) -> set[str]:
    """Return the digests of the layers of all models."""
    digests: set[str] = set()
    for model in stub.models:
        for digest, _ in layers(model):
            digests.add(digest)
    return digests


def pull(stub: Stub, _request: Request, body: JsonObject) -> Result:
    name = valid_name(requested_name(body))
    model = find(stub.models, name) or find(stub.registry.declared, name)
    if model is None:
        return progress(body, [PULLING_MANIFEST], NO_MANIFEST)
    steps = [PULLING_MANIFEST]
    stored = stored_digests(stub)
    for digest, size in layers(model):
        steps += _download_steps(digest, size, is_stored=digest in stored)
    steps.append({"status": "verifying sha256 digest"})
    steps.append({"status": "writing manifest"})
    return progress(body, steps, finish=lambda: stub.registry.add(model))


def _download_steps(digest: str, size: int, *, is_stored: bool) -> list[Step]:
    """Return the steps of the download of a layer. A stored layer is complete in one step."""
    counts = [size * part // PARTS for part in range(PARTS + 1)]
    if is_stored:
        counts = [size]
    steps: list[Step] = []
    for count in counts:
        step = {"status": f"pulling {digest[:12]}", "digest": f"sha256:{digest}", "total": size}
        if count:
            step["completed"] = count
        steps.append(step)
    return steps


def create(stub: Stub, request: Request, body: JsonObject) -> Result:
    """Handle `POST /api/create`: create a model from another model.

    Capabilities are those of the other model.
    """
    name = valid_name(requested_name(body))
    _check_create_fields(body)
    if not body.get("from"):
        return progress(body, [], Failure("neither 'from' or 'files' was specified", 400))
    source = find(stub.models, valid_name(body["from"]))
    if source is None:
        return progress(body, [PULLING_MANIFEST], NO_MANIFEST)
    created_at = stub.seeded_ids(request.body).start
    model = _created_model(source, body, created_at)
    stored = stored_digests(stub)
    steps: list[Step] = []
    for digest, _ in layers(model):
        action = "creating new"
        if digest in stored:
            action = "using existing"
        steps.append({"status": f"{action} layer sha256:{digest}"})
    steps.append({"status": "writing manifest"})
    return progress(body, steps, finish=lambda: store(stub, model, name))


def _created_model(source: Model, body: JsonObject, created_at: int) -> Model:
    """Return the model that a request describes. `created_at` is in nanoseconds since 1970."""
    requested = body.get("parameters", {})
    model = replace(
        source,
        weights=source.blob_digest,
        parent=short_name(source.name),
        system=body.get("system") or source.system,
        template=body.get("template") or source.template,
        parameters={**source.parameters, **requested},
        modified_at=timestamp(created_at),
    )
    digests = [digest for digest, _ in layers(model)]
    manifest = " ".join(digests).encode()
    return replace(model, manifest=sha256(manifest))


def _check_create_fields(body: JsonObject) -> None:
    """Raise HttpError for the fields that the stub does not support."""
    known = {"model", "name", "stream", *CREATE_FIELDS}
    refused = sorted(body.keys() - known)
    if not refused:
        return
    supported = ", ".join(CREATE_FIELDS)
    fields = ", ".join(refused)
    raise HttpError(400, f"mochi-stub creates models only with {supported}; remove {fields}")


def copy(stub: Stub, _request: Request, body: JsonObject) -> Result:
    """Handle `POST /api/copy`: store a model under a second name."""
    name = body.get("source", "")
    source = valid_name(name, "source")
    destination = valid_name(body.get("destination", ""), "destination")
    model = find(stub.models, source)
    if model is None:
        raise HttpError(404, f"model {quoted(name)} not found")
    copied = replace(model, weights=model.blob_digest, manifest=model.digest)
    store(stub, copied, destination)
    return HttpResponse(200)


def delete(stub: Stub, _request: Request, body: JsonObject) -> Result:
    name = requested_name(body)
    if not name:
        raise HttpError(400, "model is required")
    model = find(stub.models, valid_name(name, "name"))
    if model is None:
        raise not_found(name)
    stub.registry.remove(model)
    return HttpResponse(200)
