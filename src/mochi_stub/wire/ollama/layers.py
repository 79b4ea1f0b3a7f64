"""What a model is made of on disk: digests of its weights and of what its Modelfile adds to them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from mochi_stub.catalogue import PLAIN_TEMPLATE, Model
from mochi_stub.wire.ollama.gojson import dumps

_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def hexadecimal(digest: str) -> str | None:
    """The 64 digits of `sha256:…` or `sha256-…`; None where it is neither."""
    found = _DIGEST.fullmatch(digest)
    return found[1] if found else None


def layers(model: Model) -> list[tuple[str, int]]:
    """Digest and bytes of each layer, the weights first."""
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


def on_disk(models: Iterable[Model]) -> set[str]:
    """The digests of all layers of these models."""
    return {digest for model in models for digest, _ in layers(model)}
