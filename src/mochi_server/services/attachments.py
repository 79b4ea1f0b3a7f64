"""Text of attached files: what the model reads of a text file or a PDF."""

import asyncio
import codecs
import os
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE
from importlib.util import find_spec
from pathlib import PurePath

from mochi_server.constants import MAX_ATTACHMENT_TEXT_BYTES, PDF_SECONDS

SUPPORTED = "text of any kind, such as Markdown, CSV, JSON, HTML and code, and PDF"
INSTALL = "Install the extra: pip install 'mochi-server[files]'"

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
_TEXT_TYPES = re.compile(r"text/|application/(.+\+)?(json|xml|yaml|x-yaml|javascript|sql|toml)\b")
_TEXT_SUFFIXES = {".csv", ".htm", ".html", ".md", ".txt", ".tsv"}
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


async def text_of(data: bytes, media_type: str, name: str) -> str:
    """Return the text of a file. Equal arguments always have the same text.

    Args:
        data: The bytes of the file.
        media_type: Media type of the request, also with ``charset``. Magic bytes precede it.
        name: Name of the file, for its suffix.

    Raises:
        UnreadableFile: The file is neither text nor a PDF with text, or it is too large.
    """
    if _PDF_START in data[:_PDF_SEARCHED_BYTES]:
        return await _pdf_text(data)
    if len(data) > MAX_ATTACHMENT_TEXT_BYTES:
        megabytes = MAX_ATTACHMENT_TEXT_BYTES // 2**20
        raise UnreadableFile(f"the file has more than {megabytes} MB. Attach a part of it")
    text = _decoded(data, media_type, name)
    if text is None or _CONTROL_CHARACTERS.search(text):
        raise UnreadableFile(f"files of this kind are not supported. Supported are {SUPPORTED}")
    return text


def _decoded(data: bytes, media_type: str, name: str) -> str | None:
    """Return the text of a file that is not a PDF, or None if no encoding fits."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return _decode(data, encoding)
    charset = _CHARSET.search(media_type)
    if charset:
        return _decode(data, charset[1])
    text = _decode(data, "utf-8")
    is_text = _TEXT_TYPES.match(media_type) or PurePath(name).suffix.lower() in _TEXT_SUFFIXES
    if text is None and is_text:
        return _decode(data, "latin-1")
    return text


def _decode(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except (UnicodeError, LookupError):
        return None


async def _pdf_text(data: bytes) -> str:
    """Return the text of a PDF, which a process reads that ends after ``PDF_SECONDS``."""
    if find_spec("pypdf") is None:
        raise UnreadableFile(f"this server cannot read PDF files. {INSTALL}")
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
