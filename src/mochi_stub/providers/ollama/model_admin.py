"""Handlers of `/api/pull`, `create`, `copy` and `delete`.

The stub contacts no registry. Clients can pull only models that are stored or declared (see `ModelRegistry`).
For any other model, the stub sends Ollama's error for an unknown model or for an unreachable registry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mochi_stub.http.http_result import HttpResponse, Request, Result, Stub
from mochi_stub.models.catalogue import Model, sha256
from mochi_stub.providers.ollama.errors import model_required, not_found, requested_name, valid_name
from mochi_stub.providers.ollama.go_json import quoted, timestamp
from mochi_stub.providers.ollama.model_names import Name, find, short_name
from mochi_stub.providers.ollama.model_store import Step, layers, progress, store, stored_digests
from mochi_stub.providers.ollama.request_schema import effective_options
from mochi_stub.reply import Failure, HttpError

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
