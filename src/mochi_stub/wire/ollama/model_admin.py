"""Handlers of `/api/pull`, `push`, `copy`, `delete` and `blobs`. The layers of models contain no data.

The stub contacts no registry. Clients can pull only models that are stored or declared (see `ModelRegistry`).
For any other model, the stub sends Ollama's error for an unknown model or for an unreachable registry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mochi_stub.http.http_result import HttpResponse, Request, Result, Stub
from mochi_stub.models.catalogue import sha256
from mochi_stub.models.gguf_file import GgufError, read_gguf
from mochi_stub.reply import Failure, HttpError
from mochi_stub.wire.ollama.errors import model_required, not_found, requested_name, valid_name
from mochi_stub.wire.ollama.go_json import quoted
from mochi_stub.wire.ollama.model_names import Name, find, is_valid, split_name
from mochi_stub.wire.ollama.model_store import MODELS, Step, hexadecimal, layers, progress, store, stored_digests

REGISTRY = "registry.ollama.ai"
PARTS = 4
"""Number of parts in which the download of a layer is reported."""
PUSH_DENIED = "you are not authorized to push to this namespace, create the model under a namespace you own"
OK = HttpResponse(200)
_ADDRESS = re.compile(r"(?:\d+\.){3}\d+|localhost")


def pull(stub: Stub, _request: Request, body: dict[str, Any]) -> Result:
    scheme, text = _scheme_and_name(body)
    name = valid_name(text)
    steps: list[Step] = [{"status": "pulling manifest"}]
    if name.host != REGISTRY:
        return progress(body, steps, Failure(_connection_error(scheme, name, body.get("insecure", False))))
    model = find(stub.models, name) or find(stub.registry.declared, name)
    if model is None:
        return progress(body, steps, Failure("pull model manifest: file does not exist"))
    stored = stored_digests(stub)
    for digest, size in layers(model):
        completed = (size,) if digest in stored else tuple(size * part // PARTS for part in range(PARTS + 1))
        steps += _transfer_steps(f"pulling {digest[:12]}", digest, size, completed)
    steps += [{"status": "verifying sha256 digest"}, {"status": "writing manifest"}]
    return progress(body, steps, finish=lambda: stub.registry.add(model))


def push(stub: Stub, _request: Request, body: dict[str, Any]) -> Result:
    if not requested_name(body):
        raise model_required()
    name = split_name(_scheme_and_name(body)[1])
    steps: list[Step] = [{"status": "retrieving manifest"}]
    model = find(stub.models, name) if is_valid(name) else None
    if model is None:
        steps.append({"status": "couldn't retrieve manifest"})
        path = f"{MODELS}/manifests/{name.host}/{name.namespace}/{name.model}/{name.tag}"
        missing = f"open {path}: no such file or directory"
        return progress(body, steps, Failure(missing if is_valid(name) else f"unqualified name: {name.full}"))
    if name.namespace == "library":
        return progress(body, steps, Failure(PUSH_DENIED))
    for digest, size in layers(model):
        steps += _transfer_steps(f"pushing {digest[:12]}", digest, size, (0, size))
    return progress(body, [*steps, {"status": "pushing manifest"}])


def _scheme_and_name(body: Mapping[str, Any]) -> tuple[str, str]:
    """Split the requested name into its URL scheme (default: https) and the rest."""
    scheme, separator, rest = requested_name(body).partition("://")
    return (scheme, rest) if separator else ("https", scheme)


def _transfer_steps(status: str, digest: str, size: int, byte_counts: tuple[int, ...]) -> list[Step]:
    """Return a progress step for each byte count. If the count is 0, the step has no field `completed`."""
    step = {"status": status, "digest": f"sha256:{digest}", "total": size}
    return [{**step, "completed": count} if count else step for count in byte_counts]


def _connection_error(scheme: str, name: Name, insecure: bool) -> str:
    if scheme == "http" and not insecure:
        return "pull model manifest: insecure protocol http"
    url = f"{scheme}://{name.host}/v2/{name.namespace}/{name.model}/manifests/{name.tag}"
    host, _, port = name.host.partition(":")
    problem = f"dial tcp: lookup {host}: no such host"
    if _ADDRESS.fullmatch(host):
        problem = f"dial tcp {host}:{port or (80 if scheme == 'http' else 443)}: connect: connection refused"
    return f"pull model manifest: Get {quoted(url)}: {problem}"


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


def send_blob(stub: Stub, request: Request) -> Result:
    """Handle `POST /api/blobs/:digest`: store a blob. Status 201 means that the blob is new."""
    expected = hexadecimal(request.path.rpartition("/")[2])
    if expected in stored_digests(stub):
        return OK
    actual = sha256(request.body)
    if actual != expected:
        raise HttpError(400, f'digest mismatch, expected "sha256:{expected}", got "sha256:{actual}"')
    try:
        stub.registry.blobs[actual] = read_gguf(request.body)
    except GgufError as error:  # sent when a model is created from the blob
        stub.registry.blobs[actual] = str(error)
    return HttpResponse(201)


def find_blob(stub: Stub, request: Request) -> Result:
    digest = hexadecimal(request.path.rpartition("/")[2])
    if digest not in stored_digests(stub):
        raise HttpError(404, f"blob {quoted(f'sha256:{digest}')} not found")
    return HttpResponse(200, declared=False)
