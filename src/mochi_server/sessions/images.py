"""Images that a request contains as base64 text or data URLs."""

import re
from base64 import b64decode
from collections.abc import Mapping

import anyio.to_thread

from mochi_server.errors import ValidationFailed
from mochi_server.sessions.types import Image

_DATA_URL = re.compile(r"data:[^,;]{0,100}(?:;[^,;]{1,100}){0,4};base64,", re.IGNORECASE)
_PATH = re.compile(
    r"(https?|file)://|(?!/9j/)~?[./\\]|[A-Za-z]:[/\\]|[^\n]{1,1000}\.(png|jpe?g|webp|gif|bmp)$",
    re.IGNORECASE,
)
"""Pattern of texts that are no base64 but a path or a URL."""
_MAX_SHOWN = 100
_LINE_ENDS = str.maketrans("", "", "\r\n")

Location = tuple[str | int, ...]  # path of a field in a request body


async def read_images(encoded: Mapping[Location, str]) -> tuple[Image, ...]:
    """Decode base64 texts or data URLs by path in the request body.

    Raises ``ValidationFailed`` with the path.
    """
    if not encoded:
        return ()

    def decode() -> tuple[Image, ...]:
        images = []
        for location, text in encoded.items():
            images.append(_decode(location, text))
        return tuple(images)

    return await anyio.to_thread.run_sync(decode)


def _decode(location: Location, text: str) -> Image:
    prefix = _DATA_URL.match(text)
    start = prefix.end() if prefix else 0
    encoded = text[start:].translate(_LINE_ENDS)
    try:
        data = b64decode(encoded, validate=True)
    except ValueError as error:
        kind = "not an image: invalid base64"
        if _PATH.match(text):
            kind = f"not an image, but a path or an address: {text[:_MAX_SHOWN]!r}"
        problem = f"{kind}. Send the content of the file as base64"
        raise ValidationFailed.at(location, problem) from error
    try:
        return Image.of(data)
    except ValueError as error:
        raise ValidationFailed.at(location, str(error)) from error
