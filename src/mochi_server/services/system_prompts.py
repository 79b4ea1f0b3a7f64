"""System prompt files: ``.md`` and ``.txt`` files in one directory."""

import os
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from mochi_server.constants import MAX_PROMPT_CHARS
from mochi_server.errors import PromptExists, PromptNotFound, ValidationFailed
from mochi_server.sessions.audit import audit
from mochi_server.sessions.session import shorten
from mochi_server.storage.files import atomic_files
from mochi_server.util import regular_files

SUFFIXES = (".md", ".txt")
_MAX_NAME_BYTES = 200
_FORBIDDEN = frozenset('/\\<>:"|?*')
_RESERVED = re.compile(r"con|prn|aux|nul|conin\$|conout\$|(com|lpt)[1-9]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PromptEntry:
    filename: str
    preview: str
    word_count: int


@dataclass(frozen=True, slots=True)
class SystemPrompt:
    filename: str
    content: str


class SystemPromptService:
    """Service for the prompt files in a directory. The first write creates the directory."""

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        self._creating = Lock()

    def list(self) -> list[PromptEntry]:
        """Return the prompts that ``get`` would return, sorted by name."""
        entries = []
        for path in sorted(self._directory.glob("*")):
            prompt = self._find(path.name)
            if prompt is not None:
                preview = shorten(prompt.content)
                word_count = len(prompt.content.split())
                entries.append(PromptEntry(prompt.filename, preview, word_count))
        return entries

    def get(self, filename: str) -> SystemPrompt:
        """Return a prompt.

        Raise ``PromptNotFound`` if the file is missing, unreadable, larger than 1 MiB or outside
        the directory, or its name is invalid.
        """
        prompt = self._find(filename)
        if prompt is None:
            raise PromptNotFound(filename)
        return prompt

    def create(self, filename: str, content: str) -> SystemPrompt:
        """Create a prompt file.

        Raise ``PromptExists``, ``ValidationFailed`` or ``StorageFailed``.
        """
        if not (is_prompt_name(filename) and unicodedata.is_normalized("NFC", filename)):
            raise ValidationFailed(
                "filename must be a plain file name that ends in .md or .txt.", filename=filename
            )
        with self._creating:
            if os.path.exists(self._path(filename)):  # noqa: PTH110 - never raises; the write does
                raise PromptExists(filename)
            return self._write(filename, content)

    def update(self, filename: str, content: str) -> SystemPrompt:
        """Overwrite a prompt file.

        Raise ``PromptNotFound``, ``ValidationFailed`` or ``StorageFailed``.
        """
        return self._write(self.get(filename).filename, content)

    def delete(self, filename: str) -> None:
        """Delete a prompt file. Raise ``PromptNotFound`` or ``StorageFailed``."""
        prompt = self.get(filename)
        with atomic_files.storage_errors(f"delete the system prompt {filename!r}"):
            self._path(prompt.filename).unlink()
        audit("System prompt file deleted", file=prompt.filename)

    def validate(self, content: str) -> None:
        """Raise ``ValidationFailed`` if the text of a prompt is blank or too long."""
        if not content.strip():
            raise ValidationFailed("content must not be blank.")
        if len(content) >= MAX_PROMPT_CHARS:
            raise ValidationFailed(
                f"content must be shorter than {MAX_PROMPT_CHARS} characters.", length=len(content)
            )

    def _find(self, filename: str) -> SystemPrompt | None:
        if not is_prompt_name(filename):
            return None
        path = self._path(filename)
        try:
            is_inside = path.resolve().is_relative_to(self._directory.resolve())
            if not is_inside or not path.is_file():
                return None
            data = regular_files.read_bytes(path)
        except (OSError, RuntimeError):  # before Python 3.13, a loop of symlinks is a RuntimeError
            return None
        return SystemPrompt(filename, data.decode("utf-8-sig", "replace"))

    def _write(self, filename: str, content: str) -> SystemPrompt:
        self.validate(content)
        data = content.encode("utf-8", "replace")
        with atomic_files.storage_errors(f"write the system prompt {filename!r}"):
            atomic_files.create_directory(self._directory)
            atomic_files.write(self._path(filename), data)
        audit("System prompt file written", file=filename)
        return SystemPrompt(filename, content)

    def _path(self, filename: str) -> Path:
        return self._directory / filename


def is_prompt_name(name: str) -> bool:
    """Return whether ``name`` ends in ``.md`` or ``.txt`` and is valid on every operating
    system.
    """
    stem, dot, suffix = name.rpartition(".")
    plain = unicodedata.normalize("NFKC", stem)
    return (
        dot + suffix in SUFFIXES
        and stem.isprintable()
        and not plain.startswith(".")
        and stem.strip() == stem != ""
        and not _FORBIDDEN & set(plain)
        and not _RESERVED.fullmatch(plain.partition(".")[0].rstrip())
        and len(name.encode("utf-8", "replace")) <= _MAX_NAME_BYTES
    )
