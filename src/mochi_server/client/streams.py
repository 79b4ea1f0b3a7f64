"""The events of a turn, over as many connections as it takes."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio
import httpx

from mochi_server.client.errors import ConnectionFailed, Unavailable, error_of
from mochi_server.client.sse_parser import Frame, Parser, StreamEvent
from mochi_server.events import ContentDelta, Done, Snapshot, ThinkingDelta
from mochi_server.util.blocking import run

DELAYS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each attempt to resume after a lost connection."""

READ_SECONDS = 30
"""Timeout for the next byte. The server sends at least a comment every ten seconds."""

LOST = (httpx.TransportError, Unavailable)
"""Errors after which another attempt may succeed."""

_UNKNOWN_TURN = "The server no longer knows the turn; the session has what was stored of it."


@dataclass
class Backoff:
    """Delays after successive failures."""

    delays: Sequence[float]
    _failures: int = 0
    _was_connected: bool = False

    def reset(self) -> None:
        """Start over after a success."""
        self._failures, self._was_connected = 0, True

    def delay_after(self, error: Exception | None) -> float:
        """Return seconds. Raises ``ConnectionFailed`` after the last delay, or if there never was a connection."""
        if not isinstance(error, httpx.ConnectError):
            self._was_connected = True
        if not self._was_connected or self._failures >= len(self.delays):
            raise ConnectionFailed(f"The connection to the server is lost: {error or 'it was closed'}") from error
        self._failures += 1
        return self.delays[self._failures - 1]


class AsyncStream(AsyncIterator[StreamEvent]):
    """Iterator over the events. Leaving the context closes the connection; the turn continues unless it is stopped.

    Iterating raises ``ApiError`` when the server refuses, ``ConnectionFailed`` when it cannot be reached again.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        url: str,
        delays: Sequence[float],
        *,
        first: Mapping[str, Any] | None = None,
        after: str | None = None,
    ) -> None:
        """``first`` is the request that begins the turn, which is safe to repeat."""
        self.last_event_id = after
        """The ID of the latest event; ``listen`` continues after it, also in another process."""
        self._first = first
        self._backoff = Backoff(delays)
        self._begun = self._ended = False
        self._content: list[str] = []
        self._thinking: list[str] = []
        self._events = self._run(http, url)

    @property
    def text(self) -> str:
        """The answer so far, including a ``Snapshot``."""
        return "".join(self._content)

    @property
    def thinking(self) -> str:
        """The thinking so far."""
        return "".join(self._thinking)

    async def aclose(self) -> None:
        """Close the connection."""
        await self._events.aclose()

    async def __anext__(self) -> StreamEvent:
        return await anext(self._events)

    async def __aenter__(self) -> "AsyncStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _run(self, http: httpx.AsyncClient, url: str) -> AsyncGenerator[StreamEvent, None]:
        while not self._ended:
            lost = None
            try:
                async with http.stream(url=url, timeout=READ_SECONDS, **self._request()) as response:
                    kind = response.headers.get("Content-Type", "")
                    if response.status_code != 200 or not kind.startswith("text/event-stream"):
                        body = await response.aread()
                        if response.status_code != 204:  # there is no turn
                            raise error_of(response.status_code, body)
                        if self._begun:
                            raise ConnectionFailed(_UNKNOWN_TURN)
                        self._ended = True
                    parser = Parser()
                    async for data in response.aiter_bytes():
                        for frame in parser.feed(data):
                            if self._is_new(frame):
                                self._record(frame)
                                yield frame.event
            except LOST as error:
                lost = error
            if not self._ended:
                await anyio.sleep(self._backoff.delay_after(lost))

    def _request(self) -> Mapping[str, Any]:
        if self._first is not None and not self._begun:
            return self._first
        return {"method": "GET", "headers": {"Last-Event-ID": self.last_event_id} if self.last_event_id else {}}

    def _is_new(self, frame: Frame) -> bool:
        if self.last_event_id is None:
            return True
        (last_run, _, last), (run_id, _, number) = self.last_event_id.rpartition(":"), frame.id.rpartition(":")
        if self._begun and run_id != last_run:
            raise ConnectionFailed(_UNKNOWN_TURN)
        return run_id != last_run or int(number) > int(last)

    def _record(self, frame: Frame) -> None:
        self._backoff.reset()
        self._begun, self.last_event_id = True, frame.id
        event = frame.event
        if isinstance(event, ContentDelta):
            self._content.append(event.content)
        elif isinstance(event, ThinkingDelta):
            self._thinking.append(event.content)
        elif isinstance(event, Snapshot):
            self._content, self._thinking = [event.content], [event.thinking]
        self._ended = isinstance(event, Done)


class Stream(Iterator[StreamEvent]):
    """``AsyncStream`` with ``for`` and ``with``."""

    def __init__(self, stream: AsyncStream, loop: asyncio.AbstractEventLoop) -> None:
        self._stream = stream
        self._loop = loop

    @property
    def last_event_id(self) -> str | None:
        """The ID of the latest event; ``listen`` continues after it, also in another process."""
        return self._stream.last_event_id

    @property
    def text(self) -> str:
        """The answer so far, including a ``Snapshot``."""
        return self._stream.text

    @property
    def thinking(self) -> str:
        """The thinking so far."""
        return self._stream.thinking

    def close(self) -> None:
        """Close the connection."""
        run(self._stream.aclose(), self._loop)

    def __next__(self) -> StreamEvent:
        try:
            return run(self._stream.__anext__(), self._loop)
        except StopAsyncIteration:
            raise StopIteration from None

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
