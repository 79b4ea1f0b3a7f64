"""The file of an import: JSON, or a ZIP archive with JSON and images."""

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import PurePosixPath
from zipfile import BadZipFile, ZipFile, ZipInfo

from mochi_server.errors import UnpackedTooLarge, ValidationFailed
from mochi_server.sessions.serialization import parse
from mochi_server.sessions.types import Image

_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_CONVERSATIONS = re.compile(r"conversations(-[0-9]+)?\.json")
_FILE_ID = re.compile(r"file[-_][0-9A-Za-z]+")
_DAMAGE = (BadZipFile, EOFError, NotImplementedError, OSError, RuntimeError, ValueError, zlib.error)


@dataclass
class Budget:
    """Number of bytes that may still be unpacked, of ``limit``."""

    limit: int
    left: int

    def spend(self, size: int) -> None:
        """Raise ``UnpackedTooLarge`` if the unpacked bytes exceed the limit."""
        self.left -= size
        if self.left < 0:
            raise UnpackedTooLarge(self.limit)


@dataclass(frozen=True)
class Archive:
    """Files of an export in a ZIP archive, by the ID at the beginning of their names."""

    members: Mapping[str, ZipInfo] = field(default_factory=dict)
    file: ZipFile | None = None
    budget: Budget = field(default_factory=lambda: Budget(0, 0))

    def image(self, pointer: str) -> Image | None:
        """Return the image that a message references, such as ``file-service://file-a1b2``.

        Return None if the archive does not have it, or if its format is not supported.
        """
        name = _FILE_ID.match(pointer.rpartition("/")[2])
        member = self.members.get(name[0]) if name else None
        if member is None or self.file is None:
            return None
        try:
            return Image.of(_unpack(self.file, member, self.budget))
        except ValueError:
            return None


def read(data: bytes, max_bytes: int) -> tuple[object, Archive]:
    """Return the JSON value of a file, and the archive that has the other files of the export.

    Raises ``ValidationFailed``, or ``UnpackedTooLarge`` for more than ``max_bytes`` unpacked bytes.
    """
    if not data.startswith(_ZIP):
        return _parse(data, "The file"), Archive()
    try:
        file = ZipFile(BytesIO(data))
    except _DAMAGE as error:
        raise _damaged(error) from error
    archive = Archive(_members(file), file, Budget(max_bytes, max_bytes))
    found = [info for info in file.infolist() if _CONVERSATIONS.fullmatch(_name_of(info))]
    if not found:
        raise ValidationFailed(
            "The ZIP file has no conversations.json. Send the ZIP file of ChatGPT or Claude as it "
            "was downloaded.",
            errors=[],
        )
    contents = [
        _parse(_unpack(file, info, archive.budget), f"{info.filename[:200]!r} in the ZIP file")
        for info in sorted(found, key=_name_of)
    ]
    if len(contents) == 1:
        return contents[0], archive
    items: list[object] = []
    for content in contents:
        items += content if isinstance(content, list) else [content]
    return items, archive


def _parse(data: bytes, source: str) -> object:
    try:
        return parse(data)
    except UnicodeDecodeError as error:
        raise ValidationFailed(
            f"{source} is not valid JSON: it is not UTF-8 text. Save it as UTF-8.", errors=[]
        ) from error
    except ValueError as error:
        raise ValidationFailed(f"{source} is not valid JSON: {error}.", errors=[]) from error


def _members(file: ZipFile) -> dict[str, ZipInfo]:
    members: dict[str, ZipInfo] = {}
    for info in file.infolist():
        if name := _FILE_ID.match(_name_of(info)):
            members.setdefault(name[0], info)
    return members


def _name_of(info: ZipInfo) -> str:
    return PurePosixPath(info.filename).name


def _unpack(file: ZipFile, info: ZipInfo, budget: Budget) -> bytes:
    """Return the bytes of a member. The size in its header may be wrong."""
    try:
        with file.open(info) as member:
            data = member.read(budget.left + 1)
    except _DAMAGE as error:
        raise _damaged(error) from error
    budget.spend(len(data))
    return data


def _damaged(error: Exception) -> ValidationFailed:
    return ValidationFailed(
        f"The ZIP file cannot be read: {error or 'it is cut'}. Download the export again.",
        errors=[],
    )
