"""Files that a request attaches, and the text that the model reads of a text file or a PDF."""

import asyncio
import codecs
import os
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec

import anyio
import anyio.to_thread

from mochi_server.constants import (
    MAX_ATTACHMENT_NAME_CHARS,
    MAX_ATTACHMENT_TEXT_BYTES,
    MAX_ATTACHMENTS,
    MAX_MESSAGE_CHARS,
    PDF_SECONDS,
)
from mochi_server.errors import ValidationFailed
from mochi_server.sessions.attachments import Attachment
from mochi_server.sessions.images import Location
from mochi_server.sessions.types import Blob
from mochi_server.util.text import install_command

SUPPORTED = "text of any kind, such as Markdown, CSV, JSON, HTML and code, and PDF"
DEFAULT_NAME = "file"
"""Name of a file whose request has none."""

_PDF_START = b"%PDF-"
_PDF_SEARCHED_BYTES = 1024  # readers accept some bytes before the header of a PDF
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([\w.:+-]+)", re.IGNORECASE)
# Python has other encodings that are not for files, some of them very slow.
_FILE_ENCODING = re.compile(
    r"utf[-_]?(8|16|32)|iso[-_]?8859|latin|windows-|cp\d|(us-)?ascii|shift|euc|gb|big5|koi8",
    re.IGNORECASE,
)
_DATA_URL = re.compile(r"data:(?P<type>[^,]{0,200}?)(?P<base64>;base64)?,", re.IGNORECASE)
_LINE_ENDS = str.maketrans("", "", "\r\n")
MEDIA_TYPE = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}(\s*;[\x20-\x7e]{0,200})?", re.ASCII)
_NAME = re.compile(rf"[^\0-\x1f\x7f]{{1,{MAX_ATTACHMENT_NAME_CHARS}}}")
_INVALID_NAME = (
    f"the name must have 1 to {MAX_ATTACHMENT_NAME_CHARS} characters and no control characters"
)
_UTF8 = "text/plain; charset=utf-8"
_OTHER_TYPE = "application/octet-stream"
_PDF_WORKERS = anyio.CapacityLimiter(2)
"""Processes at work, each with much memory."""
_CACHED_PDFS = 16
_pdf_texts: dict[str, str] = {}
"""Texts of PDF files by hash, the latest last.

Clients without a session send their files again with each request.
"""
_TEXT_TYPES = re.compile(r"text/|application/(.+\+)?(json|xml|yaml|x-yaml|javascript|sql|toml)\b")
_TEXT_NAMES = re.compile(
    r".*\.(bat|c|cfg|conf|cpp|cs|css|csv|diff|f90|go|h|hpp|htm|html|ini|java|js|json|kt|log|lua|m|md|pas"
    r"|patch|php|pl|properties|ps1|py|r|rb|rs|rst|sh|sql|srt|swift|tex|toml|ts|tsv|txt|vb|vbs|xml|ya?ml)",
    re.IGNORECASE,
)
_OLD_ENCODINGS = ("cp1252", "latin-1")
"""Encodings of text that is not Unicode. The first one lacks some bytes."""
_CONTROL_CHARACTERS = re.compile("[\0-\x08\x0e-\x1a\x1c-\x1f]")
# The worker imports the same modules as this process, and no others from the working directory.
_PROGRAM = (
    "import sys; sys.path[:] = sys.argv[1:]; from mochi_server.util.pdf_worker import main; main()"
)
_PDF_PROBLEMS = {
    3: "the PDF is encrypted. Remove its password, and attach it again",
    4: "the PDF is damaged and cannot be read. Save it again, or attach its text",
    5: "the PDF contains no text, as a scan does. Recognize its text (OCR) first, or attach its "
    "pages as images",
    6: f"the PDF contains more than {MAX_ATTACHMENT_TEXT_BYTES // 2**20} MB of text. Attach a part "
    "of it",
}
"""Problem by exit code of the worker."""


class UnreadableFile(ValueError):
    """A file has no text for the model. The message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """A file of a request: base64 text or a data URL.

    A data URL also contains the media type, which the request need not repeat.
    """

    name: str
    data: str
    media_type: str | None = None


async def read_attachments(files: Mapping[Location, EncodedFile]) -> tuple[Attachment, ...]:
    """Read the files of a message by path in the request body.

    Raises ``ValidationFailed`` with the path.
    """
    if len(files) > MAX_ATTACHMENTS:
        problem = f"the message has {len(files)} files, and the limit is {MAX_ATTACHMENTS}"
        raise ValidationFailed.at(next(iter(files)), problem)
    attachments = []
    for location, file in files.items():
        try:
            attachments.append(await _read(file))
        except UnreadableFile as error:
            raise ValidationFailed.at(location, f"{file.name!r}: {error}") from error
    return tuple(attachments)


async def _read(file: EncodedFile) -> Attachment:
    if not _NAME.fullmatch(file.name):
        raise UnreadableFile(_INVALID_NAME)
    media_type, data = await anyio.to_thread.run_sync(_decode_data, file)
    if not MEDIA_TYPE.fullmatch(media_type):
        raise UnreadableFile(f"{media_type[:100]!r} is no media type. Send one such as text/csv")
    text = await text_of(data, media_type, file.name)
    return await anyio.to_thread.run_sync(_attachment, file.name, media_type, data, text)


def _decode_data(file: EncodedFile) -> tuple[str, bytes]:
    """Return the media type and the bytes of a file."""
    prefix = _DATA_URL.match(file.data)
    media_type = prefix["type"] if prefix else ""
    if prefix and not prefix["base64"]:
        raise UnreadableFile("the data URL is not in base64. Encode the file in base64")
    encoded = file.data[prefix.end() if prefix else 0 :].translate(_LINE_ENDS)
    try:
        data = b64decode(encoded, validate=True)
    except ValueError as error:
        raise UnreadableFile(
            "the data is not valid base64. Send the bytes of the file in base64, or a data URL"
        ) from error
    if not data:
        raise UnreadableFile("the file is empty. Attach a file with text")
    return file.media_type or media_type or _OTHER_TYPE, data


def _attachment(name: str, media_type: str, data: bytes, text: str) -> Attachment:
    return Attachment(
        name=name,
        original=Blob.hashed(data, media_type),
        text=Blob.hashed(text.encode(), _UTF8),
        size=len(data),
        characters=len(text),
    )


async def text_of(data: bytes, media_type: str, name: str) -> str:
    """Return the text of a file. Equal arguments always have the same text.

    Args:
        data: The bytes of the file.
        media_type: Media type of the request, also with ``charset``. The first bytes of a PDF take
            precedence.
        name: Name of the file, for its suffix.

    Raises:
        UnreadableFile: The file is neither text nor a PDF with text, it is too large, or this
            server cannot read PDF files.
    """
    if _is_pdf(data, media_type, name):
        return await _pdf_text(data)
    if len(data) > MAX_ATTACHMENT_TEXT_BYTES:
        megabytes = MAX_ATTACHMENT_TEXT_BYTES // 2**20
        raise UnreadableFile(f"the file has more than {megabytes} MB. Attach a part of it")
    text = await anyio.to_thread.run_sync(_plain_text, data, media_type, name)
    if text is None:
        raise UnreadableFile(
            f"files of this kind are not supported. Supported are {SUPPORTED}. "
            "Send images as images of the message"
        )
    return text


def _is_pdf(data: bytes, media_type: str, name: str) -> bool:
    if data.startswith(_PDF_START):
        return True
    return _PDF_START in data[:_PDF_SEARCHED_BYTES] and not _is_named_as_text(media_type, name)


def _is_named_as_text(media_type: str, name: str) -> bool:
    return bool(_TEXT_TYPES.match(media_type) or _TEXT_NAMES.fullmatch(name))


def _plain_text(data: bytes, media_type: str, name: str) -> str | None:
    text = _decoded(data, media_type, name)
    if text is None or _CONTROL_CHARACTERS.search(text):
        return None
    return text


def _decoded(data: bytes, media_type: str, name: str) -> str | None:
    """Return the text of a file that is not a PDF, or None if no encoding fits."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return _decode(data, encoding)
    encodings = ["utf-8"]
    charset = _CHARSET.search(media_type)
    if charset and _FILE_ENCODING.match(charset[1]):
        encodings = [charset[1], "utf-8"]  # some clients declare another encoding than the file's
    if _is_named_as_text(media_type, name):
        encodings += _OLD_ENCODINGS
    for encoding in encodings:
        text = _decode(data, encoding)
        if text is not None:
            return text
    return None


def _decode(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except (UnicodeError, LookupError):
        return None


async def _pdf_text(data: bytes) -> str:
    """Return the text of a PDF, from the cache or from a process that reads it."""
    digest = await anyio.to_thread.run_sync(_hash, data)
    text = _pdf_texts.pop(digest, None)
    if text is None:
        async with _PDF_WORKERS:
            text = await _text_from_worker(data)
    if len(text) <= MAX_MESSAGE_CHARS:
        _pdf_texts[digest] = text
    while len(_pdf_texts) > _CACHED_PDFS:
        del _pdf_texts[next(iter(_pdf_texts))]
    return text


def _hash(data: bytes) -> str:
    return sha256(data).hexdigest()


async def _text_from_worker(data: bytes) -> str:
    """Return the text of a PDF. A process of its own reads it, for at most ``PDF_SECONDS``."""
    if find_spec("pypdf") is None:
        command = install_command("files")
        raise UnreadableFile(
            f"this server cannot read PDF files. Install its extra `files`: {command}"
        )
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("MOCHI_")
    }
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-c", _PROGRAM, *sys.path),
        env=environment,
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        start_new_session=True,
    )
    try:
        output, _ = await worker.communicate(data)
    finally:
        if worker.returncode is None:
            worker.kill()
    if worker.returncode == 0:
        return output.decode()
    too_expensive = f"reading the PDF took more than {PDF_SECONDS} s, or too much memory"
    problem = _PDF_PROBLEMS.get(worker.returncode or 0)
    raise UnreadableFile(problem or f"{too_expensive}. Attach its text instead")
