"""`/api/create`: a model from another one, or from files that were sent as blobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mochi_stub.answer import Generation, Result, Stub
from mochi_stub.catalogue import Model
from mochi_stub.reply import Failure
from mochi_stub.wire.ollama.gojson import timestamp
from mochi_stub.wire.ollama.gotypes import BOOL, STRING, Read, anything, mapping, read_body
from mochi_stub.wire.ollama.layers import hexadecimal, layers, manifest_digest, on_disk
from mochi_stub.wire.ollama.management import put
from mochi_stub.wire.ollama.models import short_name
from mochi_stub.wire.ollama.names import Name, find, parse_name
from mochi_stub.wire.ollama.progress import Step, progress
from mochi_stub.wire.ollama.refusals import INVALID_NAME, Refused
from mochi_stub.wire.ollama.requests import BadOptions, effective_options

BLOBS = "/usr/share/ollama/.ollama/models/blobs"
FIELDS: dict[str, Read] = {
    **{"model": STRING, "name": STRING, "from": STRING, "files": mapping, "stream": BOOL},
    **{"template": STRING, "system": STRING, "license": anything, "parameters": mapping},
}
NOTHING = Failure("neither 'from' or 'files' was specified", 400)
NO_MANIFEST = Failure("pull model manifest: file does not exist")


def create(stub: Stub, data: bytes) -> Result:
    """POST /api/create"""
    body = read_body(data, "CreateRequest", FIELDS)
    name = parse_name(body.get("model") or body.get("name") or "")
    if name is None:
        raise INVALID_NAME
    stream = body.get("stream", True)
    problem = _problem(body)
    if problem is not None:
        return progress([], stream=stream, failure=problem)
    modified_at = timestamp(stub.plan(data).start)
    if not body.get("from"):
        return _from_files(stub, body, name, modified_at, stream)
    named = parse_name(body["from"])
    if named is None:
        raise INVALID_NAME
    source = find(stub.models, named)
    if source is None:
        return progress([{"status": "pulling manifest"}], stream=stream, failure=NO_MANIFEST)
    origin = replace(source, weights=source.blob_digest, parent=short_name(source), info=source.model_info)
    return _written(stub, [], _made(origin, body, name, modified_at), name, stream)


def _from_files(stub: Stub, body: Mapping[str, Any], name: Name, modified_at: str, stream: bool) -> Generation:
    steps: list[Step] = [{"status": "parsing GGUF"}]
    digests = [hexadecimal(str(digest)) for digest in body["files"].values()]
    for digest in digests:
        if digest is None:
            raise Refused(400, "invalid digest format")
        if digest not in stub.library.blobs and digest not in on_disk(stub.models):
            missing = Failure(f"open {BLOBS}/sha256-{digest}: no such file or directory")
            return progress(steps, stream=stream, failure=missing)
    steps.append({"status": "validating GGUF model", "digest": "0" * 19})
    steps.append({"status": "verifying conversion"})
    model = _made(Model(name.short, weights=digests[0] or ""), body, name, modified_at)
    return _written(stub, steps, model, name, stream)


def _written(stub: Stub, steps: list[Step], model: Model, name: Name, stream: bool) -> Generation:
    there = on_disk(stub.models) | stub.library.blobs
    digests = [digest for digest, _ in layers(model)]
    kinds = ["using existing" if digest in there else "creating new" for digest in digests]
    lines = [{"status": f"{kind} layer sha256:{digest}"} for kind, digest in zip(kinds, digests, strict=True)]

    def finish() -> None:
        stub.library.blobs.update(digests)
        put(stub, model, name)

    return progress([*steps, *lines, {"status": "writing manifest"}], stream=stream, finish=finish)


def _made(origin: Model, body: Mapping[str, Any], name: Name, modified_at: str) -> Model:
    """The model that it is made from, and what the request sets over that."""
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


def _problem(body: Mapping[str, Any]) -> Failure | None:
    if not body.get("from") and not body.get("files"):
        return NOTHING
    if not isinstance(body.get("license", ""), (str, list)):
        return Failure("license must be a string or an array of strings", 400)
    try:
        effective_options(Model(""), body.get("parameters", {}))
    except BadOptions as error:
        return Failure(str(error), 400)
    template = body.get("template", "")
    opened = template.rfind("{{")
    if opened > template.rfind("}}"):
        line = template.count("\n", 0, opened) + 1
        return Failure(f"template error: template: :{line}: unclosed action", 400)
    return None
