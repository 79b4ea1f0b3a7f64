"""Forwarding of a request to another server that uses the same database, and of the response to the client."""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aiohttp
from starlette.types import Scope, Send

from mochi_server.errors import MochiError, ServerLost, ShuttingDown
from mochi_server.protocols import closing_body, load_protocols
from mochi_server.storage.postgres.processes import SILENT_SECONDS, Peer, PeerDirectory, PeerGone
from mochi_server.telemetry.logging import REQUEST_ID
from mochi_server.web.requests import body_message, send_error
from mochi_server.web.sse import last_event_id

PEER_HEADER = "x-mochi-peer"
"""Header of messages between servers.

In a request, the header contains the token that authenticates the sender to the receiving process. In a response, the
header contains the name of the process that responds.
"""
CONNECT_SECONDS = 5.0
IDLE_SECONDS = 30.0  # default timeout for each chunk of a peer's response
_CHECK_SECONDS = 1.0
_POLL_SECONDS = 0.1
_CONNECTION_HEADERS = {"connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer", "expect", "date"}
_PROTOCOLS = list(load_protocols())
_KEY_HEADERS = {"authorization", *(each.key_header for each in _PROTOCOLS if each.key_header)}
_ID_HEADERS = {"x-request-id", *(each.request_id_header for each in _PROTOCOLS if each.request_id_header)}
_CHECKED_HEADERS = {*_KEY_HEADERS, "cookie", "origin", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest"}
_NOT_FORWARDED = _CONNECTION_HEADERS | _CHECKED_HEADERS | _ID_HEADERS | {"host", "content-length", "accept-encoding"}
_NOT_RETURNED = _CONNECTION_HEADERS | _ID_HEADERS | {"server", PEER_HEADER}
_T = TypeVar("_T")

logger = logging.getLogger(__name__)


def http_session() -> aiohttp.ClientSession:
    """Return an HTTP client for peers. It reuses no connection, because a reused connection may close during a POST."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("Accept", "Content-Type", "User-Agent"),
        headers={"Accept-Encoding": "identity"},
    )


@dataclass
class PeerRequest:
    """Request that is forwarded to another server. If the other server dies, an event stream ends with an error."""

    http: aiohttp.ClientSession
    peers: PeerDirectory
    session_id: str
    scope: Scope
    send: Send
    shutdown: asyncio.Event = field(default_factory=asyncio.Event)
    """Event that aborts the request when this server shuts down. Clients resume streams at another server."""
    _has_begun: bool = field(default=False, init=False)
    _last_id: bytes = field(default=b"", init=False)
    _missed: int = field(default=0, init=False)
    """Number of checks in a row in which the database did not list the peer."""
    _stopping: asyncio.Future[Any] = field(init=False)

    async def run(self, peer: Peer, content: bytes, idle_seconds: float | None = IDLE_SECONDS) -> bool:
        """Forward the request to ``peer`` and send the peer's response, or an error, to the client.

        Return False if ``peer`` died before it responded. ``idle_seconds`` is the timeout for each chunk of the
        response. If ``idle_seconds`` is None, the wait for the response of a live ``peer`` has no time limit.
        """
        self._stopping = asyncio.ensure_future(self.shutdown.wait())
        try:
            try:
                if peer.is_silent:
                    raise ServerLost(self.session_id)
                await self._exchange(peer, content, idle_seconds)
            except (aiohttp.ClientError, OSError, UnicodeError) as error:  # UnicodeError: the host name is invalid
                raise await self._failure(peer, error) from error
        except PeerGone:
            return False
        except MochiError as error:
            if self._has_begun:
                body = closing_body(self.scope["path"], self.session_id, error, self._last_id)
                await self.send(body_message(body, more=False))
            else:
                await send_error(error, self.scope, self.send)
        finally:
            self._stopping.cancel()
        return True

    async def _exchange(self, peer: Peer, content: bytes, idle_seconds: float | None) -> None:
        target = b"?".join(part for part in (self.scope["raw_path"], self.scope["query_string"]) if part)
        sent = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self.scope["headers"]]
        own = [(PEER_HEADER, self.peers.token(peer.name)), ("x-request-id", REQUEST_ID.get())]
        opening = self.http.request(
            self.scope["method"],
            peer.url + target.decode("latin-1"),
            headers=[header for header in sent if header[0] not in _NOT_FORWARDED] + own,
            data=content or None,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=idle_seconds),
        )
        with closing(await self._await(peer, opening)) as response:
            if response.headers.get(PEER_HEADER) != peer.name:
                raise self._unreachable(peer, "another server responds at this URL")
            await self._relay(peer, response)

    async def _relay(self, peer: Peer, response: aiohttp.ClientResponse) -> None:
        is_stream = response.content_type == "text/event-stream"
        content = b"" if is_stream else await self._await(peer, response.read())
        headers = [(name.lower(), value) for name, value in response.raw_headers]
        headers = [header for header in headers if header[0].decode("latin-1") not in _NOT_RETURNED]
        self._has_begun = True
        await self.send({"type": "http.response.start", "status": response.status, "headers": headers})
        while is_stream and (chunk := await self._await(peer, response.content.readany())):
            events, end, content = (content + chunk).rpartition(b"\n\n")  # send only whole events
            if end:
                self._last_id = last_event_id(events + end) or self._last_id
                await self.send(body_message(events + end))
        await self.send(body_message(content, more=False))

    async def _await(self, peer: Peer, work: Coroutine[Any, Any, _T]) -> _T:
        """Return the result of ``work``. Raise ``ServerLost`` if ``peer`` is silent, ``ShuttingDown`` at shutdown."""
        task = asyncio.ensure_future(work)
        tasks: set[asyncio.Future[Any]] = {task, self._stopping}
        try:
            while not (await asyncio.wait(tasks, timeout=_CHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED))[0]:
                if await self._is_silent(peer):
                    raise ServerLost(self.session_id)
            if not task.done():
                raise ShuttingDown
            return task.result()
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _is_silent(self, peer: Peer) -> bool:
        with suppress(MochiError):
            current = await self.peers.find(peer.name)
            self._missed = 0 if current else self._missed + 1
            return self._missed * _CHECK_SECONDS >= SILENT_SECONDS or (current is not None and current.is_silent)
        return False

    async def _failure(self, peer: Peer, error: Exception) -> Exception:
        """Return ``PeerGone`` if ``peer`` died before it responded, otherwise ``ServerLost``. May take seconds."""
        if self._has_begun or isinstance(error, aiohttp.SocketTimeoutError):
            return ServerLost(self.session_id)
        is_final = isinstance(error, (asyncio.TimeoutError, aiohttp.InvalidURL, UnicodeError))
        deadline = asyncio.get_running_loop().time() + (0 if is_final else CONNECT_SECONDS)
        while (current := await self.peers.find(peer.name)) is not None and not current.is_silent:
            if asyncio.get_running_loop().time() >= deadline:
                return self._unreachable(peer, str(error) or type(error).__name__)
            await asyncio.sleep(_POLL_SECONDS)
        return ServerLost(self.session_id) if current else PeerGone()

    def _unreachable(self, peer: Peer, reason: str) -> ServerLost:
        hint = "Set MOCHI_ADVERTISE_URL of that server to a URL at which other servers can reach it."
        logger.error("peer unreachable process=%s url=%s: %s. %s", peer.name, peer.url, reason, hint)
        return ServerLost(self.session_id, is_unreachable=True)
