"""`/api/create`, `/api/copy`, `/api/delete` and `/api/blobs`: models and layers on the stub's imaginary disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mochi_stub.answer import Answer, Generation, Request, Result, Stub
from mochi_stub.catalogue import Model
from mochi_stub.reply import Failure
from mochi_stub.wire.ollama.gojson import quoted, timestamp
from mochi_stub.wire.ollama.gotypes import BOOL, STRING, anything, mapping, read_body
from mochi_stub.wire.ollama.models import hexadecimal, layers, manifest_digest, on_disk, sha256, short_name
from mochi_stub.wire.ollama.names import Name, find, parse_name
from mochi_stub.wire.ollama.pull_push import Step, progress
from mochi_stub.wire.ollama.refusals import invalid_name, model_required, not_found
from mochi_stub.wire.ollama.requests import effective_options
from mochi_stub.wire.provider_pipeline import Refused

BLOBS = "/usr/share/ollama/.ollama/models/blobs"
CREATE = {
    **{"model": STRING, "name": STRING, "from": STRING, "files": mapping, "stream": BOOL},
    **{"template": STRING, "system": STRING, "license": anything, "parameters": mapping},
}
DONE = Answer(200)


def create(stub: Stub, request: Request) -> Result:
    """POST /api/create: a model from another one, or from files that were sent as blobs"""
    body = read_body(request.body, "CreateRequest", CREATE)
    name = parse_name(body.get("model") or body.get("name") or "")
    if name is None:
        raise invalid_name()
    try:
        _check(body)
    except Refused as refusal:
        return progress(body, [], replace(refusal.failure, status=400))
    modified_at = timestamp(stub.plan(request.body).start)
    if not body.get("from"):
        return _from_files(stub, body, name, modified_at)
    named = parse_name(body["from"])
    if named is None:
        raise invalid_name()
    source = find(stub.models, named)
    if source is None:
        missing = Failure("pull model manifest: file does not exist")
        return progress(body, [{"status": "pulling manifest"}], missing)
    origin = replace(source, weights=source.blob_digest, parent=short_name(source), info=source.model_info)
    return _written(stub, body, [], _made(origin, body, name, modified_at), name)


def _check(body: Mapping[str, Any]) -> None:
    if not body.get("from") and not body.get("files"):
        raise Refused(400, "neither 'from' or 'files' was specified")
    if not isinstance(body.get("license", ""), (str, list)):
        raise Refused(400, "license must be a string or an array of strings")
    effective_options(Model(""), body.get("parameters", {}))
    template = body.get("template", "")
    opened = template.rfind("{{")
    if opened > template.rfind("}}"):
        line = template.count("\n", 0, opened) + 1
        raise Refused(400, f"template error: template: :{line}: unclosed action")


def _from_files(stub: Stub, body: Mapping[str, Any], name: Name, modified_at: str) -> Generation:
    steps: list[Step] = [{"status": "parsing GGUF"}]
    digests = []
    for given in body["files"].values():
        digests.append(hexadecimal(str(given)))
        if digests[-1] not in on_disk(stub):
            missing = Failure(f"open {BLOBS}/sha256-{digests[-1]}: no such file or directory")
            return progress(body, steps, missing)
    steps.append({"status": "validating GGUF model", "digest": "0" * 19})
    steps.append({"status": "verifying conversion"})
    model = _made(Model(name.short, weights=digests[0]), body, name, modified_at)
    return _written(stub, body, steps, model, name)


def _written(stub: Stub, body: Mapping[str, Any], steps: list[Step], model: Model, name: Name) -> Generation:
    there = on_disk(stub)
    digests = [digest for digest, _ in layers(model)]
    for digest in digests:
        kind = "using existing" if digest in there else "creating new"
        steps.append({"status": f"{kind} layer sha256:{digest}"})

    def finish() -> None:
        stub.library.blobs.update(digests)
        _put(stub, model, name)

    return progress(body, [*steps, {"status": "writing manifest"}], finish=finish)


def _made(origin: Model, body: Mapping[str, Any], name: Name, modified_at: str) -> Model:
    """Return the original model with the changes of the request."""
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
    return replace(changed, manifest=manifest_digest(changed))


def copy(stub: Stub, request: Request) -> Result:
    """POST /api/copy: the same model under a second name"""
    body = read_body(request.body, "CopyRequest", {"source": STRING, "destination": STRING})
    source, destination = (_valid(field, body.get(field, "")) for field in ("source", "destination"))
    model = find(stub.models, source)
    if model is None:
        raise Refused(404, f"model {quoted(body['source'])} not found")
    _put(stub, replace(model, weights=model.blob_digest, manifest=model.digest), destination)
    return DONE


def delete(stub: Stub, request: Request) -> Result:
    """DELETE /api/delete"""
    body = read_body(request.body, "DeleteRequest", {"model": STRING, "name": STRING})
    name = body.get("model") or body.get("name") or ""
    if not name:
        raise model_required()
    model = find(stub.models, _valid("name", name))
    if model is None:
        raise not_found(name)
    stub.library.remove(model)
    return DONE


def send_blob(stub: Stub, request: Request) -> Result:
    """POST /api/blobs/:digest: 201 if it is new"""
    expected = _requested(request)
    if expected in on_disk(stub):
        return DONE
    found = sha256(request.body)
    if found != expected:
        raise Refused(400, f'digest mismatch, expected "sha256:{expected}", got "sha256:{found}"')
    stub.library.blobs.add(found)
    return Answer(201)


def find_blob(stub: Stub, request: Request) -> Result:
    """HEAD /api/blobs/:digest"""
    digest = _requested(request)
    if digest not in on_disk(stub):
        raise Refused(404, f"blob {quoted(f'sha256:{digest}')} not found")
    return DONE


def _requested(request: Request) -> str:
    return hexadecimal(request.path.rpartition("/")[2])


def _put(stub: Stub, model: Model, name: Name) -> None:
    """Add the model under this name. It replaces a model of the same name."""
    existing = find(stub.models, name)
    if existing is not None:
        stub.library.remove(existing)
    stub.library.add(replace(model, name=name.short))


def _valid(field: str, text: str) -> Name:
    name = parse_name(text)
    if name is None:
        raise Refused(400, f"{field} {quoted(text)} is invalid")
    return name
