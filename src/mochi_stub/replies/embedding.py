"""Deterministic embeddings: texts that share words or sequences of letters have similar vectors."""

from __future__ import annotations

import zlib
from math import sqrt
from random import Random

# each feature also adds a small value to these prefixes of the vector, so that a shortened vector remains useful
PREFIX_LENGTH, SHORT_PREFIX_LENGTH = 64, 8
NOISE = 1e-4  # a word or trigram adds 1


def embed(text: str, length: int) -> list[float]:
    """Return an embedding of the text: `length` numbers with norm 1, derived from its words and trigrams.

    No number is 0, so that a shortened vector can be scaled to norm 1.
    """
    length = max(length, 1)
    noise = Random(zlib.crc32(text.encode(errors="replace"))).randbytes(length)  # noqa: S311 - not for secrets
    vector = [(byte - 127.5) * NOISE for byte in noise]
    for feature in _features(text):
        bits, index = divmod(zlib.crc32(feature.encode(errors="replace")), length)
        vector[index] += 1.0 if bits & 1 else -1.0
        small = 0.2 + (bits >> 1 & 7) / 80  # different values, because equal ones would cancel out
        vector[(bits >> 4) % min(PREFIX_LENGTH, length)] += small if bits & 2 else -small
        vector[(bits >> 10) % min(SHORT_PREFIX_LENGTH, length)] += small if bits & 4 else -small
    return normalised(vector)


def normalised(vector: list[float]) -> list[float]:
    """Return the vector scaled to norm 1. A zero vector is returned unchanged."""
    norm = sqrt(sum(value * value for value in vector))
    return [value / norm for value in vector] if norm else vector


def _features(text: str) -> list[str]:
    words = text.lower().split()
    padded = f"  {' '.join(words)}  "
    return words + [padded[at : at + 3] for at in range(len(padded) - 2)]
