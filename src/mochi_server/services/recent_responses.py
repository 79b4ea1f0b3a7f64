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
        key = current_owner(), value_id
        self._values.pop(key, None)
        with suppress(ValueError):
            self._values[key] = value

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

    A response without a session is stored with its items and its conversation.
    """

    def __init__(self) -> None:
        self.items = RecentValues(_ITEM_BYTES)
        self.conversations = RecentValues(_CONVERSATION_BYTES)
        """Items up to the end of a response, by the ID of the response."""
        self._responses = RecentValues(_RESPONSE_BYTES)
        self._running: dict[str, BackgroundResponse] = {}

    def add(self, response: Json, conversation: Sequence[Json] | None = None) -> None:
        """Store a response, or replace the earlier state of it.

        ``conversation`` has the items before its output.
        """
        self._responses.add(response["id"], orjson.dumps(response, default=str))
        if conversation is None or response["status"] == "failed":
            return
        for item in response["output"]:
            self.items.add(item["id"], orjson.dumps(item))
        items = [*conversation, *response["output"]]
        self.conversations.add(response["id"], orjson.dumps(items))

    def get(self, response_id: str) -> Json | None:
        """Return a response, or None if it is unknown."""
        stored = self._responses.get(response_id)
        response: Json | None = None if stored is None else orjson.loads(stored)
        return response

    def add_background(self, response_id: str, response: BackgroundResponse) -> None:
        """Add a response in the background, until it is complete."""
        self._running[response_id] = response
        response.completion.add_done_callback(lambda _: self._running.pop(response_id))

    async def stop(self, response_id: str) -> None:
        """Stop a response in the background, if it is running, and wait until it is complete."""
        running = self._running.get(response_id)
        if running is not None:
            await running.run.stop()
            await asyncio.wait([running.completion])
