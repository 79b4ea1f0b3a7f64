"""Handlers of `/api/pull`, `create`, `copy` and `delete`, and their progress lines.

The stub contacts no registry. Clients can pull only models that are stored or declared (see `ModelRegistry`).
For any other model, the stub sends Ollama's error for an unknown model or for an unreachable registry.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mochi_stub.handlers import Generation, Result, Stub
from mochi_stub.http.messages import HttpResponse, Request
from mochi_stub.json_encoding import go_dumps, quoted, timestamp
from mochi_stub.models.catalogue import Model, sha256
from mochi_stub.providers.ollama.model_names import (
    Name,
    find,
    model_required,
    not_found,
    requested_name,
    short_name,
    valid_name,
)
from mochi_stub.providers.ollama.request_schema import effective_options
from mochi_stub.providers.provider_pipeline import JSON
from mochi_stub.replies.chunks import Piece
from mochi_stub.reply import Failure, HttpError, Part, Reply, Text

MODELS = "/usr/share/ollama/.ollama/models"

Step = Mapping[str, Any]


class ProgressLines:
    """Encoder of progress steps as lines. `finish` is called after the last step, unless the client disconnects."""

    content_type = b"application/x-ndjson"

    def __init__(self, finish: Callable[[], None]) -> None:
        self.finish = finish

    def chunk(self, pieces: list[Piece]) -> bytes:
        return "".join([piece.value for piece in pieces]).encode()

    def end(self) -> bytes:
        return self.complete_response().body + b"\n"

    def error(self, failure: Failure) -> bytes:
        return f"{go_dumps({'error': failure.message})}\n".encode()

    def complete_response(self) -> HttpResponse:
        self.finish()
        return HttpResponse(200, b'{"status":"success"}', JSON)


def progress(
    body: Mapping[str, Any],
    steps: Sequence[Step],
    failure: Failure | None = None,
    finish: Callable[[], None] = lambda: None,
) -> Generation:
    """Return a response that sends `steps` as progress lines and then the error `failure`.

    If `failure` is None, `finish` is called after the steps, and the response ends with the status `success`.
    """
    parts: list[Part] = [Text([f"{go_dumps(step)}\n" for step in steps])] if steps else []
    parts += [failure] if failure else []
    return Generation(Reply(parts), ProgressLines(finish), body.get("stream", True), error_content_type=JSON)


def layers(model: Model) -> list[tuple[str, int]]:
    """Return the digest and the size in bytes of each layer, weights first."""
    texts = {
        "template": model.template,
        "license": model.license,
        "system": model.system,
        "params": go_dumps(dict(model.parameters)) if model.parameters else "",
    }
    encoded = [f"{kind} {text}".encode() for kind, text in texts.items() if text]
    return [(model.blob_digest, model.size), *((sha256(text), len(text)) for text in encoded)]


def store(stub: Stub, model: Model, name: Name) -> None:
    """Store a model under a name. A model that has this name is replaced."""
    if existing := find(stub.models, name):
        stub.registry.remove(existing)
    stub.registry.add(replace(model, name=name.short))


def stored_digests(stub: Stub) -> set[str]:
    """Return the digests of the layers of all models."""
    return {digest for model in stub.models for digest, _ in layers(model)}


def blob_path(digest: str) -> str:
    """Return the path at which a real Ollama server stores a blob."""
    return f"{MODELS}/blobs/sha256-{digest}"


REGISTRY = "registry.ollama.ai"
PARTS = 4
"""Number of parts in which the download of a layer is reported."""
OK = HttpResponse(200)
CREATE_FIELDS = ("from", "system", "parameters", "template")
NO_FILES = "mochi-stub stores no files and pushes no models"
_ADDRESS = re.compile(r"(?:\d+\.){3}\d+|localhost")


def pull(stub: Stub, _request: Request, body: dict[str, Any]) -> Result:
    scheme, separator, text = requested_name(body).partition("://")
    scheme, text = (scheme, text) if separator else ("https", scheme)
    name = valid_name(text)
    steps: list[Step] = [{"status": "pulling manifest"}]
    if name.host != REGISTRY:
        return progress(body, steps, Failure(_connection_error(scheme, name, body.get("insecure", False))))
    model = find(stub.models, name) or find(stub.registry.declared, name)
    if model is None:
        return progress(body, steps, Failure("pull model manifest: file does not exist"))
    stored = stored_digests(stub)
    for digest, size in layers(model):
        step = {"status": f"pulling {digest[:12]}", "digest": f"sha256:{digest}", "total": size}
        completed = (size,) if digest in stored else tuple(size * part // PARTS for part in range(PARTS + 1))
        steps += [{**step, "completed": count} if count else step for count in completed]
    steps += [{"status": "verifying sha256 digest"}, {"status": "writing manifest"}]
    return progress(body, steps, finish=lambda: stub.registry.add(model))


def _connection_error(scheme: str, name: Name, insecure: bool) -> str:
    if scheme == "http" and not insecure:
        return "pull model manifest: insecure protocol http"
    url = f"{scheme}://{name.host}/v2/{name.namespace}/{name.model}/manifests/{name.tag}"
    host, _, port = name.host.partition(":")
    problem = f"dial tcp: lookup {host}: no such host"
    if _ADDRESS.fullmatch(host):
        problem = f"dial tcp {host}:{port or (80 if scheme == 'http' else 443)}: connect: connection refused"
    return f"pull model manifest: Get {quoted(url)}: {problem}"


def create(stub: Stub, request: Request, body: dict[str, Any]) -> Result:
    """Handle `POST /api/create`: create a model from another model. Capabilities are those of the other model."""
    name = valid_name(requested_name(body))
    if refused := sorted(body.keys() - {"model", "name", "stream", *CREATE_FIELDS}):
        message = f"mochi-stub creates models only with {', '.join(CREATE_FIELDS)}; remove {', '.join(refused)}"
        raise HttpError(400, message)
    if not body.get("from"):
        return progress(body, [], Failure("neither 'from' or 'files' was specified", 400))
    source = find(stub.models, valid_name(body["from"]))
    if source is None:
        return progress(body, [{"status": "pulling manifest"}], Failure("pull model manifest: file does not exist"))
    stored = stored_digests(stub)
    model = replace(_created(source, body), modified_at=timestamp(stub.seeded_ids(request.body).start))
    kinds = {True: "using existing", False: "creating new"}
    steps: list[Step] = [{"status": f"{kinds[digest in stored]} layer sha256:{digest}"} for digest, _ in layers(model)]
    return progress(body, [*steps, {"status": "writing manifest"}], finish=lambda: store(stub, model, name))


def _created(source: Model, body: Mapping[str, Any]) -> Model:
    """Return the model that a request describes. Raises HttpError for parameters of a wrong type."""
    effective_options(Model(""), body.get("parameters", {}))  # checks the types
    model = replace(
        source,
        weights=source.blob_digest,
        parent=short_name(source),
        system=body.get("system") or source.system,
        template=body.get("template") or source.template,
        parameters={**source.parameters, **body.get("parameters", {})},
    )
    return replace(model, manifest=sha256(" ".join(digest for digest, _ in layers(model)).encode()))


def copy(stub: Stub, _request: Request, body: dict[str, Any]) -> Result:
    """Handle `POST /api/copy`: store a model under a second name."""
    source, destination = (valid_name(body.get(field, ""), field) for field in ("source", "destination"))
    model = find(stub.models, source)
    if model is None:
        raise HttpError(404, f"model {quoted(body['source'])} not found")
    store(stub, replace(model, weights=model.blob_digest, manifest=model.digest), destination)
    return OK


def delete(stub: Stub, _request: Request, body: dict[str, Any]) -> Result:
    name = requested_name(body)
    if not name:
        raise model_required()
    model = find(stub.models, valid_name(name, "name"))
    if model is None:
        raise not_found(name)
    stub.registry.remove(model)
    return OK
