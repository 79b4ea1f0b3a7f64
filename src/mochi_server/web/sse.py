"""Responses that stream events as server-sent events."""

import asyncio
import re
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing, suppress
from typing import Any, cast

import orjson
from sse_starlette.sse import EventSourceResponse
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from mochi_server.chat.event_log import Batch
from mochi_server.chat.run import Run
from mochi_server.constants import PING_SECONDS
from mochi_server.errors import MochiError
from mochi_server.events import ChatEvent, Done, TurnError
from mochi_server.schemas.common import EventUnion
from mochi_server.services.compare import CompareEvent
from mochi_server.util.clock import new_id
from mochi_server.web.request_log import audit_refusal
from mochi_server.web.requests import ERROR, ClientDisconnected, body_message, until_disconnect

_ID = re.compile(rb"^id: (\w+:\d+)$", re.MULTILINE)
PING = b": ping\n\n"
_HEADERS = {
    "Cache-Control": "no-store",
    "Connection": "keep-alive",
    "X-Accel-Buffering": "no",
}  # prevent buffering


def streams(events: EventUnion, example: str) -> dict[int | str, dict[str, Any]]:
    """Return FastAPI's ``responses`` argument for a route that streams.

    Its description names the schema of an event.

    The schema of the body is a string. With any other schema, generated clients would parse the
    body as JSON.
    """
    content = {"text/event-stream": {"schema": {"type": "string"}, "example": example}}
    text = (
        f"A stream of server-sent events. Each event is a `{events.name}`, and the last event is "
        f"`{events.last}`."
    )
    return {200: {"description": text, "content": content}}


class EventsResponse(EventSourceResponse):
    """Response that streams the events of a generator.

    A disconnect of the client closes the generator.
    """

    def __init__(
        self, events: AsyncGenerator[CompareEvent, None], ping_seconds: float = PING_SECONDS
    ) -> None:
        # The base class declares whole seconds, but accepts any.
        super().__init__(self._frames(events), ping=cast("int", ping_seconds), sep="\n")

    async def _frames(
        self, events: AsyncGenerator[CompareEvent, None]
    ) -> AsyncGenerator[bytes, None]:
        async with aclosing(events):
            async for event in events:
                yield _frame(event)


class EventStream(Response):
    """Base class of event streams that end on a disconnect.

    It sends ASGI messages directly, which saves time.
    """

    media_type = "text/event-stream"

    def __init__(self) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        with suppress(ClientDisconnected):
            await self.send_start(send)
            await until_disconnect(receive, self.send_events(send))

    async def send_start(self, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )

    async def send_events(self, send: Send) -> None:
        """Send the events, after the start of the response."""
        raise NotImplementedError


class RunResponse(EventStream):
    """Stream of a run's events after event number ``after``."""

    def __init__(self, run: Run, after: int = 0, *, ping_seconds: float = PING_SECONDS) -> None:
        super().__init__()
        self._run = run
        self._after = after
        self._ping_seconds = ping_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._run.subscribed():
            await super().__call__(scope, receive, send)

    async def send_events(self, send: Send) -> None:
        async def receive(run: Run, batch: Batch | None) -> None:
            if batch is None:
                return await send(body_message(PING))
            run_id = run.run_id.encode()
            frames = []
            for number, line in enumerate(batch.lines, batch.first):
                kind, payload = line.split(b" ", 1)
                frames.append(
                    b"id: %s:%d\nevent: %s\ndata: %s\n\n" % (run_id, number, kind, payload)
                )
            return await send(body_message(b"".join(frames)))

        await self._run.forward(receive, self._after, idle=self._ping_seconds)
        await send(body_message(b"", more=False))


class WaitingResponse(EventStream):
    """Stream of a run that may have to wait for its start. On a disconnect, the start is cancelled.

    An error within ``ping_seconds`` has its HTTP status. Later, the stream sends SSE comments until
    the run starts, and an error is an event. Either way, its code is stored in the ASGI scope.
    """

    def __init__(
        self,
        session_id: str,
        start: Coroutine[Any, Any, Run],
        *,
        ping_seconds: float = PING_SECONDS,
    ) -> None:
        super().__init__()
        self._session_id = session_id
        self._ping_seconds = ping_seconds
        self._starting = asyncio.ensure_future(start)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await until_disconnect(
                receive, asyncio.wait([self._starting], timeout=self._ping_seconds)
            )
            if self._starting.done():
                await self._response(self._starting.result())(scope, receive, send)
                return
            with suppress(ClientDisconnected):
                await self.send_start(send)
                await until_disconnect(receive, self._send_after_wait(scope, send))
        finally:
            self._starting.cancel()
            (run,) = await asyncio.gather(self._starting, return_exceptions=True)
            if isinstance(run, Run):
                # Without a subscriber, a run that has just started would not be cancelled.
                with run.subscribed():
                    pass

    async def _send_after_wait(self, scope: Scope, send: Send) -> None:
        """Send comments until the run starts, and then its events, or those of a ``MochiError``."""
        while not self._starting.done():
            await send(body_message(PING))
            await asyncio.wait([self._starting], timeout=self._ping_seconds)
        try:
            run = self._starting.result()
        except MochiError as error:
            scope[ERROR] = error.code
            audit_refusal(scope)
            first_id = b"%s:0" % new_id().encode()
            await send(body_message(closing_events(self._session_id, error, first_id), more=False))
        else:
            with run.subscribed():
                await self._response(run).send_events(send)

    def _response(self, run: Run) -> RunResponse:
        return RunResponse(run, ping_seconds=self._ping_seconds)


def parse_position(position: str) -> tuple[str | None, int]:
    """Return the run ID and the event number of an event ID.

    For an event number, the run ID is None.
    """
    run_id, _, number = position.rpartition(":")
    return run_id or None, int(number)


def attach_response(
    run: Run | None, run_id: str | None, number: int, *, ping_seconds: float = PING_SECONDS
) -> Response:
    """Return a stream of a run's events after a position, or after its start if the position is in
    another run.

    If the turn has ended and no events remain, return 204, which stops an ``EventSource``. If it
    goes on at the next server, return an empty stream, after which clients resume it there. The
    position None and 0 is that of a new client. It gets 204 also if only the stored result of the
    run is known.
    """
    nothing = Response(status_code=204)
    if run is None:
        return nothing
    after = min(number, run.log.last) if run_id in (None, run.run_id) else 0
    resumes = run_id is not None or number > 0
    has_events = after < run.log.last and (resumes or not run.is_stored)
    if not run.has_ended or has_events:
        return RunResponse(run, after, ping_seconds=ping_seconds)
    return nothing


def _frame(event: ChatEvent | CompareEvent) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (event.type.encode(), orjson.dumps(event))


def last_event_id(data: bytes) -> bytes:
    """Return the last event ID in encoded events, or empty bytes if the events have no IDs."""
    found: list[bytes] = _ID.findall(data)
    return found[-1] if found else b""


def closing_events(session_id: str, error: MochiError, after: bytes) -> bytes:
    """Return encoded ``error`` and ``done`` events.

    They end a broken stream whose last event has the ID ``after``. If that is empty, they have no
    IDs.
    """
    run_id, _, number = after.rpartition(b":")
    frames = [_frame(event) for event in (TurnError.of(error), Done(session_id))]
    if not run_id:
        return b"".join(frames)
    numbered = enumerate(frames, int(number) + 1)
    return b"".join(b"id: %s:%d\n%s" % (run_id, place, frame) for place, frame in numbered)
