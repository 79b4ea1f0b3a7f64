"""The application: a plain ASGI callable that reads a request and finds its handler.

It knows no provider: the wires give it routes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from mochi_stub.answer import Answer, Request, Result, Routes, Stub, crashed
from mochi_stub.conversation import Conversation, Receive, Scope, Send, read_body
from mochi_stub.journal import Journal
from mochi_stub.remembered import Remembered
from mochi_stub.wires import preflight, route

logger = logging.getLogger("mochi_stub")


class App:
    """The server without its socket. `speed` scales the waiting; 0 removes it. `replay` goes before the routes."""

    def __init__(
        self,
        stub: Stub,
        routes: Routes,
        journal: Journal,
        *,
        replay: Callable[[Stub, Request], Result | None],
        remembered: Remembered,
        speed: float = 1.0,
    ) -> None:
        self.stub = stub
        self.routes = routes
        self.journal = journal
        self.replay = replay
        self.remembered = remembered
        self.speed = speed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive)
        if body is None:
            return
        request = Request.of(scope, body)
        record = self.journal.open(request.method, request.path, body, request.query_string, request.raw_headers)
        memory = self.remembered.of(request)
        try:
            conversation = Conversation(
                scope, receive, send, record=record, journal=self.journal, speed=self.speed, memory=memory
            )
            await conversation.hold((memory and memory.recall()) or self._handle(request))
        finally:
            line = "%s %s %d %s, %d chunks"
            logger.info(line, record.method, record.path, record.status, record.outcome, record.chunks)

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
