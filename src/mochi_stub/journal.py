"""What the server was asked and how each exchange went. Bounded; safe to read from any thread."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal

Outcome = Literal["running", "finished", "cancelled", "failed"]

MAX_EXCHANGES = 1000
MAX_BYTES = 64 * 1024 * 1024


@dataclass
class Exchange:
    """One request and its fate.

    `body` is the parsed JSON, None where there was none or it could not be read. `status` is 0 until it is sent.
    `chunks` counts the pieces of content sent in a stream, `size` the bytes of the request's body. "cancelled": the
    client went, or the server was stopped; "failed": the reply was an error, or ended in one.
    """

    method: str
    path: str
    body: Any = None
    status: int = 0
    outcome: Outcome = "running"
    chunks: int = 0
    size: int = 0


class Journal:
    """The latest exchanges, oldest first: no more than 1000, and bodies of no more than 64 MiB in all."""

    def __init__(self) -> None:
        self._exchanges: deque[Exchange] = deque()
        self._bytes = 0
        self._changed = threading.Condition()

    def open(self, method: str, path: str, body: Any, size: int) -> Exchange:
        exchange = Exchange(method, path, body, size=size)
        with self._changed:
            self._exchanges.append(exchange)
            self._bytes += size
            while len(self._exchanges) > MAX_EXCHANGES or (self._bytes > MAX_BYTES and len(self._exchanges) > 1):
                self._bytes -= self._exchanges.popleft().size
            self._changed.notify_all()
        return exchange

    def sent(self, exchange: Exchange, *, status: int | None = None, chunks: int = 0) -> None:
        with self._changed:
            exchange.status = exchange.status if status is None else status
            exchange.chunks += chunks
            self._changed.notify_all()

    def close(self, exchange: Exchange, outcome: Outcome) -> None:
        with self._changed:
            exchange.outcome = outcome
            self._changed.notify_all()

    def exchanges(self) -> list[Exchange]:
        """A copy that does not change any more."""
        with self._changed:
            return [copy(exchange) for exchange in self._exchanges]

    def wait_for(self, condition: Callable[[list[Exchange]], bool], timeout: float) -> list[Exchange]:
        """Block until `condition` holds of the exchanges. Raises TimeoutError, which tells what there was."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while not condition(found := [copy(exchange) for exchange in self._exchanges]):
                if not self._changed.wait(deadline - time.monotonic()):
                    raise TimeoutError(f"not within {timeout} s; the last exchanges: {found[-5:]}")
            return found
