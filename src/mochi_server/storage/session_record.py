"""Immutable value of a stored session, its unfinished turn included. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any

from mochi_server.sessions.crash_recovery import close_partial, with_missing_results
from mochi_server.sessions.history import Block, History
from mochi_server.sessions.serialization import BETWEEN_MESSAGES, encode, encode_file, normalize
from mochi_server.sessions.session import ChatSession, SessionMetadata, revision_at
from mochi_server.sessions.types import Message
from mochi_server.util.clock import timestamp


@dataclass(frozen=True)
class SessionRecord:
    """A stored session, never changed in place. ``partial`` is what a turn that has not ended is at.

    ``writer`` names the process that writes it, see ``presence``.
    """

    metadata: SessionMetadata
    messages: History
    extra: dict[str, Any] = field(default_factory=dict)
    partial: Message | None = None
    writer: str | None = None
    known_tail: tuple[bytes, ...] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, session: ChatSession) -> "SessionRecord":
        return cls(session.metadata, session.history, session.extra)

    @property
    def lines(self) -> list[bytes]:
        """Every message encoded; those of a block of the history together."""
        return [*(block.cached(_encoded) for block in self.messages.blocks), *self._tail]

    @cached_property
    def mark(self) -> str:
        """Names this very history."""
        blocks = self.messages.fold(_hashed)
        hashed = blocks.copy() if blocks else blake2b(digest_size=8)
        hashed.update((b"\n" if blocks else b"") + b"\n".join(self._tail))
        return hashed.hexdigest()

    @property
    def revision(self) -> str:
        return revision_at(len(self.messages), self.messages[-1] if self.messages else None)

    def file(self) -> bytes:
        return encode_file(replace(self.metadata, message_count=len(self.messages)), self.lines, self.extra)

    def session(self) -> ChatSession:
        """The session for a caller, without the unfinished answer."""
        metadata = SessionMetadata.from_dict(normalize(self.metadata.to_dict()))
        metadata.message_count = len(self.messages)
        return ChatSession(metadata, self.messages, dict(self.extra))

    def summary(self) -> dict[str, Any]:
        return ChatSession(self.metadata, self.messages).summary_object()

    def position(self, index: int) -> int:
        """A position in the history, or the nearest there is."""
        return max(0, min(index, len(self.messages)))

    def with_tail(self, from_index: int, messages: Sequence[Message], updated_at: str) -> "SessionRecord":
        """The history up to a position, then these messages; ends what was unfinished."""
        kept = self.messages.prefix(self.position(from_index))
        longer = kept.extended(messages)
        is_same_tail = kept is self.messages and len(kept.blocks) == len(longer.blocks)
        return replace(
            self,
            metadata=replace(self.metadata, updated_at=updated_at),
            messages=longer,
            known_tail=(*self._tail, *map(encode, messages)) if is_same_tail else None,
            partial=None,
            writer=None,
        )

    def with_fields(self, fields: Mapping[str, Any], updated_at: str) -> "SessionRecord":
        """Metadata fields as JSON, set by name; null is the field's default. Raises ValueError for a null model."""
        latest = max(self.metadata.updated_at, updated_at, key=timestamp)
        changed = {**self.metadata.to_dict(), **fields, "updated_at": latest}
        return self._same_history(metadata=SessionMetadata.from_dict(changed))

    def with_partial(self, partial: Message | None, writer: str | None = None) -> "SessionRecord":
        return self._same_history(partial=partial, writer=writer)

    def after_crash(self) -> "SessionRecord":
        """With what was unfinished as the messages it has become, and a result for each call."""
        left = [] if self.partial is None else close_partial(self.partial)
        messages = with_missing_results(self.messages.extended(left) if left else self.messages)
        if messages is self.messages:
            return self
        start = len(self.messages) if len(messages) == len(self.messages) + len(left) else 0
        return self.with_tail(start, messages[start:], self.metadata.updated_at)

    @cached_property
    def _tail(self) -> tuple[bytes, ...]:
        return tuple(map(encode, self.messages.tail)) if self.known_tail is None else self.known_tail

    def _same_history(self, **changes: Any) -> "SessionRecord":
        after = replace(self, known_tail=self.__dict__.get("_tail", self.known_tail), **changes)
        if "mark" in self.__dict__:
            after.__dict__["mark"] = self.mark
        return after


def _encoded(messages: Sequence[Message]) -> bytes:
    return BETWEEN_MESSAGES.join(map(encode, messages))


def _hashed(before: blake2b | None, block: Block) -> blake2b:
    """The hash of the encoded messages of a history up to the end of a block."""
    hashed = before.copy() if before else blake2b(digest_size=8)
    hashed.update(b"\n" if before else b"")
    hashed.update(block.cached(_encoded).replace(BETWEEN_MESSAGES, b"\n"))  # no line has any in it
    return hashed
