"""Layers of stored models, and the progress lines of requests that change them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mochi_stub.http.http_result import Generation, HttpResponse, Stub
from mochi_stub.models.catalogue import Model, sha256
from mochi_stub.providers.ollama.go_json import dumps
from mochi_stub.providers.ollama.model_names import Name, find
from mochi_stub.providers.provider_pipeline import JSON
from mochi_stub.replies.chunks import Piece
from mochi_stub.reply import Failure, Part, Reply, Text

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
        return f"{dumps({'error': failure.message})}\n".encode()

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
    parts: list[Part] = [Text([f"{dumps(step)}\n" for step in steps])] if steps else []
    parts += [failure] if failure else []
    return Generation(Reply(parts), ProgressLines(finish), body.get("stream", True), error_content_type=JSON)


def layers(model: Model) -> list[tuple[str, int]]:
    """Return the digest and the size in bytes of each layer, weights first."""
    texts = {
        "template": model.template,
        "license": model.license,
        "system": model.system,
        "params": dumps(dict(model.parameters)) if model.parameters else "",
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
