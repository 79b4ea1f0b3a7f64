"""Text to vector: texts that share words and letters come out close to each other. Deterministic."""

from __future__ import annotations

import zlib
from math import sqrt

NEAR, FRONT = 64, 8
"""Every word and triple is also told, more quietly, among the first numbers: a vector that is cut keeps its meaning."""


def embed(text: str, length: int) -> list[float]:
    """A vector of `length` numbers and of unit length, made from the text's words and letter triples."""
    vector = [0.0] * length
    for feature in _features(text):
        rest, place = divmod(zlib.crc32(feature.encode(errors="replace")), length)
        vector[place] += 1.0 if rest & 1 else -1.0
        quiet = 0.2 + (rest >> 1 & 7) / 80  # not all the same, or they would cancel each other out
        vector[(rest >> 4) % min(NEAR, length)] += quiet if rest & 2 else -quiet
        vector[(rest >> 10) % min(FRONT, length)] += quiet if rest & 4 else -quiet
    return normalised(vector)


def normalised(vector: list[float]) -> list[float]:
    """The vector at unit length; one without direction stays as it is."""
    norm = sqrt(sum(value * value for value in vector))
    return [value / norm for value in vector] if norm else vector


def _features(text: str) -> list[str]:
    words = text.lower().split()
    padded = f"  {' '.join(words)}  "
    return words + [padded[at : at + 3] for at in range(len(padded) - 2)]
