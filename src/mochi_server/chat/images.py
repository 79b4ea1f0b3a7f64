"""Conversion of images between base64 and bytes. Worker threads convert them, so that the event loop stays free."""

import re
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping

import anyio.to_thread

from mochi_server.errors import BlobNotFound, ValidationFailed
from mochi_server.ollama.types import ChatMessage, Encoded
from mochi_server.sessions.types import Image

_DATA_URL = re.compile(r"data:[^,;]{0,100}(?:;[^,;]{1,100}){0,4};base64,", re.IGNORECASE)
_LINE_ENDS = str.maketrans("", "", "\r\n")

Location = tuple[str | int, ...]
"""Path of a field in a request body."""


async def read_images(encoded: Mapping[Location, str]) -> tuple[Image, ...]:
    """Decode base64 texts or data URLs into images. ``encoded`` maps their paths in the request body to the texts.

    Raise ``ValidationFailed`` with the path of the first invalid image.
    """
    return await anyio.to_thread.run_sync(_decode_all, encoded) if encoded else ()


async def with_images(
    messages: Iterable[ChatMessage | Encoded], load: Callable[[str], Awaitable[bytes]]
) -> tuple[list[ChatMessage | Encoded], int]:
    """Replace image names in messages by base64 data. Return the new messages and the number of images not found.

    ``load`` returns the bytes of an image, or raises ``BlobNotFound``.
    """
    sent: list[ChatMessage | Encoded] = []
    encoded: dict[str, str | None] = {}
    missing = 0
    for message in messages:
        if isinstance(message, Encoded) or not (names := message.get("images")):
            sent.append(message)
            continue
        for name in names:
            if name not in encoded:
                encoded[name] = await _load_base64(name, load)
        images = [text for name in names if (text := encoded[name]) is not None]
        sent.append({**message, "images": images})
        missing += len(names) - len(images)
    return sent, missing


async def _load_base64(name: str, load: Callable[[str], Awaitable[bytes]]) -> str | None:
    try:
        data = await load(name)
    except BlobNotFound:
        return None
    return await anyio.to_thread.run_sync(lambda: b64encode(data).decode())


def _decode_all(encoded: Mapping[Location, str]) -> tuple[Image, ...]:
    images = []
    for location, text in encoded.items():
        try:
            images.append(Image.of(_decode(text)))
        except ValueError as error:
            raise ValidationFailed.at(location, str(error)) from error
    return tuple(images)


def _decode(text: str) -> bytes:
    prefix = _DATA_URL.match(text)
    try:
        data = b64decode(text[prefix.end() if prefix else 0 :].translate(_LINE_ENDS), validate=True)
    except ValueError as error:
        raise ValueError("not an image: invalid base64") from error
    if not data:
        raise ValueError("not an image: it is empty")
    return data
