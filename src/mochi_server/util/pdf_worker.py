"""Process that writes the text of the PDF on stdin to stdout.

Its exit code is the problem, if there is one. Other codes mean a limit of time or memory.
"""

import io
import logging
import sys
from collections.abc import Iterator

from pypdf import PdfReader
from pypdf.errors import DependencyError, LimitReachedError

from mochi_server.constants import MAX_ATTACHMENT_TEXT_BYTES, PDF_SECONDS
from mochi_server.util import platform

# `services/attachments.py` repeats these exit codes, because it works without pypdf.
ENCRYPTED = 3
DAMAGED = 4
NO_TEXT = 5
TOO_LARGE = 6
_MAX_MEMORY = 1 << 30


def main() -> None:
    """Read a PDF from stdin and write its text, one page after the other."""
    platform.limit_memory(_MAX_MEMORY)
    logging.disable()
    with platform.end_process_after(PDF_SECONDS):
        pages = _pages(sys.stdin.buffer.read())
    text = "\n\n".join(pages).strip()
    if not text:
        sys.exit(NO_TEXT)
    sys.stdout.buffer.write(text.encode(errors="replace"))


def _pages(data: bytes) -> list[str]:
    """Return the text of each page, or end this process with the code of a problem."""
    pages: list[str] = []
    size = 0
    try:
        for text in _page_texts(data):
            pages.append(text)
            size += len(text)
            if size > MAX_ATTACHMENT_TEXT_BYTES:
                sys.exit(TOO_LARGE)
    except LimitReachedError:
        sys.exit(TOO_LARGE)
    except DependencyError:
        sys.exit(ENCRYPTED)  # only the library `cryptography` can read it
    except MemoryError:
        raise
    except Exception:
        sys.exit(DAMAGED)  # pypdf raises various errors for damaged files
    return pages


def _page_texts(data: bytes) -> Iterator[str]:
    try:
        reader = PdfReader(io.BytesIO(data))
    except NotImplementedError:
        sys.exit(ENCRYPTED)  # with a certificate, not with a password
    if reader.is_encrypted and not reader.decrypt(""):
        sys.exit(ENCRYPTED)
    for page in reader.pages:
        yield page.extract_text()
