"""The events of a turn, over as many connections as it takes. Twice the same, once with ``await``."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import aclosing, closing
from types import TracebackType

import anyio
import httpx

from mochi_server.client.listening import LOST, Listening
from mochi_server.client.wire import Parser, StreamEvent


class _Heard:
    """What both kinds of streams know."""

    def __init__(self, listening: Listening) -> None:
        self._listening = listening

    @property
    def last_event_id(self) -> str | None:
        """The id of the latest event; ``listen`` goes on behind it, also in another process."""
        return self._listening.last_event_id

    @property
    def text(self) -> str:
        """The answer as far as it was heard, a ``Snapshot`` included."""
        return self._listening.text

    @property
    def thinking(self) -> str:
        """The thinking as far as it was heard."""
        return self._listening.thinking


class Stream(_Heard, Iterator[StreamEvent]):
    """Iterate to get the events. Leaving the context closes the connection; the turn goes on unless it is stopped.

    Iterating raises ``ApiError`` for what the server refuses, ``ConnectionFailed`` when it cannot be reached again.
    """

    def __init__(self, http: httpx.Client, listening: Listening) -> None:
        super().__init__(listening)
        self._http = http
        self._events = self._listen()

    def __next__(self) -> StreamEvent:
        return next(self._events)

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._events.close()

    def _listen(self) -> Generator[StreamEvent, None, None]:
        while not self._listening.ended:
            lost = None
            try:
                with closing(self._connection()) as events:
                    yield from events
            except LOST as error:
                lost = error
            if not self._listening.ended:
                time.sleep(self._listening.patience.wait_after(lost))

    def _connection(self) -> Generator[StreamEvent, None, None]:
        request, parser = self._listening.request(), Parser()
        with self._http.stream(request.method, request.path, **request.arguments()) as response:
            if not self._listening.is_stream(response):
                return self._listening.read(response.status_code, response.read())
            for data in response.iter_bytes():
                yield from self._listening.feed(parser, data)


class AsyncStream(_Heard, AsyncIterator[StreamEvent]):
    """``Stream`` with ``async for`` and ``async with``."""

    def __init__(self, http: httpx.AsyncClient, listening: Listening) -> None:
        super().__init__(listening)
        self._http = http
        self._events = self._listen()

    async def __anext__(self) -> StreamEvent:
        return await anext(self._events)

    async def __aenter__(self) -> "AsyncStream":
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection."""
        await self._events.aclose()

    async def _listen(self) -> AsyncGenerator[StreamEvent, None]:
        while not self._listening.ended:
            lost = None
            try:
                async with aclosing(self._connection()) as events:
                    async for event in events:
                        yield event
            except LOST as error:
                lost = error
            if not self._listening.ended:
                await anyio.sleep(self._listening.patience.wait_after(lost))

    async def _connection(self) -> AsyncGenerator[StreamEvent, None]:
        request, parser = self._listening.request(), Parser()
        async with self._http.stream(request.method, request.path, **request.arguments()) as response:
            if not self._listening.is_stream(response):
                self._listening.read(response.status_code, await response.aread())
                return
            async for data in response.aiter_bytes():
                for event in self._listening.feed(parser, data):
                    yield event
