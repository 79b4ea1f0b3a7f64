"""Layers of a model on disk: its weights, and what its Modelfile adds to them."""

from __future__ import annotations

import hashlib
import re

from mochi_stub.answer import Stub
from mochi_stub.catalogue import PLAIN_TEMPLATE, Model
from mochi_stub.wire.ollama.gojson import dumps
from mochi_stub.wire.provider_pipeline import Refused

_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def hexadecimal(digest: str) -> str:
    """Return the 64 digits of `sha256:…` or `sha256-…`. Raises Refused."""
    found = _DIGEST.fullmatch(digest)
    if found is None:
        raise Refused(400, "invalid digest format")
    return found[1]


def layers(model: Model) -> list[tuple[str, int]]:
    """Return the digest and the size of each layer, the weights first."""
    added = {
        "template": model.template if model.template != PLAIN_TEMPLATE else "",
        "license": model.license,
        "system": model.system,
        "params": dumps(dict(model.parameters)) if model.parameters else "",
    }
    texts = [f"{kind} {text}".encode() for kind, text in added.items() if text]
    return [(model.blob_digest, model.size), *((sha256(text), len(text)) for text in texts)]


def manifest_digest(model: Model) -> str:
    return sha256(" ".join(digest for digest, _ in layers(model)).encode())


def on_disk(stub: Stub) -> set[str]:
    """Return the digests of all layers that the stub has, those of models and those that were sent as blobs."""
    return {digest for model in stub.models for digest, _ in layers(model)} | stub.library.blobs
