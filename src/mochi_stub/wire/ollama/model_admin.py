"""Handlers of `/api/create`, `pull`, `push`, `copy`, `delete` and `blobs`. Layers exist only as digests and sizes.

The stub contacts no registry. Only the models of its configuration can be pulled. Other names result in the errors
that Ollama returns for unknown models and for unreachable registries.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mochi_stub.http.http_result import Generation, HttpResponse, Request, Result, Stub
from mochi_stub.models.catalogue import PLAIN_TEMPLATE, Model
from mochi_stub.replies.chunks import Piece
from mochi_stub.reply import Failure, Part, Reply, Text
from mochi_stub.wire.ollama.errors import invalid_name, model_required, not_found
from mochi_stub.wire.ollama.go_json import dumps, quoted, timestamp
from mochi_stub.wire.ollama.go_syntax import BOOL, STRING, anything, mapping, read_body
from mochi_stub.wire.ollama.model_names import Name, find, parse_name, short_name
from mochi_stub.wire.ollama.request_schema import effective_options
from mochi_stub.wire.provider_pipeline import JSON, HttpError

BLOBS = "/usr/share/ollama/.ollama/models/blobs"
REGISTRY = "registry.ollama.ai"
PARTS = 4
"""Number of parts in which the download of a layer is reported."""
PUSH_DENIED = "you are not authorized to push to this namespace, create the model under a namespace you own"
OK = HttpResponse(200)
_TRANSFER = {"model": STRING, "name": STRING, "insecure": BOOL, "stream": BOOL, "username": STRING, "password": STRING}
_CREATE = {
    **{"model": STRING, "name": STRING, "from": STRING, "files": mapping, "stream": BOOL},
    **{"template": STRING, "system": STRING, "license": anything, "parameters": mapping},
}
_ADDRESS = re.compile(r"(?:\d+\.){3}\d+|localhost")
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")

Step = Mapping[str, Any]


class ProgressLines:
    """Encoder of progress steps as lines. `finish` is called after the last step, unless the client disconnects."""

    content_type = b"application/x-ndjson"

    def __init__(self, finish: Callable[[], None]) -> None:
        self.finish = finish

    def chunk(self, pieces: list[Piece]) -> bytes:
        return "".join([piece.value for piece in pieces]).encode()

    def end(self) -> bytes:
        return self.whole().body + b"\n"

    def error(self, failure: Failure) -> bytes:
        return f"{dumps({'error': failure.message})}\n".encode()

    def refusal(self, failure: Failure, *, stream: bool) -> HttpResponse:
        return HttpResponse(failure.status, self.error(failure).rstrip(), JSON, declared=not stream)

    def whole(self) -> HttpResponse:
        self.finish()
        return HttpResponse(200, b'{"status":"success"}', JSON)


def create(stub: Stub, request: Request) -> Result:
    """Handle `POST /api/create`: create a model from another model or from uploaded blobs."""
    body = read_body(request.body, "CreateRequest", _CREATE)
    name = _parse_valid_name(_requested_name(body))
    try:
        _validate(body)
    except HttpError as error:
        return _progress(body, [], replace(error.failure, status=400))
    modified_at = timestamp(stub.seeded_ids(request.body).start)
    if not body.get("from"):
        return _create_from_files(stub, body, name, modified_at)
    source = find(stub.models, _parse_valid_name(body["from"]))
    if source is None:
        missing = Failure("pull model manifest: file does not exist")
        return _progress(body, [{"status": "pulling manifest"}], missing)
    origin = replace(source, weights=source.blob_digest, parent=short_name(source), info=source.model_info)
    return _create_model(stub, body, [], _derived_model(origin, body, name, modified_at), name)


def _validate(body: Mapping[str, Any]) -> None:
    if not body.get("from") and not body.get("files"):
        raise HttpError(400, "neither 'from' or 'files' was specified")
    if not isinstance(body.get("license", ""), (str, list)):
        raise HttpError(400, "license must be a string or an array of strings")
    effective_options(Model(""), body.get("parameters", {}))
    template = body.get("template", "")
    opened = template.rfind("{{")
    if opened > template.rfind("}}"):
        line = template.count("\n", 0, opened) + 1
        raise HttpError(400, f"template error: template: :{line}: unclosed action")


def _create_from_files(stub: Stub, body: Mapping[str, Any], name: Name, modified_at: str) -> Generation:
    steps: list[Step] = [{"status": "parsing GGUF"}]
    digests = []
    for digest in body["files"].values():
        digests.append(_hexadecimal(str(digest)))
        if digests[-1] not in _stored_digests(stub):
            return _progress(body, steps, Failure(f"open {BLOBS}/sha256-{digests[-1]}: no such file or directory"))
    steps.append({"status": "validating GGUF model", "digest": "0" * 19})
    steps.append({"status": "verifying conversion"})
    model = _derived_model(Model(name.short, weights=digests[0]), body, name, modified_at)
    return _create_model(stub, body, steps, model, name)


def _create_model(stub: Stub, body: Mapping[str, Any], steps: list[Step], model: Model, name: Name) -> Generation:
    stored = _stored_digests(stub)
    digests = [digest for digest, _ in _layers(model)]
    for digest in digests:
        kind = "using existing" if digest in stored else "creating new"
        steps.append({"status": f"{kind} layer sha256:{digest}"})

    def finish() -> None:
        stub.registry.blobs.update(digests)
        _store(stub, model, name)

    return _progress(body, [*steps, {"status": "writing manifest"}], finish=finish)


def _derived_model(origin: Model, body: Mapping[str, Any], name: Name, modified_at: str) -> Model:
    license_ = body.get("license") or origin.license
    changed = replace(
        origin,
        name=name.short,
        modified_at=modified_at,
        template=body.get("template") or origin.template,
        system=body.get("system") or origin.system,
        license=license_ if isinstance(license_, str) else "\n".join(map(str, license_)),
        parameters={**origin.parameters, **body.get("parameters", {})},
    )
    return replace(changed, manifest=_sha256(" ".join(digest for digest, _ in _layers(changed)).encode()))


def pull(stub: Stub, request: Request) -> Result:
    body = read_body(request.body, "PullRequest", _TRANSFER)
    scheme, text = _scheme_and_name(body)
    name = _parse_valid_name(text)
    steps: list[Step] = [{"status": "pulling manifest"}]
    if name.host != REGISTRY:
        return _progress(body, steps, Failure(_connection_error(scheme, name, body.get("insecure", False))))
    model = find(stub.models, name) or find(stub.registry.declared, name)
    if model is None:
        return _progress(body, steps, Failure("pull model manifest: file does not exist"))
    stored = _stored_digests(stub)
    for digest, size in _layers(model):
        completed = (size,) if digest in stored else tuple(size * part // PARTS for part in range(PARTS + 1))
        steps += _transfer_steps(f"pulling {digest[:12]}", digest, size, completed)
    steps += [{"status": "verifying sha256 digest"}, {"status": "writing manifest"}]
    return _progress(body, steps, finish=lambda: stub.registry.add(model))


def push(stub: Stub, request: Request) -> Result:
    body = read_body(request.body, "PushRequest", _TRANSFER)
    if not _requested_name(body):
        raise model_required()
    name = _parse_valid_name(_scheme_and_name(body)[1])
    steps: list[Step] = [{"status": "retrieving manifest"}]
    model = find(stub.models, name)
    if model is None:
        steps.append({"status": "couldn't retrieve manifest"})
        return _progress(body, steps, Failure(f"model {quoted(name.short)} not found"))
    if name.namespace == "library":
        return _progress(body, steps, Failure(PUSH_DENIED))
    for digest, size in _layers(model):
        steps += _transfer_steps(f"pushing {digest[:12]}", digest, size, (0, size))
    return _progress(body, [*steps, {"status": "pushing manifest"}])


def _progress(
    body: Mapping[str, Any],
    steps: Sequence[Step],
    failure: Failure | None = None,
    finish: Callable[[], None] = lambda: None,
) -> Generation:
    """Return a generation that sends the steps and then the error `failure`.

    If `failure` is None, the generation calls `finish` after the steps and sends the status `success`.
    """
    parts: list[Part] = [Text([f"{dumps(step)}\n" for step in steps])] if steps else []
    parts += [failure] if failure else []
    return Generation(Reply(parts), ProgressLines(finish), body.get("stream", True))


def _scheme_and_name(body: Mapping[str, Any]) -> tuple[str, str]:
    """Split the requested name into its URL scheme (default: https) and the rest."""
    scheme, separator, rest = _requested_name(body).partition("://")
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


def copy(stub: Stub, request: Request) -> Result:
    """Handle `POST /api/copy`: store a model under a second name."""
    body = read_body(request.body, "CopyRequest", {"source": STRING, "destination": STRING})
    source, destination = (_parse_valid_name(body.get(field, ""), field) for field in ("source", "destination"))
    model = find(stub.models, source)
    if model is None:
        raise HttpError(404, f"model {quoted(body['source'])} not found")
    _store(stub, replace(model, weights=model.blob_digest, manifest=model.digest), destination)
    return OK


def delete(stub: Stub, request: Request) -> Result:
    name = _requested_name(read_body(request.body, "DeleteRequest", {"model": STRING, "name": STRING}))
    if not name:
        raise model_required()
    model = find(stub.models, _parse_valid_name(name, "name"))
    if model is None:
        raise not_found(name)
    stub.registry.remove(model)
    return OK


def send_blob(stub: Stub, request: Request) -> Result:
    """Handle `POST /api/blobs/:digest`: store a blob. Status 201 means that the blob is new."""
    expected = _hexadecimal(request.path.rpartition("/")[2])
    if expected in _stored_digests(stub):
        return OK
    actual = _sha256(request.body)
    if actual != expected:
        raise HttpError(400, f'digest mismatch, expected "sha256:{expected}", got "sha256:{actual}"')
    stub.registry.blobs.add(actual)
    return HttpResponse(201)


def find_blob(stub: Stub, request: Request) -> Result:
    digest = _hexadecimal(request.path.rpartition("/")[2])
    if digest not in _stored_digests(stub):
        raise HttpError(404, f"blob {quoted(f'sha256:{digest}')} not found")
    return OK


def _hexadecimal(digest: str) -> str:
    """Return the 64 hexadecimal digits of a digest such as `sha256:…` or `sha256-…`. Raises HttpError."""
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise HttpError(400, "invalid digest format")
    return match[1]


def _store(stub: Stub, model: Model, name: Name) -> None:
    existing = find(stub.models, name)
    if existing is not None:
        stub.registry.remove(existing)
    stub.registry.add(replace(model, name=name.short))


def _requested_name(body: Mapping[str, Any]) -> str:
    return body.get("model") or body.get("name") or ""


def _parse_valid_name(text: str, field: str = "") -> Name:
    """Parse a model name. Raises HttpError for an invalid name. The error message begins with `field`, if set."""
    name = parse_name(text)
    if name is None:
        raise HttpError(400, f"{field} {quoted(text)} is invalid") if field else invalid_name()
    return name


def _layers(model: Model) -> list[tuple[str, int]]:
    """Return the digest and the size in bytes of each layer, weights first."""
    texts = {
        "template": model.template if model.template != PLAIN_TEMPLATE else "",
        "license": model.license,
        "system": model.system,
        "params": dumps(dict(model.parameters)) if model.parameters else "",
    }
    layers = [f"{kind} {text}".encode() for kind, text in texts.items() if text]
    return [(model.blob_digest, model.size), *((_sha256(text), len(text)) for text in layers)]


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _stored_digests(stub: Stub) -> set[str]:
    return {digest for model in stub.models for digest, _ in _layers(model)} | stub.registry.blobs
