"""The answer of another server, passed on to a client as it comes.

An event stream has its last events also when that server dies, or can be asked no longer.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import orjson
from starlette.types import Message, Scope, Send

from mochi_server.asgi import refuse
from mochi_server.errors import MochiError, ServerLost, ShuttingDown
from mochi_server.postgres.peers import Part, PeerGone, PeerSilent
from mochi_server.routers.sse import broken_off, last_id


class Relay:
    """One answer on its way to a client."""

    def __init__(self, session_id: str, scope: Scope, send: Send) -> None:
        self._session_id = session_id
        self._scope = scope
        self._send = send
        self._began = False
        self._last_id = b""

    async def pass_on(self, parts: AsyncGenerator[Part, None]) -> bool:
        """Send everything; False when the other server died before it began to answer."""
        try:
            async with aclosing(parts):
                async for part in parts:
                    await self._pass_on(part)
        except PeerGone:
            if self._began:
                await self._fail(ServerLost(self._session_id))
            return self._began
        except PeerSilent:
            await self._fail(ServerLost(self._session_id))
        except MochiError as error:
            await self._fail(error)
        return True

    async def leave(self) -> None:
        """End it, for this server leaves: a stream has no ``done`` then, and its rest is to be had elsewhere."""
        if self._began:
            await self._send(body(b"", more=False))
        else:
            await refuse(ShuttingDown(), self._scope, self._send)

    async def _pass_on(self, part: Part) -> None:
        if part.head is not None:
            self._began = True
            await self._send(start(part.head))
        self._last_id = last_id(part.data) or self._last_id
        if part.data or part.is_last:
            await self._send(body(part.data, more=not part.is_last))

    async def _fail(self, error: MochiError) -> None:
        if self._began:  # what is not a stream comes whole, or not at all
            await self._send(body(broken_off(self._session_id, error, self._last_id), more=False))
        else:
            await refuse(error, self._scope, self._send)


def start(head: str) -> Message:
    """The message that begins an answer, from the head of its first part."""
    decoded = orjson.loads(head)
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in decoded["headers"]]
    return {"type": "http.response.start", "status": decoded["status"], "headers": headers}


def body(data: bytes, *, more: bool) -> Message:
    """The message that carries data of an answer."""
    return {"type": "http.response.body", "body": data, "more_body": more}
