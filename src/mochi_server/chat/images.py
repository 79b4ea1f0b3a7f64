"""Images on their way in and on their way to a model: base64 at both ends, decoded and encoded away from the loop."""

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence

import anyio.to_thread

from mochi_server.errors import BlobNotFound, ValidationFailed
from mochi_server.ollama.types import ChatMessage, Encoded
from mochi_server.sessions.images import Image
from mochi_server.sessions.store import SessionStore

_DATA_URL = re.compile(r"data:[^,;]{0,100}(?:;[^,;]{1,100}){0,4};base64,", re.IGNORECASE)
_LINE_ENDS = str.maketrans("", "", "\r\n")


async def read_images(encoded: Sequence[str]) -> tuple[Image, ...]:
    """Images as a request has them: base64, perhaps as data URLs. Raises ``ValidationFailed``, naming the position."""
    return await anyio.to_thread.run_sync(_read_all, encoded) if encoded else ()


async def with_images(
    messages: Iterable[ChatMessage | Encoded], store: SessionStore
) -> tuple[list[ChatMessage | Encoded], int]:
    """Messages as they are sent, with base64 in place of the names of images, and how many are not there any more.

    Those that are encoded already have none.
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
                encoded[name] = await _encoded(name, store)
        found = [text for name in names if (text := encoded[name]) is not None]
        sent.append({**message, "images": found})
        missing += len(names) - len(found)
    return sent, missing


async def _encoded(name: str, store: SessionStore) -> str | None:
    try:
        data = await store.load_image(name)
    except BlobNotFound:
        return None
    return await anyio.to_thread.run_sync(lambda: b64encode(data).decode())


def _read_all(encoded: Sequence[str]) -> tuple[Image, ...]:
    images = []
    for index, text in enumerate(encoded):
        try:
            images.append(Image.of(_decoded(text)))
        except ValueError as error:
            problem = {"loc": ["body", "images", index], "msg": str(error), "type": "value_error"}
            raise ValidationFailed(f"images.{index}: {error}", errors=[problem]) from error
    return tuple(images)


def _decoded(text: str) -> bytes:
    """Decode base64, perhaps of a data URL. Raises ``ValueError``."""
    prefix = _DATA_URL.match(text)
    try:
        data = b64decode(text[prefix.end() if prefix else 0 :].translate(_LINE_ENDS), validate=True)
    except ValueError as error:
        raise ValueError("not an image: the base64 is broken") from error
    if not data:
        raise ValueError("not an image: it is empty")
    return data
