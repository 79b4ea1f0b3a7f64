"""Filler text, and a hash function with the same results in every process and on every machine."""

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
    """Return `count` words of filler text, separated by spaces."""
    return " ".join(islice(cycle(WORDS), count))


def stable_hash(text: str) -> int:
    """Return a 64-bit hash of the text. Unlike with Python's `hash`, the value is equal in all processes."""
    return int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest(), "big")


def hash_sized(text: str) -> str:
    """Return 5 to 500 words of filler text. The number of words depends only on `text`."""
    return lorem(5 + stable_hash(text) % 496)
