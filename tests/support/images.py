"""Images to be sent: small, real, and of every kind that is taken."""

from base64 import b64decode, b64encode
from hashlib import sha256

PNG = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
GIF = b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + bytes(100) + b"\xff\xd9"
WEBP = b64decode("UklGRiQAAABXRUJQVlA4IBgAAAAwAQCdASoBAAEAAgA0JaQAA3AA/vuUAAA=")
BMP = b"BM\x3a\x00\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00\x28\x00\x00\x00" + bytes(40)
KINDS = {"image/png": PNG, "image/gif": GIF, "image/jpeg": JPEG, "image/webp": WEBP, "image/bmp": BMP}


def base64_image(data: bytes) -> str:
    """As a request has it."""
    return b64encode(data).decode()


def sha256_of(data: bytes) -> str:
    """As a message names it."""
    return sha256(data).hexdigest()


def numbered_image(number: int, size: int = 0) -> bytes:
    """An image of its own, larger by so many bytes."""
    return PNG + number.to_bytes(8, "big") + bytes(size)
