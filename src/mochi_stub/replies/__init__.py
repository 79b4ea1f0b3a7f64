"""Values for replies, which depend on seeds only: filler text, hashes, embeddings, times
and IDs.
"""

import hashlib
import string
import zlib
from dataclasses import dataclass
from functools import lru_cache
from itertools import cycle, islice
from math import sqrt
from random import Random

_PASSAGE = (
    "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut "
    "labore et dolore magna aliqua ut enim ad minim veniam quis nostrud exercitation ullamco "
    "laboris nisi ut aliquip ex ea commodo consequat duis aute irure dolor in reprehenderit in "
    "voluptate velit esse cillum dolore eu fugiat nulla pariatur excepteur sint occaecat "
    "cupidatat non proident sunt in culpa qui officia deserunt mollit anim id est laborum"
)
WORDS = _PASSAGE.split()


@lru_cache(maxsize=1024)
def lorem(count: int) -> str:
    """Return `count` words of filler text, separated by spaces."""
    return " ".join(islice(cycle(WORDS), count))


def shortened(text: str, length: int) -> str:
    """Return the text. If it has more than `length` characters, an ellipsis replaces the others."""
    if len(text) <= length:
        return text
    return f"{text[:length]}..."


def stable_hash(text: str) -> int:
    """Return a 64-bit hash of the text.

    Unlike with Python's `hash`, the value is equal in all processes.
    """
    data = text.encode(errors="replace")
    digest = hashlib.blake2b(data, digest_size=8).digest()
    return int.from_bytes(digest, "big")


def hash_sized(text: str) -> str:
    """Return 5 to 500 words of filler text. The number of words depends only on `text`."""
    count = 5 + stable_hash(text) % 496
    return lorem(count)


NOISE = 1e-4  # a word or trigram adds 1


def embed(text: str, length: int) -> list[float]:
    """Return an embedding of the text: `length` numbers with norm 1, none of them 0, from its words
    and trigrams.

    A `length` below 1 counts as 1.
    """
    length = max(length, 1)
    generator = Random(_checksum(text))  # noqa: S311 - not for secrets
    vector = [(byte - 127.5) * NOISE for byte in generator.randbytes(length)]
    words = text.lower().split()
    for feature in words + _trigrams(words):
        bits, index = divmod(_checksum(feature), length)
        if bits & 1:
            vector[index] += 1.0
        else:
            vector[index] -= 1.0
    return normalised(vector)


def _trigrams(words: list[str]) -> list[str]:
    line = " ".join(words)
    padded = f"  {line}  "
    trigrams = []
    for start in range(len(padded) - 2):
        end = start + 3
        trigrams.append(padded[start:end])
    return trigrams


def _checksum(text: str) -> int:
    data = text.encode(errors="replace")
    return zlib.crc32(data)


def normalised(vector: list[float]) -> list[float]:
    """Return the vector scaled to norm 1. A zero vector is returned unchanged."""
    squares = [value * value for value in vector]
    norm = sqrt(sum(squares))
    if not norm:
        return vector
    return [value / norm for value in vector]


FIRST_START = 1_767_225_600 * 10**9  # 2026-01-01T00:00:00Z
SPAN = 30 * 24 * 3600 * 10**9
LOAD_DURATION = 1_500_000
# nanoseconds that only reloads add: first loads must not depend on the order of requests
RELOAD_DURATION = 100_000_000
NANOSECONDS_PER_PROMPT_TOKEN = 1_000
_LETTERS_AND_DIGITS = (string.ascii_lowercase + string.digits).encode()
ALPHABET = (_LETTERS_AND_DIGITS * 8)[:256]  # the character for each value of a byte


@dataclass(frozen=True)
class SeededIds:
    """Generated start time and IDs for the reply to one request, of which `fingerprint` is
    a hash.
    """

    fingerprint: int

    @property
    def start(self) -> int:
        """Simulated arrival time of the request, in nanoseconds since 1970."""
        after_first = self.fingerprint % SPAN
        return FIRST_START + after_first

    def id(self, index: int, length: int) -> str:
        """Return a pseudorandom ID of `length` characters, at most 64.

        Each `index` gives a different ID.
        """
        seed = f"{self.fingerprint}/{index}".encode()
        digest = hashlib.blake2b(seed, digest_size=length).digest()
        return digest.translate(ALPHABET).decode()
