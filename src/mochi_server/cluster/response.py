"""The response of another server, sent on to a client as it arrives."""

from contextlib import aclosing

from starlette.types import Message, Scope, Send

from mochi_server.asgi import refuse
from mochi_server.cluster.peer_client import IDLE_SECONDS, PeerClient, PeerResponse
from mochi_server.errors import MochiError, ShuttingDown
from mochi_server.postgres.peers import Peer, PeerGone
from mochi_server.routers.sse import broken_off, last_id


class Relay:
    """One response on its way to a client. An event stream always has its last events, also if the server dies."""

    def __init__(self, client: PeerClient, session_id: str, scope: Scope, send: Send) -> None:
        self._client = client
        self._session_id = session_id
        self._scope = scope
        self._send = send
        self._has_begun = False
        self._last_id = b""

    async def request(self, peer: Peer, content: bytes, idle_seconds: float | None = IDLE_SECONDS) -> bool:
        """Send the response of another server; return False if that server died before it responded."""
        try:
            async with self._client.request(
                peer, self._scope, content, session_id=self._session_id, idle_seconds=idle_seconds
            ) as response:
                await self._send_on(response)
        except PeerGone:
            return False
        except MochiError as error:
            if self._has_begun:
                await self._send(_body(broken_off(self._session_id, error, self._last_id)))
            else:
                await refuse(error, self._scope, self._send)
        return True

    async def leave(self) -> None:
        """End a stream without ``done`` because this server stops: another server has the rest."""
        if self._has_begun:
            await self._send(_body(b""))
        else:
            await refuse(ShuttingDown(), self._scope, self._send)

    async def _send_on(self, response: PeerResponse) -> None:
        content = b"" if response.is_stream else await response.read()
        self._has_begun = True
        await self._send({"type": "http.response.start", "status": response.status, "headers": response.headers})
        if response.is_stream:
            async with aclosing(response.events()) as parts:
                async for events in parts:
                    self._last_id = last_id(events) or self._last_id
                    await self._send(_body(events, more=True))
        await self._send(_body(content))


def _body(content: bytes, *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": content, "more_body": more}
