"""ASGI middleware that forwards requests about a turn to the server of the same database that runs
the turn.
"""

import asyncio
import json
import logging
import re
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import unquote

import aiohttp
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mochi_server.chat.approvals import requesting_run
from mochi_server.chat.service import MAY_START_TURN
from mochi_server.constants import API_PREFIX, KEY_PATTERN
from mochi_server.errors import (
    MochiError,
    ServerLost,
    ServerVersionsDiffer,
    ShuttingDown,
    Unauthorized,
)
from mochi_server.protocols import closing_body, load_protocols
from mochi_server.sessions.caller import CALLER, UNRESTRICTED, Caller
from mochi_server.sessions.session import is_session_id
from mochi_server.storage.postgres.processes import SILENT_SECONDS, Peer, PeerDirectory, PeerGone
from mochi_server.telemetry.logging import REQUEST_ID
from mochi_server.util.tasks import start_in
from mochi_server.web.requests import (
    ERROR,
    ClientDisconnected,
    body_message,
    header,
    read_body,
    route_path,
    send_error,
    until_disconnect,
)
from mochi_server.web.sse import last_event_id

_PROTOCOLS = list(load_protocols())
_CHAT = re.compile(
    rf"{API_PREFIX}/chat/([0-9a-f]{{10}})(|/stream|/stop|/run|/confirmations|/confirm-tool|/ai-sdk(?:/[^/]+/stream)?|/ag-ui)/?"
)
_COMPLETIONS = {protocol.prefix + path for protocol in _PROTOCOLS for path in protocol.turn_paths}
"""Paths of the routes that start a turn in the session of the header `X-Mochi-Session`."""
_RESPONSE = re.compile(
    r"/v1/responses/resp_([0-9a-f]{10})_[0-9]+_([0-9a-f]{10})(/cancel|/input_items)?/?"
)
_SESSION = re.compile(rf"{API_PREFIX}/sessions/([0-9a-f]{{10}})/?")
_SHORT = ("/run", "/stop", "/cancel")
"""Ends of the paths whose requests do not wait for the end of a turn."""
_RELOADS = {f"{API_PREFIX}/tools/reload", f"{API_PREFIX}/agents/reload"}
_DENIES = re.compile(
    rb'"if_waiting"\s*:\s*"deny"'
)  # denies the calls of a turn that may wait at another server
_CONFIRMATION = re.compile(rb'"(conf_\w+)"')
_POSITION = re.compile(r"([0-9a-f]{10}):\d{1,18}")
PEER_HEADER = "x-mochi-peer"
"""Header between servers: in a request the token of the sender, in a response the name of the
process that responds.
"""
CALLER_HEADER = "x-mochi-caller"
"""Header between servers: the caller of a request as JSON, which the sender has identified."""
_CALLER_FIELDS = ("key", "owner", "sees_all", "turns_at_a_time", "turns_per_minute")
"""Fields of ``CALLER_HEADER``. Version 1.0.0 reads no others."""
CALLER_LIMITS_HEADER = "x-mochi-caller-limits"
"""Header between servers: the other fields of the caller as JSON.

Version 1.0.0 neither sends nor reads it.
"""
NO_NEW_TURN_HEADER = "x-mochi-no-new-turn"
"""Header between servers: in a request of a server that shuts down, which must not start a turn."""
CONNECT_SECONDS = 5.0
IDLE_SECONDS = 30.0  # default timeout for each chunk of a peer's response
_CHECK_SECONDS = 1.0
_POLL_SECONDS = 0.1
REFUSED_HEADER = "x-mochi-shutting-down"
"""Header between servers: in the response to a request that the server refused because it is
shutting down.
"""
_CONNECTION_HEADERS = {
    "connection",
    "keep-alive",
    "transfer-encoding",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "date",
}
_ID_HEADERS = {
    "x-request-id",
    *(each.request_id_header for each in _PROTOCOLS if each.request_id_header),
}
_CHECKED_HEADERS = {
    "authorization",
    "x-api-key",
    "x-mochi-user",
    "cookie",
    "origin",
    "sec-fetch-site",
    "sec-fetch-mode",
    "sec-fetch-dest",
}
_REPLACED_HEADERS = {
    "host",
    "content-length",
    "accept-encoding",
    CALLER_HEADER,
    CALLER_LIMITS_HEADER,
    NO_NEW_TURN_HEADER,
}
_NOT_FORWARDED = _CONNECTION_HEADERS | _CHECKED_HEADERS | _ID_HEADERS | _REPLACED_HEADERS
_NOT_RETURNED = _CONNECTION_HEADERS | _ID_HEADERS | {"server", PEER_HEADER}
_T = TypeVar("_T")


logger = logging.getLogger(__name__)


@dataclass
class PeerRequest:
    """Request that is forwarded to another server.

    If the other server dies, an event stream ends with an error.
    """

    http: aiohttp.ClientSession
    peers: PeerDirectory
    session_id: str
    scope: Scope
    send: Send
    shutdown: asyncio.Event = field(default_factory=asyncio.Event)
    """Event that aborts the request at the end of a shutdown.

    Clients resume streams at another server.
    """
    may_start_turn: bool = True
    """Whether the peer may start a turn.

    Otherwise, it refuses a new turn as if the peer itself were shutting down.
    """
    is_refused: bool = field(default=False, init=False)
    """Whether the peer refused to start a turn, because one of the two servers is shutting down."""
    _has_begun: bool = field(default=False, init=False)
    _last_id: bytes = field(init=False)
    """Event ID of the latest event that the client has, or empty bytes."""
    _missed: int = field(default=0, init=False)
    """Number of checks in a row in which the database did not list the peer."""
    _stopping: asyncio.Future[Any] = field(init=False)

    def __post_init__(self) -> None:
        position = _position(self.scope)
        self._last_id = position[0].encode() if position else b""

    async def run(
        self, peer: Peer, content: bytes, idle_seconds: float | None = IDLE_SECONDS
    ) -> bool:
        """Forward the request to ``peer`` and send the peer's response, or an error, to the client.

        Return False if ``peer`` died before it responded, or refused the request (``is_refused``).
        ``idle_seconds`` is the timeout for each chunk of the response. If it is None, the wait for
        the response of a live ``peer`` has no time limit.
        """
        self._stopping = asyncio.ensure_future(self.shutdown.wait())
        try:
            try:
                if peer.is_silent:
                    raise ServerLost(self.session_id)
                await self._exchange(peer, content, idle_seconds)
            except (aiohttp.ClientError, OSError, UnicodeError) as error:
                # UnicodeError: the host name is invalid
                raise await self._failure(peer, error) from error
        except PeerGone:
            return False
        except MochiError as error:
            if self._has_begun:
                body = closing_body(route_path(self.scope), self.session_id, error, self._last_id)
                await self.send(body_message(body, more=False))
            else:
                await send_error(error, self.scope, self.send)
        finally:
            self._stopping.cancel()
        return True

    async def _exchange(self, peer: Peer, content: bytes, idle_seconds: float | None) -> None:
        target = target_of(self.scope)
        if self.scope["query_string"]:
            target += b"?" + self.scope["query_string"]
        opening = self.http.request(
            self.scope["method"],
            peer.url + target.decode("latin-1"),
            headers=self._headers(peer),
            data=content or None,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=CONNECT_SECONDS, sock_read=idle_seconds
            ),
        )
        with closing(await self._await(peer, opening)) as response:
            if response.headers.get(PEER_HEADER) != peer.name:
                # perhaps the replacement of a killed server
                raise ConnectionError("another server responds at this URL")
            if REFUSED_HEADER in response.headers:
                self.is_refused = True
                raise PeerGone
            await self._relay(peer, response)

    def _headers(self, peer: Peer) -> list[tuple[str, str]]:
        """Return the headers of the request to ``peer``."""
        headers = []
        for encoded_name, value in self.scope["headers"]:
            name = encoded_name.decode("latin-1")
            if name not in _NOT_FORWARDED:
                headers.append((name, value.decode("latin-1")))
        headers.append((PEER_HEADER, self.peers.token(peer.name)))
        headers.append(("x-request-id", REQUEST_ID.get()))
        limits = asdict(CALLER.get())
        identity = {name: limits.pop(name) for name in _CALLER_FIELDS}
        headers.append((CALLER_HEADER, json.dumps(identity)))
        headers.append((CALLER_LIMITS_HEADER, json.dumps(limits)))
        if not self.may_start_turn:
            headers.append((NO_NEW_TURN_HEADER, "1"))
        return headers

    async def _relay(self, peer: Peer, response: aiohttp.ClientResponse) -> None:
        is_stream = response.content_type == "text/event-stream"
        content = b"" if is_stream else await self._await(peer, response.read())
        headers = []
        for raw_name, value in response.raw_headers:
            name = raw_name.lower()
            if name.decode("latin-1") not in _NOT_RETURNED:
                headers.append((name, value))
        self._has_begun = True
        await self.send(
            {"type": "http.response.start", "status": response.status, "headers": headers}
        )
        if is_stream:
            content = await self._relay_events(peer, response)
        await self.send(body_message(content, more=False))

    async def _relay_events(self, peer: Peer, response: aiohttp.ClientResponse) -> bytes:
        """Send whole events, and return the incomplete rest of the stream."""
        rest = b""
        while chunk := await self._await(peer, response.content.readany()):
            events, end, rest = (rest + chunk).rpartition(b"\n\n")
            if end:
                self._last_id = last_event_id(events + end) or self._last_id
                await self.send(body_message(events + end))
        return rest

    async def _await(self, peer: Peer, work: Coroutine[Any, Any, _T]) -> _T:
        """Return the result of ``work``.

        Raise ``ServerLost`` if ``peer`` is silent, ``ShuttingDown`` at shutdown.
        """
        task = asyncio.ensure_future(work)
        tasks: set[asyncio.Future[Any]] = {task, self._stopping}
        try:
            while True:
                done, _ = await asyncio.wait(
                    tasks, timeout=_CHECK_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if task in done:
                    return task.result()
                if done:
                    raise ShuttingDown
                if await self._is_silent(peer):
                    raise ServerLost(self.session_id)
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _is_silent(self, peer: Peer) -> bool:
        """Return whether ``peer`` is frozen, or was dead in all checks of ``SILENT_SECONDS``.

        A check that the database does not answer does not count.
        """
        try:
            current = await self.peers.find(peer.name)
        except MochiError:
            return False
        if current is not None:
            self._missed = 0
            return current.is_silent
        self._missed += 1
        return self._missed * _CHECK_SECONDS >= SILENT_SECONDS

    async def _failure(self, peer: Peer, error: Exception) -> Exception:
        """Return ``PeerGone`` if ``peer`` died before it responded, otherwise ``ServerLost``.

        Wait up to ``CONNECT_SECONDS``, because the database lists a dead process for seconds.
        Raises ``StorageFailed`` if the database does not answer.
        """
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
        logger.error(
            "peer unreachable process=%s url=%s: %s. Set MOCHI_ADVERTISE_URL of that server to a "
            "URL at which other servers can reach it.",
            peer.name,
            peer.url,
            reason,
        )
        return ServerLost(self.session_id, is_unreachable=True)


class ClusterMiddleware:
    """Middleware that forwards each request of a client to the server that must handle it.

    ``guards`` are middlewares that check requests of clients first. A request from another server
    skips the guards, because that server has already checked it. Such a request is never forwarded
    again.
    """

    def __init__(
        self, app: ASGIApp, guards: Sequence[Middleware], peers: Callable[[], PeerDirectory]
    ) -> None:
        """``peers`` returns the current peer directory.

        Each lifespan of the app creates another directory.
        """
        self._app = app
        self._peers = peers
        self._http: aiohttp.ClientSession | None = None
        self._guarded: ASGIApp = self._dispatch
        for guard, args, kwargs in reversed(guards):
            self._guarded = guard(self._guarded, *args, **kwargs)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            # No connection is reused, because a reused connection may close during a POST.
            async with aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("Accept", "Content-Type", "User-Agent"),
                headers={"Accept-Encoding": "identity"},
            ) as self._http:
                await self._app(scope, receive, send)
        elif scope["type"] != "http" or not (token := header(scope, PEER_HEADER.encode())):
            await self._guarded(scope, receive, send)
        elif self._peers().accepts(token):
            await self._serve_peer(scope, receive, self._signed(scope, send))
        else:
            await send_error(Unauthorized(), scope, send)

    async def _serve_peer(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            CALLER.set(_sent_caller(scope))
        except ServerVersionsDiffer as error:
            return await send_error(error, scope, send)
        MAY_START_TURN.set(not header(scope, NO_NEW_TURN_HEADER.encode()))
        return await self._app(scope, receive, send)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = scope["method"]
        path = route_path(scope)
        named_session = header(scope, b"x-mochi-session")
        session = _SESSION.fullmatch(path)
        chat = _CHAT.fullmatch(path)
        about_turn = chat or _RESPONSE.fullmatch(path)
        try:
            if method == "POST" and path.rstrip("/") in _RELOADS:
                with suppress(MochiError):
                    await self._request_all(await self._peers().live_peers(), scope)
                await self._app(scope, receive, send)
            elif method == "DELETE" and session:
                await self._delete(session[1], scope, receive, send)
            elif method == "POST" and chat and chat[2] == "/confirm-tool":
                await self._resolve_confirmation(chat[1], scope, receive, send)
            elif about_turn:
                await self._forward(about_turn[1], scope, receive, send)
            elif (
                method == "POST"
                and path.rstrip("/") in _COMPLETIONS
                and is_session_id(named_session)
            ):
                await self._forward(named_session, scope, receive, send)
            else:
                await self._app(scope, receive, send)
        except MochiError as error:
            await send_error(error, scope, send)
        except ClientDisconnected:
            return

    async def _forward(self, session_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        services = scope["app"].state.services
        if not CALLER.get().sees_all and await services.conversations.load(session_id) is None:
            # the app responds, as to a request about any unknown session
            return await self._app(scope, receive, send)
        waits_at: Peer | None = None
        if scope["method"] == "POST" and route_path(scope).startswith(API_PREFIX):
            content = await read_body(Request(scope, receive))
            receive = _replaying(content, receive)
            if _DENIES.search(content):
                with suppress(PeerGone):
                    waits_at = await self._peers().owner_of(session_id, starts_turn=True)
            del content  # a turn may take minutes
        peer = await self._responsible_peer(session_id, scope, waits_at)
        if peer is None:
            return await self._app(scope, receive, send)
        content = await read_body(Request(scope, receive))
        path = route_path(scope).rstrip("/")
        # Only the body of a completion states whether its response is collected.
        may_be_collected = path.endswith(session_id) or path in _COMPLETIONS
        turns = services.turns
        if turns.turns_ended and not path.endswith(_SHORT):
            raise ShuttingDown
        request = self._peer_request(session_id, scope, send)
        request.shutdown = turns.ending
        request.may_start_turn = not turns.shutdown.is_set()
        idle_seconds = None if may_be_collected else IDLE_SECONDS
        running = start_in(turns.forwarded, request.run(peer, content, idle_seconds))
        has_responded = await until_disconnect(receive, running)  # a disconnect cancels it
        if not has_responded:
            # A dead peer is not found again, so this ends.
            again = self._app if request.is_refused else self._dispatch
            await again(scope, _replaying(content, receive), send)
        return None

    async def _responsible_peer(
        self, session_id: str, scope: Scope, waits_at: Peer | None
    ) -> Peer | None:
        """Return the server for a request, or None for this one.

        Also claim the idempotency key of a new turn for that server.

        ``waits_at`` is the server of the turn whose waiting calls a message denies, if any.
        """
        method, path = scope["method"], route_path(scope).rstrip("/")
        if method == "POST" and (path.endswith((session_id, "/stream")) or path in _COMPLETIONS):
            key = header(scope, b"idempotency-key")
            if not re.search(KEY_PATTERN, key):
                return waits_at
            # A server that shuts down claims no key, because another server will run the turn.
            if scope["app"].state.services.turns.shutdown.is_set():
                return await self._peers().key_owner(session_id, key) or waits_at
            return await self._peers().claim_key(session_id, key, waits_at)
        may_start_turn = method == "POST" and path.endswith(("/ai-sdk", "/ag-ui"))
        # If the server of the known run is dead, another one may have continued its turn.
        for run_id in dict.fromkeys([_known_run(scope), None]):
            with suppress(PeerGone):
                return await self._peers().owner_of(session_id, run_id, starts_turn=may_start_turn)
        return None

    async def _delete(self, session_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Delete a session at the server of its latest run, which stops the run first."""
        with suppress(MochiError, PeerGone):
            owner = await self._peers().owner_of(session_id)
            if owner is not None:
                (response,) = await self._request_all([owner], scope)
                if _status(response) == HTTPStatus.NO_CONTENT:
                    for message in response:
                        await send(message)
                    return
        await self._app(scope, receive, send)

    async def _resolve_confirmation(
        self, session_id: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        content = await read_body(Request(scope, receive))
        found = _CONFIRMATION.search(content)
        run_id = requesting_run(found[1].decode()) if found else None
        own = scope["app"].state.services.turns.table.find(session_id, run_id)
        # The server at which the turn waits may have connected clients, which receive the rest of
        # the turn.
        is_own = own is not None and own.run_id == run_id
        owner: Peer | None = None
        if not is_own:
            with suppress(PeerGone):
                owner = await self._peers().owner_of(session_id, run_id)
        if owner is not None:
            (response,) = await self._request_all([owner], scope, content, session_id)
            if response and _status(response) != HTTPStatus.NOT_FOUND:
                for message in response:
                    await send(message)
                return
        await self._app(scope, _replaying(content, receive), send)

    async def _request_all(
        self, peers: Sequence[Peer], scope: Scope, content: bytes = b"", session_id: str = ""
    ) -> list[list[Message]]:
        """Return the messages of each peer's response: none for a dead peer, those of an error for
        a peer that does not respond.
        """
        responses = []
        runs = []
        for peer in peers:
            response: list[Message] = []
            request = self._peer_request(session_id, {**scope}, _append_to(response))
            responses.append(response)
            runs.append(request.run(peer, content))
        await asyncio.gather(*runs)
        return responses

    def _peer_request(self, session_id: str, scope: Scope, send: Send) -> PeerRequest:
        assert self._http is not None  # noqa: S101 - opened with the app
        return PeerRequest(self._http, self._peers(), session_id, scope, send)

    def _signed(self, scope: Scope, send: Send) -> Send:
        async def send_signed(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(PEER_HEADER.encode(), self._peers().name.encode())]
                if _is_refusal(scope, message):
                    added.append((REFUSED_HEADER.encode(), b"1"))
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        return send_signed


def target_of(scope: Scope) -> bytes:
    """Return the path of a request as it was sent, without the path prefix of this server.

    A proxy may have removed the prefix. The other server adds its own.
    """
    sent: bytes = scope["raw_path"]
    if unquote(sent.decode("latin-1")) == route_path(scope):
        return sent
    prefix: str = scope.get("root_path", "")
    return sent.removeprefix(prefix.encode())


def _known_run(scope: Scope) -> str | None:
    """Return the run that the path, the header ``Last-Event-ID`` or the query names, or None."""
    response = _RESPONSE.fullmatch(route_path(scope).rstrip("/"))
    if response:
        return response[2]
    position = _position(scope)
    return position[1] if position else None


def _position(scope: Scope) -> re.Match[str] | None:
    """Return the event ID in the header ``Last-Event-ID`` or the query. Its group is the run."""
    query = unquote(scope["query_string"].decode("latin-1"))
    return _POSITION.search(header(scope, b"last-event-id")) or _POSITION.search(query)


def _sent_caller(scope: Scope) -> Caller:
    """Return the caller that another server has sent with a forwarded request.

    Raises ``ServerVersionsDiffer``.
    """
    sent = header(scope, CALLER_HEADER.encode())
    if not sent:
        return UNRESTRICTED
    sent_limits = header(scope, CALLER_LIMITS_HEADER.encode()) or "{}"
    try:
        identity, limits = json.loads(sent), json.loads(sent_limits)
        # Version 1.0.0 forwards this header of a client, which must not change its identity.
        if limits.keys() & set(_CALLER_FIELDS):
            raise ServerVersionsDiffer
        return Caller.from_json({**identity, **limits})
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ServerVersionsDiffer from error


def _replaying(content: bytes, receive: Receive) -> Receive:
    pending: list[Message] = [{"type": "http.request", "body": content}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay


def _append_to(messages: list[Message]) -> Send:
    async def append(message: Message) -> None:
        messages.append(message)

    return append


def _is_refusal(scope: Scope, message: Message) -> bool:
    """Return whether the response refuses a request at a shutdown.

    The error of a turn that the shutdown ended has the same code, but no ``Retry-After``.
    """
    return scope.get(ERROR) == ShuttingDown.code and b"retry-after" in dict(
        message.get("headers", ())
    )


def _status(response: list[Message]) -> int:
    return int(response[0]["status"]) if response else 0
