"""Titles that sessions have by themselves: of their summary or, until there is one, of their first message. Pure."""

import re
from collections.abc import Iterable, Mapping

from mochi_server.sessions.types import Message

_MAX_CHARS = 80
_READ_CHARS = 2000
_CUT = "..."
_NO_LETTER = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
_END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s|(?<=[\u3002\uff01\uff1f])")


def automatic_title(messages: Iterable[Message], summary: Mapping[str, object] | None) -> str | None:
    """A title of one line, 80 characters at most, ``...`` the last of them when cut; None where nobody spoke."""
    summarized = one_line((summary or {}).get("summary"))
    if summarized:
        return _cut(_END_OF_SENTENCE.split(summarized, maxsplit=1)[0].rstrip(".\u3002") or summarized)
    said = (one_line(message.get("content")) for message in messages if message.get("role") == "user")
    return next((_cut(text) for text in said if text), None)


def one_line(text: object) -> str:
    """The beginning of a text with a space for whatever is no letter; of what is no text, nothing."""
    return _NO_LETTER.sub(" ", text[:_READ_CHARS]).strip() if isinstance(text, str) else ""


def _cut(line: str) -> str:
    if len(line) <= _MAX_CHARS:
        return line
    room = _MAX_CHARS - len(_CUT)
    words = line[: room + 1].rpartition(" ")[0]
    return (words if len(words) > room // 2 else line[:room]) + _CUT
