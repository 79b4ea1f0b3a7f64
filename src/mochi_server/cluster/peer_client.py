"""HTTP requests to the other servers of one database."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import aiohttp

from mochi_server.errors import MochiError, ServerLost
from mochi_server.logs import REQUEST_ID
from mochi_server.postgres.peers import Peer, PeerGone, Peers
from mochi_server.postgres.process import SILENT_HEARTBEATS

PEER_HEADER = b"x-mochi-peer"
"""Carries the token of a process in a request to it, and the name of that process in its response."""
CONNECT_SECONDS = 5.0
IDLE_SECONDS = 30.0
_CHECK_SECONDS = 1.0
_POLL_SECONDS = 0.1
_OF_CONNECTION = {b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"te", b"trailer", b"expect", b"date"}
_CHECKED = {b"authorization", b"cookie", b"origin", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest"}
_NOT_SENT = _OF_CONNECTION | _CHECKED | {b"host", b"content-length", b"accept-encoding", b"x-request-id"}
_NOT_RETURNED = _OF_CONNECTION | {b"server", b"x-request-id", PEER_HEADER}
_T = TypeVar("_T")

_log = logging.getLogger(__name__)


class PeerClient:
    """Client of the other servers. Use it as an async context manager, on one event loop."""

    def __init__(self, peers: Callable[[], Peers]) -> None:
        self._peers = peers
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> None:
        self._session = aiohttp.ClientSession(
            # A connection of its own for each request: a reused one may be closed by the time a POST is sent.
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept", "Content-Type", "User-Agent"),
            headers={"Accept-Encoding": "identity"},
        )

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    @asynccontextmanager
    async def request(
        self,
        peer: Peer,
        scope: MutableMapping[str, Any],
        content: bytes,
        *,
        session_id: str,
        idle_seconds: float | None = IDLE_SECONDS,
    ) -> AsyncIterator["PeerResponse"]:
        """Send a request of a client to another server.

        ``idle_seconds`` limits the wait for each part of the response; None waits while the server sends heartbeats.

        Raises:
            PeerGone: The process died before it responded.
            ServerLost: The server sends no heartbeats, no data in time, or cannot be reached.
            StorageFailed: The connection failed, and so did the database that knows why.
        """
        assert self._session is not None  # noqa: S101 - opened with the app
        if peer.is_silent:
            raise ServerLost(session_id)
        target = b"?".join(part for part in (scope["raw_path"], scope["query_string"]) if part).decode("latin-1")
        headers = [(key, value) for key, value in scope["headers"] if key not in _NOT_SENT]
        headers += [(PEER_HEADER, self._peers().token(peer.name)), (b"x-request-id", REQUEST_ID.get().encode())]
        opening = self._session.request(
            scope["method"],
            peer.url + target,
            headers=[(key.decode("latin-1"), value.decode("latin-1")) for key, value in headers],
            data=content or None,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=idle_seconds),
        )
        try:
            response = await self.await_part(peer, session_id, opening)
        except (aiohttp.ClientError, OSError) as error:
            raise await self._failure(peer, session_id, error) from error
        try:
            if response.headers.get(PEER_HEADER.decode()) != peer.name:
                raise self._unreachable(peer, session_id, "another server answers there")
            yield PeerResponse(self, peer, session_id, response)
        finally:
            response.close()

    async def await_part(self, peer: Peer, session_id: str, work: Coroutine[Any, Any, _T]) -> _T:
        """Await a part of a response. Raises ``ServerLost`` if the server becomes silent or sends nothing in time."""
        task = asyncio.ensure_future(work)
        missed = 0
        try:
            while not (await asyncio.wait([task], timeout=_CHECK_SECONDS))[0]:
                with suppress(MochiError):  # the response may come without the database
                    found = await self._peers().find(peer.name)
                    missed = 0 if found else missed + 1
                    if missed == SILENT_HEARTBEATS or (found and found.is_silent):
                        break
            else:
                return task.result()
        except aiohttp.SocketTimeoutError as error:
            raise ServerLost(session_id) from error
        finally:
            task.cancel()
            await asyncio.wait([task])
        raise ServerLost(session_id)

    async def _failure(self, peer: Peer, session_id: str, error: Exception) -> Exception:
        """Return why a server did not respond. The database notices the end of a process a moment later."""
        is_final = isinstance(error, (asyncio.TimeoutError, aiohttp.InvalidURL))
        patience = 0.0 if is_final else CONNECT_SECONDS
        deadline = asyncio.get_running_loop().time() + patience
        while (found := await self._peers().find(peer.name)) is not None and not found.is_silent:
            if asyncio.get_running_loop().time() >= deadline:
                return self._unreachable(peer, session_id, str(error) or type(error).__name__)
            await asyncio.sleep(_POLL_SECONDS)
        return PeerGone() if found is None else ServerLost(session_id)

    def _unreachable(self, peer: Peer, session_id: str, reason: str) -> ServerLost:
        _log.error(
            "peer unreachable process=%s url=%s: %s. Set MOCHI_ADVERTISE_URL of that server to a URL at which "
            "the other servers reach it.",
            peer.name,
            peer.url,
            reason,
        )
        return ServerLost(session_id, is_unreachable=True)


class PeerResponse:
    """Response of another server, whose head has arrived."""

    def __init__(self, client: PeerClient, peer: Peer, session_id: str, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        self.headers = [(key.lower(), value) for key, value in response.raw_headers if key.lower() not in _NOT_RETURNED]
        self.is_stream = response.content_type == "text/event-stream"
        self._client = client
        self._peer = peer
        self._session_id = session_id
        self._response = response

    async def read(self) -> bytes:
        """Return the whole body. Raises ``ServerLost``."""
        return await self._await(self._response.read())

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Yield the body of an event stream; no event is cut. Raises ``ServerLost``."""
        pending = b""
        while chunk := await self._await(self._response.content.readany()):
            events, end, pending = (pending + chunk).rpartition(b"\n\n")
            if end:
                yield events + end

    async def _await(self, work: Coroutine[Any, Any, _T]) -> _T:
        try:
            return await self._client.await_part(self._peer, self._session_id, work)
        except (aiohttp.ClientError, OSError) as error:
            raise ServerLost(self._session_id) from error
