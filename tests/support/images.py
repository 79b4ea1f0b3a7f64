"""Small valid images of every accepted type."""

from base64 import b64decode, b64encode
from hashlib import sha256

PNG = b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
GIF = b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
JPEG = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + bytes(100) + b"\xff\xd9"
WEBP = b64decode("UklGRiQAAABXRUJQVlA4IBgAAAAwAQCdASoBAAEAAgA0JaQAA3AA/vuUAAA=")
BMP = b"BM\x3a\x00\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00\x28\x00\x00\x00" + bytes(40)
KINDS = {
    "image/png": PNG,
    "image/gif": GIF,
    "image/jpeg": JPEG,
    "image/webp": WEBP,
    "image/bmp": BMP,
}


def base64_image(data: bytes) -> str:
    """Return the image as it is encoded in a request."""
    return b64encode(data).decode()


def sha256_of(data: bytes) -> str:
    """Return the digest by which a message references the image."""
    return sha256(data).hexdigest()


def numbered_image(number: int, size: int = 0) -> bytes:
    """Return a unique image with `size` additional bytes."""
    return PNG + number.to_bytes(8, "big") + bytes(size)
