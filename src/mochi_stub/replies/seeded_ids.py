"""Times and IDs of replies. They depend only on seed and request, so that equal requests get equal responses."""

from __future__ import annotations

import hashlib
import string
from dataclasses import dataclass

FIRST_START = 1_767_225_600 * 10**9  # 2026-01-01T00:00:00Z
SPAN = 30 * 24 * 3600 * 10**9
LOAD_DURATION = 1_500_000
RELOAD_DURATION = 100_000_000  # nanoseconds that only reloads add: first loads must not depend on the order of requests
NANOSECONDS_PER_PROMPT_TOKEN = 1_000

ALPHABET = ((string.ascii_lowercase + string.digits) * 8)[:256].encode()  # the character for each value of a byte


@dataclass(frozen=True)
class SeededIds:
    """Generated start time and IDs for the reply to one request."""

    fingerprint: int

    @classmethod
    def of(cls, seed: int, request: bytes) -> SeededIds:
        digest = hashlib.blake2b(request, digest_size=8, key=str(seed).encode()[:64])
        return cls(int.from_bytes(digest.digest(), "big"))

    @property
    def start(self) -> int:
        """Simulated arrival time of the request, in nanoseconds since 1970."""
        return FIRST_START + self.fingerprint % SPAN

    def id(self, index: int, length: int) -> str:
        """Return a pseudorandom ID of `length` characters. Each `index` gives a different ID."""
        digest = hashlib.blake2b(f"{self.fingerprint}/{index}".encode(), digest_size=length).digest()
        return digest.translate(ALPHABET).decode()
