"""The file of an import: JSON, or a ZIP archive with JSON and images."""

import math
import re
import zlib
from collections.abc import Mapping
from io import BytesIO
from pathlib import PurePosixPath
from zipfile import BadZipFile, ZipFile

from mochi_server.errors import UnpackedTooLarge, ValidationFailed
from mochi_server.sessions.serialization import parse
from mochi_server.sessions.types import Image

_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_CONVERSATIONS = re.compile(r"conversations(-[0-9]+)?\.json")
_FILE_ID = re.compile(r"file[-_][0-9A-Za-z]+")

Files = Mapping[str, bytes]
"""Unpacked files of a ZIP archive: the files of messages by the ID at the beginning of their names,
and the files of conversations by their whole names.
"""


def read(data: bytes, max_bytes: int) -> tuple[list[object], Files]:
    """Return the items of a file, and the unpacked files if it is a ZIP archive.

    Raises ``ValidationFailed``, or ``UnpackedTooLarge`` for more than ``max_bytes`` unpacked bytes.
    """
    if not data.startswith(_ZIP):
        return _items(data, "The file"), {}
    try:
        members = _unpack(data, max_bytes)
    except (
        *(BadZipFile, EOFError, NotImplementedError, OSError, RuntimeError, ValueError),
        zlib.error,
    ) as error:
        text = f"The ZIP file cannot be read: {error or 'it is cut'}. Download the export again."
        raise ValidationFailed(text, errors=[]) from error
    names = sorted(name for name in members if _CONVERSATIONS.fullmatch(name))
    if not names:
        raise ValidationFailed(
            "The ZIP file has no conversations.json. Send the ZIP file of ChatGPT or Claude as it "
            "was downloaded.",
            errors=[],
        )
    items: list[object] = []
    for name in names:
        items += _items(members[name], f"{name!r} in the ZIP file")
    return items, members


def image(files: Files, pointer: str) -> Image | None:
    """Return the image that a message references, such as ``file-service://file-a1b2``.

    Return None if the export does not have it, or if its format is not supported.
    """
    name = _FILE_ID.match(pointer.rpartition("/")[2])
    try:
        return Image.of(files.get(name[0], b"")) if name else None
    except ValueError:
        return None


def _unpack(data: bytes, max_bytes: int) -> dict[str, bytes]:
    """Return the conversations and the files of messages. The sizes in an archive may be wrong."""
    members: dict[str, bytes] = {}
    left = max_bytes
    archive = ZipFile(BytesIO(data))
    for info in archive.infolist():
        name = PurePosixPath(info.filename).name
        file_id = _FILE_ID.match(name)
        if file_id or _CONVERSATIONS.fullmatch(name):
            with archive.open(info) as member:
                content = member.read(left + 1)
            left -= len(content)
            if left < 0:
                raise UnpackedTooLarge(max_bytes)
            members[file_id[0] if file_id else name] = content
    return members


def _items(data: bytes, source: str) -> list[object]:
    try:
        content = parse(data, levels=math.inf)  # LibreChat nests the messages of a conversation
    except UnicodeDecodeError as error:
        text = f"{source} is not valid JSON: it is not UTF-8 text. Save it as UTF-8."
        raise ValidationFailed(text, errors=[]) from error
    except ValueError as error:
        raise ValidationFailed(f"{source} is not valid JSON: {error}", errors=[]) from error
    return content if isinstance(content, list) else [content]
