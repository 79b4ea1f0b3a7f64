"""`/api/copy`, `/api/delete` and `/api/blobs`: models and layers on the stub's imaginary disk."""

from __future__ import annotations

from dataclasses import replace

from mochi_stub.answer import Answer, Request, Result, Stub
from mochi_stub.catalogue import Model
from mochi_stub.wire.ollama.gojson import quoted
from mochi_stub.wire.ollama.gotypes import STRING, read_body
from mochi_stub.wire.ollama.layers import hexadecimal, on_disk, sha256
from mochi_stub.wire.ollama.names import Name, find, parse_name
from mochi_stub.wire.ollama.refusals import MODEL_REQUIRED, Refused, not_found

DONE = Answer(200)
COPY = {"source": STRING, "destination": STRING}
DELETE = {"model": STRING, "name": STRING}


def copy(stub: Stub, data: bytes) -> Result:
    """POST /api/copy: the same model under a second name."""
    body = read_body(data, "CopyRequest", COPY)
    source, destination = (_valid(body.get(field, ""), field) for field in ("source", "destination"))
    model = find(stub.models, source)
    if model is None:
        raise Refused(404, f"model {quoted(body['source'])} not found")
    copied = replace(model, weights=model.blob_digest, manifest=model.digest)
    put(stub, copied, destination)
    return DONE


def delete(stub: Stub, data: bytes) -> Result:
    """DELETE /api/delete"""
    body = read_body(data, "DeleteRequest", DELETE)
    name = body.get("model") or body.get("name") or ""
    if not name:
        raise MODEL_REQUIRED
    parsed = parse_name(name)
    if parsed is None:
        raise Refused(400, f"name {quoted(name)} is invalid")
    model = find(stub.models, parsed)
    if model is None:
        raise not_found(name)
    stub.library.remove(model)
    return DONE


def send_blob(stub: Stub, request: Request) -> Result:
    """POST /api/blobs/:digest: 201 where it is new."""
    expected = _digest(request)
    if _has(stub, expected):
        return DONE
    found = sha256(request.body)
    if found != expected:
        raise Refused(400, f'digest mismatch, expected "sha256:{expected}", got "sha256:{found}"')
    stub.library.blobs.add(found)
    return Answer(201)


def find_blob(stub: Stub, request: Request) -> Result:
    """HEAD /api/blobs/:digest"""
    digest = _digest(request)
    if not _has(stub, digest):
        raise Refused(404, f"blob {quoted(f'sha256:{digest}')} not found")
    return DONE


def put(stub: Stub, model: Model, name: Name) -> Model:
    """Add the model under this name, in the place of one that has it already."""
    existing = find(stub.models, name)
    if existing is not None:
        stub.library.remove(existing)
    named = replace(model, name=name.short)
    stub.library.add(named)
    return named


def _valid(text: str, field: str) -> Name:
    name = parse_name(text)
    if name is None:
        raise Refused(400, f"{field} {quoted(text)} is invalid")
    return name


def _digest(request: Request) -> str:
    digest = hexadecimal(request.path.rpartition("/")[2])
    if digest is None:
        raise Refused(400, "invalid digest format")
    return digest


def _has(stub: Stub, digest: str) -> bool:
    return digest in stub.library.blobs or digest in on_disk(stub.models)
