"""`/api/pull` and `/api/push`. There is no registry: declared models can be had, everything else fails as it would."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mochi_stub.answer import Result, Stub
from mochi_stub.reply import Failure
from mochi_stub.wire.ollama.gojson import quoted
from mochi_stub.wire.ollama.gotypes import BOOL, STRING, read_body
from mochi_stub.wire.ollama.layers import layers, on_disk
from mochi_stub.wire.ollama.names import Name, find, parse_name
from mochi_stub.wire.ollama.progress import Step, progress
from mochi_stub.wire.ollama.refusals import INVALID_NAME, MODEL_REQUIRED

FIELDS = {
    **{"model": STRING, "name": STRING, "insecure": BOOL, "stream": BOOL},
    **{"username": STRING, "password": STRING},
}
REGISTRY = "registry.ollama.ai"
PARTS = 4
"""In so many steps a layer is downloaded."""
NOT_YOURS = "you are not authorized to push to this namespace, create the model under a namespace you own"
_ADDRESS = re.compile(r"(?:\d+\.){3}\d+|localhost")


def pull(stub: Stub, data: bytes) -> Result:
    """POST /api/pull"""
    body = read_body(data, "PullRequest", FIELDS)
    scheme, name = _named(body)
    if name is None:
        raise INVALID_NAME
    stream = body.get("stream", True)
    start: list[Step] = [{"status": "pulling manifest"}]
    if name.host != REGISTRY:
        return progress(start, stream=stream, failure=Failure(_unreachable(scheme, name, body.get("insecure", False))))
    model = find(stub.models, name) or find(stub.library.declared, name)
    if model is None:
        return progress(start, stream=stream, failure=Failure("pull model manifest: file does not exist"))
    there = on_disk(stub.models) | stub.library.blobs
    for digest, size in layers(model):
        start += _pulled(digest, size, cached=digest in there)
    steps = [*start, {"status": "verifying sha256 digest"}, {"status": "writing manifest"}]
    return progress(steps, stream=stream, finish=lambda: stub.library.add(model))


def push(stub: Stub, data: bytes) -> Result:
    """POST /api/push"""
    body = read_body(data, "PushRequest", FIELDS)
    _, name = _named(body)
    if not (body.get("model") or body.get("name")):
        raise MODEL_REQUIRED
    if name is None:
        raise INVALID_NAME
    stream = body.get("stream", True)
    steps: list[Step] = [{"status": "retrieving manifest"}]
    model = find(stub.models, name)
    if model is None:
        steps.append({"status": "couldn't retrieve manifest"})
        return progress(steps, stream=stream, failure=Failure(f"model {quoted(name.short)} not found"))
    if name.namespace == "library":
        return progress(steps, stream=stream, failure=Failure(NOT_YOURS))
    for digest, size in layers(model):
        steps += _moved(f"pushing {digest[:12]}", digest, size, (0, size))
    return progress([*steps, {"status": "pushing manifest"}], stream=stream)


def _named(body: Mapping[str, Any]) -> tuple[str, Name | None]:
    """The scheme that stands before the name, and the name."""
    text = body.get("model") or body.get("name") or ""
    scheme, found, rest = text.partition("://")
    return (scheme, parse_name(rest)) if found else ("https", parse_name(text))


def _pulled(digest: str, size: int, *, cached: bool) -> list[Step]:
    done = (size,) if cached else tuple(size * part // PARTS for part in range(PARTS + 1))
    return _moved(f"pulling {digest[:12]}", digest, size, done)


def _moved(status: str, digest: str, size: int, done: tuple[int, ...]) -> list[Step]:
    """One step for each number of bytes; none at all are not mentioned."""
    step = {"status": status, "digest": f"sha256:{digest}", "total": size}
    return [{**step, "completed": completed} if completed else step for completed in done]


def _unreachable(scheme: str, name: Name, insecure: bool) -> str:
    """What becomes of a request to a registry where there is none."""
    if scheme == "http" and not insecure:
        return "pull model manifest: insecure protocol http"
    url = f"{scheme}://{name.host}/v2/{name.namespace}/{name.model}/manifests/{name.tag}"
    host, _, port = name.host.partition(":")
    problem = f"dial tcp: lookup {host}: no such host"
    if _ADDRESS.fullmatch(host):
        problem = f"dial tcp {host}:{port or (80 if scheme == 'http' else 443)}: connect: connection refused"
    return f"pull model manifest: Get {quoted(url)}: {problem}"
