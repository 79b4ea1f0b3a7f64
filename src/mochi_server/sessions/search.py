"""What finding a session by its words means, whoever keeps the sessions. Pure.

A session is found when every word of the query occurs in it, anywhere: as a part of its title or of the text of one of
its messages. Case makes no difference, nor does how a character is composed. There is no syntax; signs stand for
themselves.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence

from mochi_server.sessions.serialization import sanitize
from mochi_server.sessions.session import ChatSession

_BETWEEN_WORDS = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
_PIECE_CHARS = 16_000


def normalized_text(text: str) -> str:
    """A text as it is compared; what a database cannot hold is replaced."""
    lower = text.lower() if text.isascii() else _composed(_composed(sanitize(text)).casefold())
    return lower.replace("\0", " ")


def words(query: str | None) -> list[str]:
    """The different words of a query, folded; none for a blank one, which finds everything."""
    return sorted(
        {word for word in _BETWEEN_WORDS.split(normalized_text(query or "")) if word}, key=lambda w: (-len(w), w)
    )


def searchable_texts(session: ChatSession) -> list[str]:
    """What a session is searched in, folded: its title, then its messages, short ones joined to pieces.

    No message is torn, and a message that is added changes the last piece only.
    """
    title = session.summary_object()["title"]
    return [
        normalized_text(title or ""),
        *_joined(normalized_text(str(m.get("content") or "")) for m in session.history),
    ]


def matches(texts: Sequence[str], wanted: Iterable[str]) -> bool:
    """Whether every word occurs in one of the texts."""
    return all(any(word in text for text in texts) for word in wanted)


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _joined(texts: Iterable[str]) -> Iterable[str]:
    piece: list[str] = []
    size = 0
    for text in texts:
        piece.append(text)
        size += len(text) + 1
        if size >= _PIECE_CHARS:
            yield "\n".join(piece)
            piece, size = [], 0
    if piece:
        yield "\n".join(piece)
