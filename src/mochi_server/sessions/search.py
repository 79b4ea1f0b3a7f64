"""Full-text search rules, shared by all session stores.

A session matches if every word of the query is a substring of its title or of one of its messages. Case and Unicode
composition are ignored. Punctuation is matched literally: there is no query syntax.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence

from mochi_server.sessions.serialization import sanitize
from mochi_server.sessions.session import ChatSession

_WORD_SEPARATOR = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
_CHUNK_CHARS = 16_000


def normalized_text(text: str) -> str:
    """Return a text with folded case and composed characters, without characters that databases reject."""
    if text.isascii():
        lower = text.lower()
    else:
        lower = unicodedata.normalize("NFC", unicodedata.normalize("NFC", sanitize(text)).casefold())
    return lower.replace("\0", " ")


def words(query: str | None) -> list[str]:
    """Return the distinct normalized words of a query, longest first, or an empty list for a blank query."""
    distinct = {word for word in _WORD_SEPARATOR.split(normalized_text(query or "")) if word}
    return sorted(distinct, key=lambda word: (-len(word), word))


def searchable_texts(session: ChatSession) -> list[str]:
    """Return the normalized title, then chunks of whole messages. Appending a message changes only the last chunk."""
    title = normalized_text(session.summary_object()["title"] or "")
    return [title, *_chunks(normalized_text(str(message.get("content") or "")) for message in session.history)]


def matches(texts: Sequence[str], search_words: Iterable[str]) -> bool:
    """Return whether every word occurs in at least one of the texts."""
    return all(any(word in text for text in texts) for word in search_words)


def _chunks(texts: Iterable[str]) -> Iterable[str]:
    chunk: list[str] = []
    size = 0
    for text in texts:
        chunk.append(text)
        size += len(text) + 1
        if size >= _CHUNK_CHARS:
            yield "\n".join(chunk)
            chunk, size = [], 0
    if chunk:
        yield "\n".join(chunk)
