"""`/api/pull` and `/api/push`, and the progress that they and `/api/create` report.

There is no registry: declared models can be pulled, everything else fails as it would offline.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mochi_stub.answer import Answer, Generation, Request, Result, Stub
from mochi_stub.chunks import Piece
from mochi_stub.reply import Failure, Part, Reply, Text
from mochi_stub.wire.ollama.gojson import dumps, quoted
from mochi_stub.wire.ollama.gotypes import BOOL, STRING, read_body
from mochi_stub.wire.ollama.models import layers, on_disk
from mochi_stub.wire.ollama.names import Name, find, parse_name
from mochi_stub.wire.ollama.refusals import invalid_name, model_required

FIELDS = {
    **{"model": STRING, "name": STRING, "insecure": BOOL, "stream": BOOL},
    **{"username": STRING, "password": STRING},
}
NDJSON = b"application/x-ndjson"
JSON = b"application/json"
REGISTRY = "registry.ollama.ai"
PARTS = 4
"""Number of steps in which a layer is downloaded."""
NOT_YOURS = "you are not authorized to push to this namespace, create the model under a namespace you own"
_ADDRESS = re.compile(r"(?:\d+\.){3}\d+|localhost")

Step = Mapping[str, Any]


class ProgressLines:
    """Encoder of steps as lines. `finish` is called if all of them were sent before the client disconnected."""

    content_type = NDJSON

    def __init__(self, finish: Callable[[], None]) -> None:
        self.finish = finish

    def chunk(self, pieces: list[Piece]) -> bytes:
        return "".join([piece.value for piece in pieces]).encode()

    def end(self) -> bytes:
        self.finish()
        return b'{"status":"success"}\n'

    def error(self, failure: Failure) -> bytes:
        return f"{_error(failure)}\n".encode()

    def refusal(self, failure: Failure, *, stream: bool) -> Answer:
        return Answer(failure.status, _error(failure).encode(), JSON, declared=not stream)

    def whole(self) -> Answer:
        self.finish()
        return Answer(200, b'{"status":"success"}', JSON)


def progress(
    body: Mapping[str, Any],
    steps: Sequence[Step],
    failure: Failure | None = None,
    finish: Callable[[], None] = lambda: None,
) -> Generation:
    """Return the steps one after the other, and the failure or the success at their end."""
    lines = tuple(f"{dumps(step)}\n" for step in steps)
    parts: list[Part] = [Text(lines)] if lines else []
    if failure is not None:
        parts.append(failure)
    return Generation(Reply(parts), ProgressLines(finish), body.get("stream", True))


def pull(stub: Stub, request: Request) -> Result:
    """POST /api/pull"""
    body = read_body(request.body, "PullRequest", FIELDS)
    scheme, name = _named(body)
    if name is None:
        raise invalid_name()
    steps: list[Step] = [{"status": "pulling manifest"}]
    if name.host != REGISTRY:
        return progress(body, steps, Failure(_unreachable(scheme, name, body.get("insecure", False))))
    model = find(stub.models, name) or find(stub.library.declared, name)
    if model is None:
        return progress(body, steps, Failure("pull model manifest: file does not exist"))
    there = on_disk(stub)
    for digest, size in layers(model):
        done = (size,) if digest in there else tuple(size * part // PARTS for part in range(PARTS + 1))
        steps += _moved(f"pulling {digest[:12]}", digest, size, done)
    steps += [{"status": "verifying sha256 digest"}, {"status": "writing manifest"}]
    return progress(body, steps, finish=lambda: stub.library.add(model))


def push(stub: Stub, request: Request) -> Result:
    """POST /api/push"""
    body = read_body(request.body, "PushRequest", FIELDS)
    _, name = _named(body)
    if not (body.get("model") or body.get("name")):
        raise model_required()
    if name is None:
        raise invalid_name()
    steps: list[Step] = [{"status": "retrieving manifest"}]
    model = find(stub.models, name)
    if model is None:
        steps.append({"status": "couldn't retrieve manifest"})
        return progress(body, steps, Failure(f"model {quoted(name.short)} not found"))
    if name.namespace == "library":
        return progress(body, steps, Failure(NOT_YOURS))
    for digest, size in layers(model):
        steps += _moved(f"pushing {digest[:12]}", digest, size, (0, size))
    return progress(body, [*steps, {"status": "pushing manifest"}])


def _error(failure: Failure) -> str:
    return dumps({"error": failure.message})


def _named(body: Mapping[str, Any]) -> tuple[str, Name | None]:
    """Return the scheme in front of the name, and the name."""
    text = body.get("model") or body.get("name") or ""
    scheme, found, rest = text.partition("://")
    return (scheme, parse_name(rest)) if found else ("https", parse_name(text))


def _moved(status: str, digest: str, size: int, done: tuple[int, ...]) -> list[Step]:
    """Return one step for each number of bytes. Zero bytes are not mentioned."""
    step = {"status": status, "digest": f"sha256:{digest}", "total": size}
    return [{**step, "completed": completed} if completed else step for completed in done]


def _unreachable(scheme: str, name: Name, insecure: bool) -> str:
    """Return the error of a request to a registry that cannot be reached."""
    if scheme == "http" and not insecure:
        return "pull model manifest: insecure protocol http"
    url = f"{scheme}://{name.host}/v2/{name.namespace}/{name.model}/manifests/{name.tag}"
    host, _, port = name.host.partition(":")
    problem = f"dial tcp: lookup {host}: no such host"
    if _ADDRESS.fullmatch(host):
        problem = f"dial tcp {host}:{port or (80 if scheme == 'http' else 443)}: connect: connection refused"
    return f"pull model manifest: Get {quoted(url)}: {problem}"
