"""Handler of `/api/create`. As in Ollama, the first invalid part of a request determines the error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mochi_stub.http.http_result import Request, Result, Stub
from mochi_stub.models.catalogue import Model, sha256
from mochi_stub.reply import HttpError
from mochi_stub.wire.ollama.errors import requested_name, valid_name
from mochi_stub.wire.ollama.go_json import timestamp
from mochi_stub.wire.ollama.model_names import find, short_name
from mochi_stub.wire.ollama.model_store import Step, blob_path, hexadecimal, layers, progress, store, stored_digests
from mochi_stub.wire.ollama.request_schema import effective_options

NO_DIGEST = "0" * 19
"""Placeholder for the digest in progress steps of a conversion or quantization."""
UNQUANTIZED = ("F32", "F16", "BF16")
QUANTIZATIONS = {**{name: name for name in ("F32", "F16", "BF16", "Q4_K_S", "Q4_K_M", "Q8_0")}, "Q4_K": "Q4_K_M"}
_PART = re.compile(r"-\d{5}-of-\d{5}\.gguf$")
"""End of the path of one part of a split GGUF file."""


def create(stub: Stub, request: Request, body: dict[str, Any]) -> Result:
    """Handle `POST /api/create`: create a model from another model or from uploaded blobs."""
    _check_file_names(body)
    name = valid_name(requested_name(body))
    steps: list[Step] = []
    try:
        model = _build(stub, body, steps)
    except HttpError as error:
        return progress(body, steps, error.failure)
    model = replace(model, modified_at=timestamp(stub.seeded_ids(request.body).start))
    stored = stored_digests(stub)
    digests = [digest for digest, _ in layers(model)]
    for digest in digests:
        kind = "using existing" if digest in stored else "creating new"
        steps.append({"status": f"{kind} layer sha256:{digest}"})

    def finish() -> None:
        for digest in digests:
            stub.registry.blobs.setdefault(digest, None)
        store(stub, model, name)

    return progress(body, [*steps, {"status": "writing manifest"}], finish=finish)


def _check_file_names(body: Mapping[str, Any]) -> None:
    for path, digest in body.get("files", {}).items():
        if path != "." and any(part in ("", ".", "..") for part in path.split("/")):
            raise HttpError(400, "file path must be relative")
        if not digest:
            raise HttpError(400, "invalid digest format")
    if "" in body.get("adapters", {}).values():
        raise HttpError(400, "invalid digest format")


def _build(stub: Stub, body: Mapping[str, Any], steps: list[Step]) -> Model:
    """Return the model that a request describes, and append the progress steps to `steps`."""
    if body.get("from"):
        model = _from_model(stub, body["from"], steps)
    elif "files" in body:
        model = _from_files(stub, body["files"], steps)
    else:
        raise HttpError(400, "neither 'from' or 'files' was specified")
    if adapters := body.get("adapters"):
        if len(adapters) > 1:
            raise HttpError(400, "only one adapter is currently supported")
        model = replace(model, adapters=(*model.adapters, *_gguf_digests(stub, adapters, steps)))
    model = _quantized(model, body.get("quantize") or body.get("quantization") or "", steps)
    return _with_modelfile(model, body)


def _from_model(stub: Stub, name: str, steps: list[Step]) -> Model:
    source = find(stub.models, valid_name(name))
    if source is None:
        steps.append({"status": "pulling manifest"})
        raise HttpError(500, "pull model manifest: file does not exist")
    return replace(
        source,
        weights=source.blob_digest,
        parent=short_name(source),
        info=source.model_info,
        tensors=source.all_tensors,
    )


def _from_files(stub: Stub, files: Mapping[str, str], steps: list[Step]) -> Model:
    digests = _gguf_digests(stub, files, steps)
    fields = _gguf_fields(stub, digests[0])
    if any(map(_PART.search, files)) or int(fields["info"].get("split.count", 1)) > 1:
        raise HttpError(400, "mochi-stub does not merge split GGUF files: merge them with llama-gguf-split --merge")
    total = fields["size"]
    steps.append({"status": "validating GGUF model", "digest": NO_DIGEST, "total": total, "completed": total})
    steps.append({"status": "verifying conversion"})
    return Model("", weights=digests[0], **fields)


def _gguf_digests(stub: Stub, files: Mapping[str, str], steps: list[Step]) -> list[str]:
    """Return the digests of GGUF files, sorted by path."""
    if any(path.endswith(".safetensors") for path in files):
        steps.append({"status": "converting model"})
        raise HttpError(500, "mochi-stub does not convert safetensors: create the model from a GGUF file")
    if not any(path.endswith(".gguf") or _is_gguf(stub, digest) for path, digest in files.items()):
        raise HttpError(400, "unknown type")
    digests = []
    for _, digest in sorted(files.items()):
        steps.append({"status": "parsing GGUF"})
        digests.append(hexadecimal(digest))
        if digests[-1] not in stored_digests(stub):
            raise HttpError(500, f"open {blob_path(digests[-1])}: no such file or directory")
        _gguf_fields(stub, digests[-1])
    return digests


def _is_gguf(stub: Stub, digest: str) -> bool:
    try:
        return bool(_gguf_fields(stub, hexadecimal(digest)))
    except HttpError:
        return False


def _gguf_fields(stub: Stub, digest: str) -> Mapping[str, Any]:
    """Return values for the fields of `Model` from an uploaded GGUF file or the weights of a model."""
    uploaded = stub.registry.blobs.get(digest)
    if isinstance(uploaded, str):
        raise HttpError(400, uploaded)
    if uploaded:
        return uploaded
    for model in stub.models:
        if model.blob_digest == digest:
            names = ("family", "context_length", "embedding_length", "parameter_size", "quantization", "size", "habit")
            fields = {name: getattr(model, name) for name in (*names, "chat_template", "capabilities")}
            return {**fields, "info": model.model_info, "tensors": model.all_tensors}
    raise HttpError(400, "supplied file was not in GGUF format")


def _quantized(model: Model, requested: str, steps: list[Step]) -> Model:
    kind = requested.upper()
    if not kind:
        return model
    if kind not in QUANTIZATIONS:
        supported = "F32, F16, Q4_K_S, Q4_K_M, Q8_0"
        raise HttpError(500, f"unsupported quantization type {kind} - supported types are {supported}")
    if model.quantization not in UNQUANTIZED:
        raise HttpError(500, "quantization is only supported for F16, BF16 and F32 models")
    if QUANTIZATIONS[kind] == model.quantization:
        return model
    status = f"quantizing {model.quantization} model to {kind}"
    for completed in (model.size // 2, model.size):
        steps.append({"status": status, "digest": NO_DIGEST, "total": model.size, "completed": completed})
    steps.append({"status": "verifying conversion"})
    weights = sha256(f"{model.blob_digest} {kind}".encode())
    return replace(model, quantization=QUANTIZATIONS[kind], listed_quantization=None, weights=weights)


def _with_modelfile(model: Model, body: Mapping[str, Any]) -> Model:
    parameters = body.get("parameters", {})
    effective_options(Model(""), parameters)  # checks the types
    messages = [
        {"role": message.get("role", "").lower(), "content": message.get("content", "")}
        for message in body.get("messages", ())
    ]
    changed = replace(
        model,
        template=body.get("template") or model.template,
        system=body.get("system") or model.system,
        license=_license(body.get("license")) or model.license,
        parameters={**model.parameters, **parameters},
        messages=messages or model.messages,
    )
    return replace(changed, manifest=sha256(" ".join(digest for digest, _ in layers(changed)).encode()))


def _license(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        return "\n".join(value)
    if value is None or isinstance(value, str):
        return value or ""
    raise HttpError(500, "json: cannot unmarshal number into Go value of type string")
