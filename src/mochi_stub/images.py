"""The images in a request, on any wire: which there were, and not what they show."""

from __future__ import annotations

import hashlib
from base64 import b64decode
from collections.abc import Iterator
from typing import Any

_MEDIA_TYPES = ("media_type", "mimeType", "mime_type")
"""What stands beside the `data` of an image on the wires of Anthropic and Gemini."""


def image_digests(body: Any) -> tuple[str, ...]:
    """The SHA-256 of each image's bytes, in hex, in the order of the body; what is no base64 is passed over."""
    return tuple(digest for text in _encoded(body) if (digest := _digest(text)) is not None)


def _encoded(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _encoded(item)
    if not isinstance(value, dict):
        return
    for key, item in value.items():
        if key == "images" and isinstance(item, list):  # Ollama's
            yield from (image for image in item if isinstance(image, str))
        elif key in ("url", "image_url") and isinstance(item, str) and item.startswith("data:"):  # OpenAI's
            yield item.partition(",")[2]
        elif key == "data" and isinstance(item, str) and any(name in value for name in _MEDIA_TYPES):
            yield item
        else:
            yield from _encoded(item)


def _digest(text: str) -> str | None:
    try:
        return hashlib.sha256(b64decode(text, validate=True)).hexdigest()
    except ValueError:
        return None
