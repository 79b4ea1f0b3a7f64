"""Files that are attached to messages, and how the model reads them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import orjson

from mochi_server.sessions.types import AttachmentReference, Blob

_MARK_CHARS = 8  # of the hash, which the text of a file cannot contain by accident


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file of a new message: its bytes, and the text that the model reads.

    Both are the same for a text file in UTF-8.
    """

    name: str
    original: Blob
    text: Blob
    size: int
    """Number of bytes of the original."""
    characters: int
    """Number of characters of the text."""

    @property
    def reference(self) -> AttachmentReference:
        """Value by which a message references this file."""
        return {
            "name": self.name,
            "media_type": self.original.media_type,
            "size": self.size,
            "sha256": self.original.sha256,
            "text_sha256": self.text.sha256,
            "characters": self.characters,
        }

    @property
    def blobs(self) -> tuple[Blob, ...]:
        if self.original.sha256 == self.text.sha256:
            return (self.original,)
        return (self.original, self.text)

    def without_data(self) -> "Attachment":
        return replace(self, original=self.original.without_data(), text=self.text.without_data())


def text_in_prompt(reference: AttachmentReference, text: str) -> str:
    """Return the text of a file between marks, which are always the same for the same file."""
    mark = reference["text_sha256"][:_MARK_CHARS]
    file = f"file {_quoted(reference)} {mark}"
    return f"[Begin of {file}]\n{text}\n[End of {file}]"


def size_in_prompt(references: Sequence[AttachmentReference]) -> int:
    """Return the number of characters that files add to the content of their message."""
    size = 0
    for reference in references:
        size += reference["characters"] + len(with_files("", [text_in_prompt(reference, "")]))
    return size


def omission_note(reference: AttachmentReference, reason: str) -> str:
    """Return the text that replaces a file in a prompt."""
    return f"[The file {_quoted(reference)} {reason}.]"


def with_files(content: str, files: Sequence[str]) -> str:
    """Return the content of a message after its files, as the model receives it."""
    return "\n\n".join([*files, content])


def _quoted(reference: AttachmentReference) -> str:
    return orjson.dumps(reference["name"]).decode()
