"""ASGI middleware that forwards requests about a turn to the server that runs the turn."""

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from urllib.parse import unquote

import aiohttp
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mochi_server.cluster.peer_request import IDLE_SECONDS, PEER_HEADER, PeerRequest, http_session
from mochi_server.constants import API_PREFIX, KEY_PATTERN
from mochi_server.errors import ConfirmationInterrupted, MochiError, Unauthorized
from mochi_server.models.chat import RunStatus
from mochi_server.protocols import load_protocols
from mochi_server.sessions.session import is_session_id
from mochi_server.storage.postgres.processes import Peer, PeerDirectory, PeerGone
from mochi_server.web.requests import ClientDisconnected, header, read_body, send_error, until_disconnect

_CHAT = re.compile(
    rf"{API_PREFIX}/chat/([0-9a-f]{{10}})(|/stream|/stop|/run|/confirmations|/confirm-tool|/ai-sdk(?:/[^/]+/stream)?|/ag-ui)/?"
)
_COMPLETIONS = {protocol.prefix + path for protocol in load_protocols() for path in protocol.turn_paths}
"""Paths of the routes that start a turn in the session of the header `X-Mochi-Session`."""
_SESSION = re.compile(rf"{API_PREFIX}/sessions/([0-9a-f]{{10}})/?")
_RELOADS = {f"{API_PREFIX}/tools/reload", f"{API_PREFIX}/agents/reload"}
_LATEST_RUN = {("GET", "stream"), ("GET", "run"), ("POST", "stop")}
"""Methods and last path segments of the requests about the latest turn of a session."""
_RUN_ID = re.compile(r"([0-9a-f]{10}):\d+")


class ClusterMiddleware:
    """Middleware that forwards each request of a client to the server that must handle it.

    ``guards`` are middlewares that check requests of clients first. A request from another server skips the guards,
    because that server has already checked it. Such a request is never forwarded again.
    """

    def __init__(self, app: ASGIApp, guards: Sequence[Middleware], peers: Callable[[], PeerDirectory]) -> None:
        """``peers`` returns the current peer directory. Each lifespan of the app creates another directory."""
        self._app = app
        self._peers = peers
        self._http: aiohttp.ClientSession | None = None
        self._guarded: ASGIApp = self._dispatch
        for guard, args, kwargs in reversed(guards):
            self._guarded = guard(self._guarded, *args, **kwargs)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            async with http_session() as self._http:
                await self._app(scope, receive, send)
        elif scope["type"] != "http" or not (token := header(scope, PEER_HEADER.encode())):
            await self._guarded(scope, receive, send)
        elif self._peers().accepts(token):
            await self._app(scope, receive, self._signed(send))
        else:
            await send_error(Unauthorized(), scope, send)

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path, named_session = scope["method"], scope["path"], header(scope, b"x-mochi-session")
        try:
            if method == "POST" and path.rstrip("/") in _RELOADS:
                await self._reload(scope, receive, send)
            elif method == "DELETE" and (match := _SESSION.fullmatch(path)):
                await self._delete(match[1], scope, receive, send)
            elif (match := _CHAT.fullmatch(path)) and (method, match[2]) == ("POST", "/confirm-tool"):
                await self._resolve_confirmation(match[1], scope, receive, send)
            elif match:
                await self._forward(match[1], scope, receive, send)
            elif method == "POST" and path.rstrip("/") in _COMPLETIONS and is_session_id(named_session):
                await self._forward(named_session, scope, receive, send)
            else:
                await self._app(scope, receive, send)
        except MochiError as error:
            await send_error(error, scope, send)
        except ClientDisconnected:
            return

    async def _forward(self, session_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            peer = await self._responsible_peer(session_id, scope)
        except PeerGone:
            return await _response_without_run(scope)(scope, receive, send)
        if peer is None:
            return await self._app(scope, receive, send)
        content = await read_body(Request(scope, receive))
        path = scope["path"].rstrip("/")
        # A completion may be collected, too. Only its body states whether it is.
        is_collected = path.endswith(session_id) or path in _COMPLETIONS
        request = self._request(session_id, scope, send)
        request.shutdown = scope["app"].state.services.runs.shutdown
        running = request.run(peer, content, None if is_collected else IDLE_SECONDS)
        if not await until_disconnect(receive, running):  # the peer died, so dispatch the request again
            await self._dispatch(scope, _replaying(content, receive), send)
        return None

    async def _responsible_peer(self, session_id: str, scope: Scope) -> Peer | None:
        """Return the server for a request, or None for this one. Raises ``PeerGone`` if the latest turn is lost."""
        method, path = scope["method"], scope["path"].rstrip("/")
        if method == "POST" and (path.endswith((session_id, "/stream")) or path in _COMPLETIONS):
            key = header(scope, b"idempotency-key")
            return await self._peers().claim(session_id, key) if re.search(KEY_PATTERN, key) else None
        query = unquote(scope["query_string"].decode("latin-1"))
        position = _RUN_ID.search(header(scope, b"last-event-id")) or _RUN_ID.search(query)
        starts_turn = method == "POST" and path.endswith(("/ai-sdk", "/ag-ui"))  # or decides about a running turn
        try:
            return await self._peers().owner_of(session_id, position and position[1], starts_turn=starts_turn)
        except PeerGone:
            if (method, path.rpartition("/")[2]) in _LATEST_RUN:
                raise
            return None

    async def _reload(self, scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(MochiError):
            await self._request_all(await self._peers().serving_peers(), scope)
        await self._app(scope, receive, send)

    async def _delete(self, session_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        responses: list[list[Message]] = []
        with suppress(MochiError):
            responses = await self._request_all(await self._peers().peers_with_runs(session_id), scope)
        own: list[Message] = []
        await self._app(scope, receive, _into(own))
        deleted = [response for response in responses if _status(response) == HTTPStatus.NO_CONTENT]
        for message in [*deleted, own][0]:
            await send(message)

    async def _resolve_confirmation(self, session_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        content = await read_body(Request(scope, receive))
        own: list[Message] = []
        found: list[list[Message]] = []
        own_scope = {**scope}
        await self._app(own_scope, _replaying(content, receive), _into(own))
        if _is_unknown(own):
            others = await self._peers().peers_with_runs(session_id)
            responses = await self._request_all(others, scope, content, session_id)
            found = [response for response in responses if response and not _is_unknown(response)]
        if not found:
            scope.update(own_scope)
        for message in [*found, own][0]:
            await send(message)

    async def _request_all(
        self, peers: Sequence[Peer], scope: Scope, content: bytes = b"", session_id: str = ""
    ) -> list[list[Message]]:
        responses: list[list[Message]] = [[] for _ in peers]
        requests = [self._request(session_id, {**scope}, _into(response)) for response in responses]
        await asyncio.gather(*(request.run(peer, content) for request, peer in zip(requests, peers, strict=True)))
        return responses

    def _request(self, session_id: str, scope: Scope, send: Send) -> PeerRequest:
        assert self._http is not None  # noqa: S101 - opened with the app
        return PeerRequest(self._http, self._peers(), session_id, scope, send)

    def _signed(self, send: Send) -> Send:
        name = (PEER_HEADER.encode(), self._peers().name.encode())

        async def send_signed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), name]}
            await send(message)

        return send_signed


def _response_without_run(scope: Scope) -> Response:
    """Return the response to a request about the latest turn if that turn is lost. An earlier turn is no substitute."""
    if scope["path"].rstrip("/").endswith("/stream"):
        return Response(status_code=HTTPStatus.NO_CONTENT)
    return Response(RunStatus.of(None).model_dump_json(), media_type="application/json")


def _replaying(content: bytes, receive: Receive) -> Receive:
    pending: list[Message] = [{"type": "http.request", "body": content}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay


def _into(messages: list[Message]) -> Send:
    async def append(message: Message) -> None:
        messages.append(message)

    return append


def _is_unknown(response: list[Message]) -> bool:
    """Return whether ``response`` states that its server has no waiting tool call for the client's decision."""
    body = b"".join(message.get("body", b"") for message in response)
    return _status(response) == HTTPStatus.NOT_FOUND or f'"{ConfirmationInterrupted.code}"'.encode() in body


def _status(response: list[Message]) -> int:
    return int(response[0]["status"]) if response else 0
