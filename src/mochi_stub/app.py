"""The application: a plain ASGI callable that reads a request and finds who answers it.

It knows no provider: the wires give it routes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from mochi_stub.answer import Answer, Request, Result, Routes, Stub, crashed
from mochi_stub.conversation import Channel, Conversation, Playback, Receive, Scope, Send
from mochi_stub.journal import Journal, Record
from mochi_stub.pacing import Clock, RealClock
from mochi_stub.remembered import Remembered
from mochi_stub.routing import preflight, route

logger = logging.getLogger("mochi_stub")


class App:
    """The server without its socket. `speed` scales the waiting; 0 removes it. `replay` is asked before the routes."""

    def __init__(
        self,
        stub: Stub,
        routes: Routes,
        journal: Journal,
        *,
        replay: Callable[[Stub, Request], Result | None],
        remembered: Remembered,
        speed: float = 1.0,
        clock: Clock | None = None,
    ) -> None:
        self.replay = replay
        self.remembered = remembered
        self.stub = stub
        self.routes = routes
        self.journal = journal
        self.playback = Playback(clock or RealClock(), speed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _body(receive)
        if body is None:
            return
        record = self.journal.open(scope["method"], scope["path"], body, scope["query_string"], scope["headers"])
        request = _request(scope, body)
        memory = self.remembered.of(request)
        try:
            conversation = Conversation(Channel(scope, receive, send), record, self.journal, self.playback, memory)
            await conversation.hold((memory and memory.recall()) or self._handle(request))
        finally:
            _log(record)

    def _handle(self, request: Request) -> Result:
        try:
            answer = preflight(request) or self.replay(self.stub, request)
            if answer is not None:
                return answer
            found = route(self.routes, request)
            return found if isinstance(found, Answer) else found(self.stub, request)
        except Exception as error:
            logger.exception("%s %s", request.method, request.path)
            return crashed(error)


def _request(scope: Scope, body: bytes) -> Request:
    return Request(scope["method"], scope["path"], body, scope["query_string"], tuple(scope["headers"]))


def _log(record: Record) -> None:
    if logger.isEnabledFor(logging.INFO):
        line = "%s %s %d %s, %d chunks"
        logger.info(line, record.method, record.path, record.status, record.outcome, record.chunks)


async def _body(receive: Receive) -> bytes | None:
    """The whole request body; None where the client went before it was complete."""
    received = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        received.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(received)
