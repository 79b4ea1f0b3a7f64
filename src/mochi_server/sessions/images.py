"""Images as values: which bytes are one, and how a message names it. Touches no files."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import sha256

from mochi_server.sessions.types import ImageReference, Message

_SHA256 = re.compile(r"[0-9a-f]{64}")
_BEGINNINGS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_BMP_HEADERS = frozenset({12, 16, 40, 52, 56, 64, 108, 124})
"""How long the second header of a bitmap can be; its first two bytes alone begin many a text."""

MEDIA_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp")


@dataclass(frozen=True, slots=True)
class Image:
    """An image and its name: the SHA-256 of its bytes, in hex. Images of one name are equal."""

    sha256: str
    media_type: str
    data: bytes = field(default=b"", compare=False, repr=False)

    @classmethod
    def of(cls, data: bytes) -> "Image":
        """Raises ValueError for what is no PNG, JPEG, WebP, GIF or BMP."""
        media_type = media_type_of(data)
        if media_type is None:
            raise ValueError("not an image that is known: it must be PNG, JPEG, WebP, GIF or BMP")
        return cls(sha256(data).hexdigest(), media_type, data)

    @property
    def reference(self) -> ImageReference:
        """How a message names it."""
        return {"sha256": self.sha256, "media_type": self.media_type}

    def without_data(self) -> "Image":
        """The name alone."""
        return replace(self, data=b"")


def media_type_of(data: bytes) -> str | None:
    """The type that the first bytes tell; None for what is none of ``MEDIA_TYPES``."""
    for beginning, media_type in _BEGINNINGS.items():
        if data.startswith(beginning):
            return media_type
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    if data[:2] == b"BM" and int.from_bytes(data[14:18], "little") in _BMP_HEADERS:
        return "image/bmp"
    return None


def is_sha256(value: object) -> bool:
    """Whether that can name an image; anything else never becomes a path."""
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


def images_of(message: Message) -> list[str]:
    """The names of a message's images, in order; what else a file may hold there is passed over."""
    references = message.get("images") or ()
    return [one["sha256"] for one in references if isinstance(one, dict) and is_sha256(one.get("sha256"))]


def images_in(messages: Iterable[Message]) -> set[str]:
    """The names of the images of these messages."""
    return {name for message in messages if "images" in message for name in images_of(message)}
