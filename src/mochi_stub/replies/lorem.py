"""Filler text, the same on every machine and in every process."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from itertools import cycle, islice

_PASSAGE = (
    "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore et dolore magna "
    "aliqua ut enim ad minim veniam quis nostrud exercitation ullamco laboris nisi ut aliquip ex ea commodo consequat "
    "duis aute irure dolor in reprehenderit in voluptate velit esse cillum dolore eu fugiat nulla pariatur excepteur "
    "sint occaecat cupidatat non proident sunt in culpa qui officia deserunt mollit anim id est laborum"
)
WORDS = _PASSAGE.split()


@lru_cache(maxsize=1024)
def lorem(count: int) -> str:
    """`count` words, separated by blanks."""
    return " ".join(islice(cycle(WORDS), count))


def stable_hash(text: str) -> int:
    """A whole number made from the text alone; Python's own `hash` differs from process to process."""
    return int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest(), "big")


def hash_sized(text: str) -> str:
    """Between 5 and 500 words, how many depends on the text alone."""
    return lorem(5 + stable_hash(text) % 496)
