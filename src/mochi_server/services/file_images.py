"""The images in a session's file: ``blobs``, base64 of their bytes by their names, so that an import has them, too."""

import asyncio
import binascii
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Collection, Mapping

from mochi_server.errors import BlobNotFound
from mochi_server.sessions.images import Image
from mochi_server.sessions.store import SessionStore

_END = b"\n}\n"


async def with_images(file: bytes, names: Collection[str], store: SessionStore) -> AsyncIterator[bytes]:
    """An encoded session file with images, in parts, one for each: many are never in memory together.

    Those that are not there any more are left out.
    """
    if not names:
        yield file
        return
    yield file.removesuffix(_END) + b',\n  "blobs": {'
    between = b"\n    "
    for name in names:
        try:
            data = await store.load_image(name)
        except BlobNotFound:
            continue
        encoded = await asyncio.to_thread(b64encode, data)
        yield b"".join([between, b'"', name.encode(), b'": "', encoded, b'"'])
        between = b",\n    "
    yield b"\n  }" + _END


def read_images(blobs: Mapping[str, str], named: Collection[str]) -> list[Image]:
    """The images of a file that its messages name. Raises ValueError for one that is broken or is another."""
    return [_image(name, encoded) for name, encoded in blobs.items() if name in named]


def _image(name: str, encoded: str) -> Image:
    try:
        image = Image.of(b64decode(encoded, validate=True))
    except binascii.Error as error:
        raise ValueError(f"blobs.{name}: not an image: the base64 is broken") from error
    except ValueError as error:
        raise ValueError(f"blobs.{name}: {error}") from error
    if image.sha256 != name:
        raise ValueError(f"blobs.{name}: the bytes are another image's, {image.sha256}")
    return image
