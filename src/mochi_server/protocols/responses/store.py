"""Responses that clients can get by their ID."""

import time
from collections import OrderedDict

import orjson

from mochi_server.protocols.parts import Json


class ResponseStore:
    """Recent responses in memory. The oldest ones are dropped. ``max_seconds`` counts from the latest ``put``."""

    def __init__(self, max_count: int = 10_000, max_bytes: int = 32 * 1024 * 1024, max_seconds: float = 3600) -> None:
        self._limits = max_count, max_bytes, max_seconds
        self._size = 0
        self._responses: OrderedDict[str, tuple[float, bytes]] = OrderedDict()

    def put(self, response: Json) -> None:
        """Store a response, or replace the earlier state of it."""
        self._drop(response["id"])
        encoded = orjson.dumps(response, default=str)
        self._responses[response["id"]] = time.monotonic(), encoded
        self._size += len(encoded)
        self._drop_oldest()

    def get(self, response_id: str) -> Json | None:
        """Return a response, or None if it is unknown or was dropped."""
        self._drop_oldest()
        stored = self._responses.get(response_id)
        return None if stored is None else orjson.loads(stored[1])

    def _drop_oldest(self) -> None:
        max_count, max_bytes, max_seconds = self._limits
        while self._responses:
            oldest = next(iter(self._responses))
            is_fresh = time.monotonic() - self._responses[oldest][0] < max_seconds
            if is_fresh and len(self._responses) <= max_count and self._size <= max_bytes:
                return
            self._drop(oldest)

    def _drop(self, response_id: str) -> None:
        self._size -= len(self._responses.pop(response_id, (0, b""))[1])
