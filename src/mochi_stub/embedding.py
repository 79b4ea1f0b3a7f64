"""Text to vector: texts that share words and letters come out close to each other. Deterministic."""

from __future__ import annotations

import zlib
from math import sqrt


def embed(text: str, length: int) -> list[float]:
    """A vector of `length` numbers and of unit length, made from the text's words and letter triples."""
    vector = [0.0] * length
    for feature in _features(text):
        code = zlib.crc32(feature.encode(errors="replace"))
        vector[code % length] += 1.0 if code & 0x8000_0000 else -1.0
    return normalised(vector)


def normalised(vector: list[float]) -> list[float]:
    """The vector at unit length; one without direction stays as it is."""
    norm = sqrt(sum(value * value for value in vector))
    return [value / norm for value in vector] if norm else vector


def _features(text: str) -> list[str]:
    words = text.lower().split()
    padded = f"  {' '.join(words)}  "
    return words + [padded[at : at + 3] for at in range(len(padded) - 2)]
