"""Responses of OpenAI's Responses API that the server stores in memory."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from cachetools import TTLCache

from mochi_server.sessions.caller import current_owner

_OVERHEAD_BYTES = 300  # approximate memory of a value besides its bytes
_ITEM_BYTES = 32 * 1024 * 1024
_CONVERSATION_BYTES = 64 * 1024 * 1024
_RESPONSE_BYTES = 32 * 1024 * 1024

Json = dict[str, Any]


class RecentValues:
    """Values by owner and ID, for an hour.

    The least recently used ones are dropped beyond ``max_bytes``.
    """

    def __init__(self, max_bytes: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._values: TTLCache[tuple[str | None, str], bytes] = TTLCache(
            max_bytes, ttl=3600, timer=clock, getsizeof=lambda value: len(value) + _OVERHEAD_BYTES
        )

    def add(self, value_id: str, value: bytes) -> None:
        """Store a value, or replace the earlier value with this ID.

        A value that exceeds the limit is not stored.
        """
        self.remove(value_id)
        with suppress(ValueError):
            self._values[current_owner(), value_id] = value

    def remove(self, value_id: str) -> None:
        """Remove a value, if it is known."""
        self._values.pop((current_owner(), value_id), None)

    def get(self, value_id: str) -> bytes | None:
        """Return a value, or None if it is unknown."""
        return self._values.get((current_owner(), value_id))


class StoppableRun(Protocol):
    """Run of a response in the background."""

    async def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class BackgroundResponse:
    """Response in the background. ``completion`` stores the response when its run has ended."""

    run: StoppableRun
    completion: asyncio.Future[Any]


class RecentResponses:
    """Responses of a running server: those of the last hour, and those in the background.

    A response without a session is stored with its items and the items before them.
    """

    def __init__(self) -> None:
        self.items = RecentValues(_ITEM_BYTES)
        self._inputs = RecentValues(_CONVERSATION_BYTES)
        """Items before the output of a response, by the ID of the response."""
        self._responses = RecentValues(_RESPONSE_BYTES)
        self._running: dict[str, BackgroundResponse] = {}

    def add_input(self, response_id: str, items: Sequence[Json]) -> None:
        """Store the items before the output of a response without a session."""
        self._inputs.add(response_id, orjson.dumps(items))

    def input_of(self, response_id: str) -> list[Json] | None:
        """Return the items before the output of a response, or None if they are unknown."""
        stored = self._inputs.get(response_id)
        items: list[Json] | None = None if stored is None else orjson.loads(stored)
        return items

    def conversation(self, response_id: str) -> list[Json] | None:
        """Return the items up to the end of a response, or None if they are unknown, or if the
        response has failed or not ended.
        """
        items = self.input_of(response_id)
        response = self.get(response_id)
        if items is None or response is None or response["status"] in ("failed", "in_progress"):
            return None
        output: list[Json] = response["output"]
        return items + output

    def add(self, response: Json) -> None:
        """Store a response, or replace the earlier state of it."""
        self._responses.add(response["id"], orjson.dumps(response, default=str))
        self.add_items(response)

    def forget(self, response_id: str) -> None:
        """Remove a response, which is then read from its session."""
        self._responses.remove(response_id)

    def add_items(self, response: Json) -> None:
        """Store the output items so far of a response without a session."""
        if self._inputs.get(response["id"]) is None:
            return
        for item in response["output"]:
            self.items.add(item["id"], orjson.dumps(item))

    def get(self, response_id: str) -> Json | None:
        """Return a response, or None if it is unknown."""
        stored = self._responses.get(response_id)
        response: Json | None = None if stored is None else orjson.loads(stored)
        return response

    def add_background(self, response_id: str, response: BackgroundResponse) -> None:
        """Add a response in the background, until it is complete.

        A repeated request adds its response again.
        """
        self._running[response_id] = response
        response.completion.add_done_callback(lambda _: self._running.pop(response_id, None))

    async def stop(self, response_id: str) -> None:
        """Stop a response in the background, if it is running, and wait until it is complete."""
        running = self._running.get(response_id)
        if running is not None:
            await running.run.stop()
            await asyncio.wait([running.completion])
