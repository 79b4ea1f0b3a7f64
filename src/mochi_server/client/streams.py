"""The events of a turn, over as many connections as it takes."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Sequence

import anyio
import httpx

from mochi_server.client.errors import ConnectionFailed, Unavailable, error_of
from mochi_server.client.operations import OPERATIONS, Request, Subscription
from mochi_server.client.sse_parser import Frame, Parser, StreamEvent
from mochi_server.events import ContentDelta, Done, Snapshot, ThinkingDelta

DELAYS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each attempt to resume after a lost connection."""

LOST = (httpx.TransportError, Unavailable)
"""Errors after which another attempt may succeed."""

_UNKNOWN_TURN = "The server no longer knows the turn; the session has what was stored of it."


class Backoff:
    """Delays after successive failures."""

    def __init__(self, delays: Sequence[float]) -> None:
        self._delays = delays
        self._failures = 0
        self._was_connected = False

    def reset(self) -> None:
        """Start over after a success."""
        self._failures, self._was_connected = 0, True

    def delay_after(self, error: Exception | None) -> float:
        """Return seconds. Raises ``ConnectionFailed`` after the last delay, or if there never was a connection."""
        if not isinstance(error, httpx.ConnectError):
            self._was_connected = True
        if not self._was_connected or self._failures >= len(self._delays):
            raise ConnectionFailed(f"The connection to the server is lost: {error or 'it was closed'}") from error
        self._failures += 1
        return self._delays[self._failures - 1]


class _StreamState:
    """Position in the events of a turn, and the text up to it."""

    def __init__(self, subscription: Subscription, delays: Sequence[float]) -> None:
        self._subscription = subscription
        self._backoff = Backoff(delays)
        self._parser = Parser()
        self._last_event_id = subscription.after
        self._begun = False
        self._ended = False
        self._content: list[str] = []
        self._thinking: list[str] = []

    @property
    def last_event_id(self) -> str | None:
        """The ID of the latest event; ``listen`` continues after it, also in another process."""
        return self._last_event_id

    @property
    def text(self) -> str:
        """The answer so far, including a ``Snapshot``."""
        return "".join(self._content)

    @property
    def thinking(self) -> str:
        """The thinking so far."""
        return "".join(self._thinking)

    def _next_request(self) -> Request[None]:
        """Return the first request until there was an event, which is safe to repeat; then one for the other events."""
        self._parser = Parser()
        if not self._begun:
            return self._subscription.request
        return OPERATIONS.listen(self._subscription.session_id, self._last_event_id).request

    def _end(self, status: int, body: bytes) -> None:
        """Read a response without events. Raises ``ClientError`` unless it says that there is no turn."""
        if status != 204:
            raise error_of(status, body)
        if self._begun:
            raise ConnectionFailed(_UNKNOWN_TURN)
        self._ended = True

    def _feed(self, data: bytes) -> Iterator[StreamEvent]:
        for frame in self._parser.feed(data):
            if self._is_new(frame):
                self._record(frame)
                yield frame.event

    def _is_new(self, frame: Frame) -> bool:
        if self._last_event_id is None:
            return True
        (last_run, _, last), (run, _, number) = self._last_event_id.rpartition(":"), frame.id.rpartition(":")
        if self._begun and run != last_run:
            raise ConnectionFailed(_UNKNOWN_TURN)
        return run != last_run or int(number) > int(last)

    def _record(self, frame: Frame) -> None:
        self._backoff.reset()
        self._begun, self._last_event_id = True, frame.id
        event = frame.event
        if isinstance(event, ContentDelta):
            self._content.append(event.content)
        elif isinstance(event, ThinkingDelta):
            self._thinking.append(event.content)
        elif isinstance(event, Snapshot):
            self._content, self._thinking = [event.content], [event.thinking]
        self._ended = isinstance(event, Done)


class Stream(_StreamState, Iterator[StreamEvent]):
    """Iterator over the events. Leaving the context closes the connection; the turn continues unless it is stopped.

    Iterating raises ``ApiError`` when the server refuses, ``ConnectionFailed`` when it cannot be reached again.
    """

    def __init__(self, http: httpx.Client, subscription: Subscription, delays: Sequence[float]) -> None:
        super().__init__(subscription, delays)
        self._events = self._run(http)

    def __next__(self) -> StreamEvent:
        return next(self._events)

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._events.close()

    def _run(self, http: httpx.Client) -> Generator[StreamEvent, None, None]:
        while not self._ended:
            lost = None
            try:
                with http.stream(**self._next_request().arguments()) as response:
                    if not _has_events(response):
                        return self._end(response.status_code, response.read())
                    for data in response.iter_bytes():
                        yield from self._feed(data)
            except LOST as error:
                lost = error
            if not self._ended:
                time.sleep(self._backoff.delay_after(lost))


class AsyncStream(_StreamState, AsyncIterator[StreamEvent]):
    """``Stream`` with ``async for`` and ``async with``."""

    def __init__(self, http: httpx.AsyncClient, subscription: Subscription, delays: Sequence[float]) -> None:
        super().__init__(subscription, delays)
        self._events = self._run(http)

    async def __anext__(self) -> StreamEvent:
        return await anext(self._events)

    async def __aenter__(self) -> "AsyncStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection."""
        await self._events.aclose()

    async def _run(self, http: httpx.AsyncClient) -> AsyncGenerator[StreamEvent, None]:
        while not self._ended:
            lost = None
            try:
                async with http.stream(**self._next_request().arguments()) as response:
                    if not _has_events(response):
                        self._end(response.status_code, await response.aread())
                        return
                    async for data in response.aiter_bytes():
                        for event in self._feed(data):
                            yield event
            except LOST as error:
                lost = error
            if not self._ended:
                await anyio.sleep(self._backoff.delay_after(lost))


def _has_events(response: httpx.Response) -> bool:
    return response.status_code == 200 and response.headers.get("Content-Type", "").startswith("text/event-stream")
