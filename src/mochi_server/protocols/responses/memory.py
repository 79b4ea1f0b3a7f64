"""Memory of recent responses, for requests that refer to them."""

import time
from collections import OrderedDict
from collections.abc import Callable

from mochi_server.sessions.caller import current_owner

_OVERHEAD_BYTES = 300  # approximate memory of a value besides its bytes


class RecentValues:
    """Values by owner and ID. Old ones are dropped if there are too many, after an hour, or beyond ``max_bytes``."""

    def __init__(
        self, max_bytes: int, max_count: int | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_bytes, self._max_count, self._clock, self._size = max_bytes, max_count, clock, 0
        self._values: OrderedDict[tuple[str | None, str], tuple[float, bytes]] = OrderedDict()

    def add(self, value_id: str, value: bytes) -> None:
        """Store a value, or replace the earlier value with this ID."""
        key = current_owner(), value_id
        self._drop(key)
        self._values[key] = self._clock(), value
        self._size += len(value) + _OVERHEAD_BYTES
        self._drop_oldest()

    def get(self, value_id: str) -> bytes | None:
        """Return a value, or None if it is unknown."""
        self._drop_oldest()
        return self._values.get((current_owner(), value_id), (0, None))[1]

    def _drop_oldest(self) -> None:
        count, expired = self._max_count or len(self._values), self._clock() - 3600
        while self._values:
            oldest, (added, _) = next(iter(self._values.items()))
            if len(self._values) <= count and self._size <= self._max_bytes and added > expired:
                return
            self._drop(oldest)

    def _drop(self, key: tuple[str | None, str]) -> None:
        if (dropped := self._values.pop(key, None)) is not None:
            self._size -= len(dropped[1]) + _OVERHEAD_BYTES
