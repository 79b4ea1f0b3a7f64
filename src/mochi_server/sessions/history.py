"""The messages of a session as one value, and what was made of them. Pure; does not know what that is.

Old messages do not change, so what is made of them (their lines in a file, what a model is told) is made once: a
history is cut into blocks, which every longer one shares with it, and results are kept with the block that they are of.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from itertools import chain, islice
from typing import Any, TypeVar, cast, overload

from mochi_server.sessions.types import Message

BLOCK_MESSAGES = 64
"""How many messages a block has at least."""

_Result = TypeVar("_Result")


class Block:
    """Whole turns that follow each other: behind a block comes a user message. Never changed in place.

    It has the same blocks before it in every history that it is a part of.
    """

    __slots__ = ("kept", "messages")

    def __init__(self, messages: tuple[Message, ...]) -> None:
        self.messages = messages
        self.kept: dict[Callable[..., Any], Any] = {}
        """What functions gave for it."""

    def cached(self, of: Callable[[Sequence[Message]], _Result]) -> _Result:
        """What a function gives for these messages; it is called once."""
        if of not in self.kept:
            self.kept[of] = of(self.messages)
        return cast("_Result", self.kept[of])


class History(Sequence[Message]):
    """Messages in order, none of which is ever changed in place; growing takes time for what is new alone.

    ``tail`` are the messages behind the last block: at most a turn more than a block has at least.
    """

    def __init__(
        self, blocks: tuple[Block, ...] = (), ends: tuple[int, ...] = (), tail: tuple[Message, ...] = ()
    ) -> None:
        self.blocks = blocks
        self.ends = ends
        """The position behind each block."""
        self.tail = tail

    @classmethod
    def of(cls, messages: Iterable[Message]) -> "History":
        """The history of these messages, which nobody changes from now on."""
        return messages if isinstance(messages, History) else cls().extended(messages)

    def extended(self, messages: Iterable[Message]) -> "History":
        """With these messages behind it, which nobody changes from now on."""
        blocks, ends, tail = [*self.blocks], [*self.ends], [*self.tail]
        for message in messages:
            if len(tail) >= BLOCK_MESSAGES and message.get("role") == "user":
                blocks.append(Block(tuple(tail)))
                ends.append(self._closed_end(ends) + len(tail))
                tail = []
            tail.append(message)
        return History(tuple(blocks), tuple(ends), tuple(tail))

    def prefix(self, length: int) -> "History":
        """The first messages of it, so many."""
        if length >= len(self):
            return self
        # A block whose last message is the last one left is open again: what comes next need not be a user's.
        count = bisect_right(self.ends, length - 1)
        start = self._closed_end(self.ends[:count])
        return History(self.blocks[:count], self.ends[:count], tuple(self[start:length]))

    def fold(self, step: Callable[[_Result | None, Block], _Result]) -> _Result | None:
        """What a step makes of block after block, each time from what it made of those before; it is taken once."""
        known = next((i for i in reversed(range(len(self.blocks))) if step in self.blocks[i].kept), -1)
        result: _Result | None = self.blocks[known].kept[step] if known >= 0 else None
        for block in self.blocks[known + 1 :]:
            result = block.kept[step] = step(result, block)
        return result

    @property
    def tail_start(self) -> int:
        """The position of the first message behind the blocks."""
        return self._closed_end(self.ends)

    def copies(self) -> list[Message]:
        """The messages for somebody who may change them."""
        nested = (dict, list)
        return [deepcopy(m) if any(type(value) in nested for value in m.values()) else m.copy() for m in self]

    def __len__(self) -> int:
        return self.tail_start + len(self.tail)

    def __iter__(self) -> Iterator[Message]:
        return chain(*(block.messages for block in self.blocks), self.tail)

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            return self._between(start, stop) if step == 1 else list(self)[index]
        position = index + len(self) if index < 0 else index
        if position >= self.tail_start:
            return self.tail[position - self.tail_start]
        if position < 0:
            raise IndexError(index)
        number = bisect_right(self.ends, position)
        messages = self.blocks[number].messages
        return messages[position - self.ends[number]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as lists have none

    def _between(self, start: int, stop: int) -> list[Message]:
        """A range of the messages; those before it are not looked at."""
        first = bisect_right(self.ends, start)
        before = self._closed_end(self.ends[:first])
        parts = [*(block.messages for block in self.blocks[first:]), self.tail]
        return list(islice(chain(*parts), start - before, max(stop - before, 0)))

    @staticmethod
    def _closed_end(ends: Sequence[int]) -> int:
        return ends[-1] if ends else 0
