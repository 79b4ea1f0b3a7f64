"""Requests about a turn go to the process that runs it. A layer inside of everything that checks requests.

Every answer is the other process's own: it handles the request as if it had come to it. Of all routes only those are
looked at that are about runs; whoever is asked about one that it does not run, and nobody else does, answers itself.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import orjson
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mochi_server.asgi import header, refuse
from mochi_server.constants import API_PREFIX, KEY_PATTERN
from mochi_server.errors import MochiError
from mochi_server.postgres.peers import PATIENCE_SECONDS, PeerGone, Peers, Request
from mochi_server.postgres.stores import PostgresStores
from mochi_server.relaying import Relay
from mochi_server.sessions.store import Stores

_CHAT = re.compile(rf"{API_PREFIX}/chat/([0-9a-f]{{10}})(|/stream|/stop|/run|/confirmations|/confirm-tool)/?")
_DECISION = re.compile(rf"{API_PREFIX}/chat/([0-9a-f]{{10}})/confirm-tool")
_SESSION = re.compile(rf"{API_PREFIX}/sessions/([0-9a-f]{{10}})/?")
_FOR_ALL = {f"{API_PREFIX}/tools/reload", f"{API_PREFIX}/agents/reload"}
_RUN_ID = re.compile(r"([0-9a-f]{10}):\d+")
_KEPT = ("type", "asgi", "http_version", "method", "scheme", "path", "root_path")


def peers_of(stores: Stores) -> Peers:
    """The processes that share these stores."""
    assert isinstance(stores, PostgresStores)  # noqa: S101 - there is a URL, or nobody would ask
    return stores.peers


class Forwarding:
    """The layer. ``peers`` answers with the processes of now, for they change with the app's lifespan."""

    def __init__(self, app: ASGIApp, peers: Callable[[], Peers]) -> None:
        self._app = app
        self._peers = peers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            self._peers().answer_with(lambda request: self._answer(request, scope["app"]))
            await self._app(scope, receive, send)
            return
        if scope["method"] == "POST" and scope["path"].rstrip("/") in _FOR_ALL:
            await self._done_by_others(scope, self._peers().others())
        elif scope["method"] == "DELETE" and (found := _SESSION.fullmatch(scope["path"])):
            answers = await self._done_by_others(scope, self._peers().with_runs(found[1]))
            if HTTPStatus.NO_CONTENT in map(_status, answers):
                send = _told(send, HTTPStatus.NO_CONTENT)
        elif scope["method"] == "POST" and (found := _DECISION.fullmatch(scope["path"])):
            await self._decide(found[1], scope, receive, send)
            return
        try:
            process = await self._process_of(scope)
        except PeerGone:
            await Response(status_code=HTTPStatus.NO_CONTENT)(scope, receive, send)
            return
        except MochiError as error:
            await refuse(error, scope, send)
            return
        if process is None:
            await self._app(scope, receive, send)
        elif (content := await _body(receive)) is not None:
            await self._forward(process, scope, content, receive, send)

    async def _answer(self, request: Request, app: object) -> None:
        """Answer a request that came to another process."""
        scope = {**orjson.loads(request.head), "app": app, "state": {}}
        scope["headers"] = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in scope["headers"]]
        scope |= {name: scope[name].encode("latin-1") for name in ("query_string", "raw_path")}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
                await request.answer(orjson.dumps({"status": message["status"], "headers": headers}).decode(), b"")
            elif message["type"] == "http.response.body" and message.get("body"):
                await request.answer(None, message["body"])

        await self._app(scope, _receiving(request.body, request.gone.wait), send)

    async def _process_of(self, scope: Scope) -> str | None:
        """The other process that has to answer, if one has.

        Raises ``PeerGone`` when somebody wants to listen to a turn whose process is dead, ``StorageFailed``.
        """
        method, path, peers = scope["method"], scope["path"], self._peers()
        if not (found := _CHAT.fullmatch(path)):
            return None
        session_id, what = found[1], found[2]
        if method == "POST" and what in ("", "/stream"):
            key = header(scope, b"idempotency-key")
            return await peers.claim(session_id, key) if re.search(KEY_PATTERN, key) else None
        query = unquote(scope["query_string"].decode("latin-1"))
        heard = _RUN_ID.search(header(scope, b"last-event-id")) or _RUN_ID.search(query)
        try:
            return await peers.runs_at(session_id, heard[1] if heard else None)
        except PeerGone:
            if (method, what) == ("GET", "/stream"):
                raise
            return None

    async def _decide(self, session_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """A decision goes to whoever asked for it, which may have been another server in an earlier turn."""
        content = await _body(receive)
        if content is None:
            return
        ours: list[Message] = []
        own = {**scope}
        await self._app(own, _receiving(content, asyncio.Event().wait), _keeping(ours))
        theirs: list[Message] | None = None
        if _status(ours) == HTTPStatus.NOT_FOUND:
            try:
                theirs = await self._decided_elsewhere(session_id, scope, content)
            except MochiError as error:  # so nobody knows whether there is such a call
                await refuse(error, scope, send)
                return
        if theirs is None:
            scope.update(own)
        for message in theirs or ours:
            await send(message)

    async def _decided_elsewhere(self, session_id: str, scope: Scope, content: bytes) -> list[Message] | None:
        """The answer of whoever knows the call. Raises ``StorageFailed``."""
        others = await self._peers().with_runs(session_id)
        answers = await asyncio.gather(*(self._done_by(process, scope, content, session_id) for process in others))
        return next((answer for answer in answers if _status(answer) not in (0, HTTPStatus.NOT_FOUND)), None)

    async def _forward(self, process: str, scope: Scope, content: bytes, receive: Receive, send: Send) -> None:
        relay = Relay(_session_of(scope), scope, send)
        patience = None if _is_collected(scope) else PATIENCE_SECONDS
        asked = self._peers().ask(process, _head(scope), content, patience=patience)
        relaying = asyncio.ensure_future(relay.pass_on(asked))
        gone = asyncio.ensure_future(_disconnected(receive))
        leaving = asyncio.ensure_future(scope["app"].state.services.runs.shutdown.wait())
        try:
            await asyncio.wait({relaying, gone, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (relaying, gone, leaving):
                task.cancel()
            await asyncio.wait({relaying, gone, leaving})
        if relaying.cancelled():
            if gone.cancelled():
                await relay.leave()
        elif not relaying.result():  # whoever has to answer now
            await self(scope, _receiving(content, lambda: _disconnected(receive)), send)

    async def _done_by_others(self, scope: Scope, others: Awaitable[list[str]]) -> list[list[Message]]:
        """Have other processes do the same; the answers of those that did."""
        with suppress(MochiError):
            return await asyncio.gather(*(self._done_by(process, scope, b"") for process in await others))
        return []

    async def _done_by(self, process: str, scope: Scope, content: bytes, session_id: str = "") -> list[Message]:
        """A whole answer; empty when there is none."""
        messages: list[Message] = []
        relay = Relay(session_id, {**scope}, _keeping(messages))
        return messages if await relay.pass_on(self._peers().ask(process, _head(scope), content)) else []


def _session_of(scope: Scope) -> str:
    """Whose runs a request is about."""
    found = _CHAT.fullmatch(scope["path"])
    assert found is not None  # noqa: S101 - no other path has a process to be forwarded to
    return found[1]


def _is_collected(scope: Scope) -> bool:
    """Whether the answer to a request comes at the end of a turn, which may take minutes."""
    found = _CHAT.fullmatch(scope["path"])
    return found is not None and found[2] == ""


def _status(answer: list[Message]) -> int:
    return int(answer[0]["status"]) if answer else 0


def _keeping(messages: list[Message]) -> Send:
    """A ``send`` that keeps an answer."""

    async def keep(message: Message) -> None:
        messages.append(message)

    return keep


def _told(send: Send, status: HTTPStatus) -> Send:
    """A ``send`` for what another process has done already, so that there is nothing left to be done here."""

    async def send_status(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send({"type": "http.response.start", "status": int(status), "headers": []})
            await send({"type": "http.response.body", "body": b""})

    return send_status


def _head(scope: Scope) -> str:
    """A request without its body, as JSON."""
    head = {name: scope[name] for name in _KEPT if name in scope}
    head |= {name: scope.get(name, b"").decode("latin-1") for name in ("query_string", "raw_path")}
    head["headers"] = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    head |= {name: scope.get(name) for name in ("client", "server")}
    return orjson.dumps(head).decode()


async def _body(receive: Receive) -> bytes | None:
    """The whole body; None when the client left before it was there."""
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += bytes(message.get("body", b""))
        if not message.get("more_body"):
            return body


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _receiving(body: bytes, gone: Callable[[], Awaitable[Any]]) -> Receive:
    """A ``receive`` that gives a body that is there, and then says when the client has left."""
    given = False

    async def receive() -> Message:
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        await gone()
        return {"type": "http.disconnect"}

    return receive
