"""Events as server-sent events. The only file that knows that wire."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

import orjson
from sse_starlette.sse import EventSourceResponse
from starlette.types import Receive, Scope, Send

from mochi_server.chat.runs import Batch, Run, RunRegistry

PING_SECONDS = 10
_SEPARATOR = "\n"
_SHUTDOWN_GRACE_SECONDS = 3600
"""The registry ends every run at shutdown, and with it the streams; nobody else should cut them before."""


class Event(Protocol):
    """A value that is an event: a name, and fields that are its payload."""

    @property
    def type(self) -> str: ...


class EventsResponse(EventSourceResponse):
    """Events as they come, from a generator that is closed when the client leaves."""

    def __init__(self, events: AsyncGenerator[Event, None]) -> None:
        super().__init__(_written(events), ping=PING_SECONDS, sep=_SEPARATOR)


class RunResponse(EventSourceResponse):
    """The events of a run, and a listener of it for as long as the client stays."""

    def __init__(self, runs: RunRegistry, run: Run) -> None:
        super().__init__(
            _encoded(run),
            ping=PING_SECONDS,
            sep=_SEPARATOR,
            shutdown_event=runs.shutdown,
            shutdown_grace_period=_SHUTDOWN_GRACE_SECONDS,
        )
        self._runs = runs
        self._run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._runs.listening(self._run):
            await super().__call__(scope, receive, send)


async def _written(events: AsyncGenerator[Event, None]) -> AsyncGenerator[bytes, None]:
    async with aclosing(events):
        async for event in events:
            yield b"event: %s\ndata: %s\n\n" % (event.type.encode(), orjson.dumps(event))


async def _encoded(run: Run) -> AsyncGenerator[bytes, None]:
    async for batches in run.listen():
        yield b"".join([_encode(run.run_id, batch) for batch in batches])


def _encode(run_id: str, batch: Batch) -> bytes:
    if batch.encoded is None:
        batch.encoded = b"".join(
            b"id: %s:%d\nevent: %s\ndata: %s\n\n" % (run_id.encode(), number, event.type.encode(), orjson.dumps(event))
            for number, event in enumerate(batch.events, batch.first)
        )
    return batch.encoded
