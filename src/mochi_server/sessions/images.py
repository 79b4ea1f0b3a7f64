"""Images of messages: their data, detection of their media type, and the references in messages."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import sha256

from mochi_server.sessions.types import ImageReference, Message

_SHA256 = re.compile(r"[0-9a-f]{64}")
_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_BMP_HEADERS = frozenset({12, 16, 40, 52, 56, 64, 108, 124})
"""Valid lengths of the second header of a BMP file. They are checked because texts can also start with ``BM``."""

MEDIA_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp")


@dataclass(frozen=True, slots=True)
class Image:
    """An image, identified by the SHA-256 of its bytes in hex."""

    sha256: str
    media_type: str
    data: bytes = field(default=b"", compare=False, repr=False)

    @classmethod
    def of(cls, data: bytes) -> "Image":
        """Create an image from PNG, JPEG, WebP, GIF or BMP data. Raises ValueError for other data."""
        media_type = media_type_of(data)
        if media_type is None:
            raise ValueError("not an image in a supported format: use PNG, JPEG, WebP, GIF or BMP")
        return cls(sha256(data).hexdigest(), media_type, data)

    @property
    def reference(self) -> ImageReference:
        """Value by which a message references this image."""
        return {"sha256": self.sha256, "media_type": self.media_type}

    def without_data(self) -> "Image":
        return replace(self, data=b"")


def media_type_of(data: bytes) -> str | None:
    """Detect the media type of ``data`` from its first bytes. Return None if it is not one of ``MEDIA_TYPES``."""
    if known := next((kind for signature, kind in _SIGNATURES.items() if data.startswith(signature)), None):
        return known
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    if data[:2] == b"BM" and int.from_bytes(data[14:18], "little") in _BMP_HEADERS:
        return "image/bmp"
    return None


def is_sha256(value: object) -> bool:
    """Return whether a value is a SHA-256 in hex. Other values must not be used as file names."""
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


def images_of(message: Message) -> list[str]:
    """Return the hashes of a message's images in order, ignoring invalid references."""
    images = message.get("images") or ()
    return [image["sha256"] for image in images if isinstance(image, dict) and is_sha256(image.get("sha256"))]


def images_in(messages: Iterable[Message]) -> set[str]:
    """Return the hashes of the images that the messages reference."""
    return {name for message in messages if "images" in message for name in images_of(message)}
