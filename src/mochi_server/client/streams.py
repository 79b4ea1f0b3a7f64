"""Errors of the client, and streams of the events of a turn, which reconnect after a lost
connection.
"""

import json
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, fields
from typing import Any, TypeVar, get_args

import anyio
import httpx
from typing_extensions import Self

from mochi_server.errors import restored_error
from mochi_server.events import (
    ChatEvent,
    ContentDelta,
    Done,
    Snapshot,
    Status,
    ThinkingDelta,
    ToolConfirmationRequired,
    TurnError,
)
from mochi_server.util.tasks import BlockingClient, run

DELAYS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each attempt to resume after a lost connection."""
READ_SECONDS = 30  # on an idle stream, the server sends a comment every ten seconds
_UNKNOWN_TURN = "The server no longer has this turn. Get the session to read its stored messages."


class ClientError(Exception):
    """Base class of the errors of the client."""


class ConnectionFailed(ClientError):
    """The server cannot be reached, or the connection was lost.

    ``listen`` returns the rest of a turn that runs.
    """


class Unavailable(ConnectionFailed):
    """A proxy cannot reach the server at the moment."""


@dataclass(eq=False)
class ApiError(ClientError):
    """An error response with its HTTP ``status`` and the server's error ``code``, such as
    ``SESSION_BUSY``.
    """

    status: int
    code: str
    message: str
    details: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.code} ({self.status}): {self.message}"


def parse_error(status: int, body: bytes) -> ClientError:
    """Return the exception for an error response: ``Unavailable`` if it is from a proxy, otherwise
    ``ApiError``.
    """
    try:
        error = json.loads(body)["error"]
        return ApiError(
            status,
            code=error["code"],
            message=error["message"],
            details=error.get("details") or {},
        )
    except (ValueError, TypeError, LookupError):
        if status in (502, 503, 504):
            return Unavailable(f"A proxy cannot reach the server (HTTP status {status}).")
        beginning = body[:200].decode(errors="replace")
        message = (
            f"The response is not from mochi-server; check the URL. It begins with: {beginning}"
        )
        return ApiError(status, code="UNKNOWN", message=message, details={})


def error_of(event: TurnError) -> ApiError:
    """Return the exception for the error that ended a turn."""
    status = restored_error(event.code, event.message).status
    return ApiError(status, event.code, event.message, event.details)


RETRYABLE_ERRORS = (httpx.TransportError, Unavailable)
"""Errors after which another attempt can succeed."""


@dataclass(frozen=True, slots=True)
class UnknownEvent:
    """An event that this version of the client does not support. ``type`` is its name."""

    type: str
    data: Any


StreamEvent = ChatEvent | UnknownEvent
_CLASSES: dict[str, Any] = {cls.type: cls for cls in get_args(ChatEvent)}
T = TypeVar("T")


class Parser:
    """Incremental parser of server-sent events. Each connection needs its own parser."""

    def __init__(self) -> None:
        self._buffer = b""
        self._fields: dict[str, list[str]] = {}

    def feed(self, data: bytes) -> Iterator[tuple[str, StreamEvent]]:
        """Yield the ID and the event of each server-sent event that ``data`` completes."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            text = line.removesuffix(b"\r").decode()
            if text:
                name, _, value = text.partition(":")
                self._fields.setdefault(name, []).append(value.removeprefix(" "))
                continue
            fields = self._fields
            self._fields = {}
            if "data" in fields:
                event_id = fields.get("id", [""])[-1]
                name = fields.get("event", ["message"])[-1]
                content = json.loads("\n".join(fields["data"]))
                yield event_id, _make_event(name, content)


def build(cls: type[T], data: Mapping[str, Any]) -> T:
    """Return an instance of a dataclass with the fields in ``data``. Unknown fields are ignored."""
    known: dict[str, Any] = {}
    for field in fields(cls):  # type: ignore[arg-type]  # a dataclass
        if field.name in data:
            known[field.name] = data[field.name]
    return cls(**known)


def _make_event(name: str, data: Any) -> StreamEvent:
    try:
        event: StreamEvent = build(_CLASSES[name], data)
    except (LookupError, TypeError):  # a new event, or a required field is missing
        return UnknownEvent(name, data)
    return event


@dataclass
class Backoff:
    """Sequence of delays before the attempts to reconnect, in seconds."""

    delays: Sequence[float]
    _failures: int = 0
    _was_connected: bool = False

    def reset(self) -> None:
        self._failures = 0
        self._was_connected = True

    def delay_after(self, error: Exception | None) -> float:
        """Return the delay before the next attempt to connect.

        If ``error`` is None, the server closed the connection.

        Raises ``ConnectionFailed`` if no delays are left, or if no connection to the server ever
        succeeded.
        """
        reason = "the server closed it" if error is None else str(error) or type(error).__name__
        if not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
            self._was_connected = True
        elif not self._was_connected:
            address = str(error.request.url.copy_with(path="", query=None, userinfo=None))
            advice = "Start mochi-server, or correct the address."
            # Without the long traceback of the HTTP library.
            raise ConnectionFailed(
                f"Cannot connect to {address.rstrip('/')}: {reason}. {advice}"
            ) from None
        if self._failures >= len(self.delays):
            raise ConnectionFailed(f"The connection to the server failed: {reason}") from None
        self._failures += 1
        return self.delays[self._failures - 1]


class AsyncStream(AsyncIterator[StreamEvent]):
    """Asynchronous iterator over the events of a turn.

    By default, the turn continues when the stream is closed.

    Iteration raises ``ApiError`` for an error response, and ``ConnectionFailed`` if the server
    cannot be reached.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        url: str,
        delays: Sequence[float],
        *,
        first_request: Mapping[str, Any] | None = None,
        after: str | None = None,
        on_confirmation: Callable[[ToolConfirmationRequired], Awaitable[None]] | None = None,
    ) -> None:
        """``first_request`` starts a turn and is repeated if the connection fails.

        Without it, get the latest turn. ``on_confirmation`` is called after the stream has returned
        an event that requires approval, and before the next event.
        """
        self.last_event_id = after
        """ID of the latest event.

        Pass the ID to ``listen`` to continue after this event, even in another process. If the
        server no longer has the event's turn, ``listen`` returns the events of the latest turn.
        """
        self._first_request = first_request
        self._on_confirmation = on_confirmation
        self._to_decide: ToolConfirmationRequired | None = None
        self._backoff = Backoff(delays)
        self._started = False
        self._ended = False
        self._content: list[str] = []
        self._thinking: list[str] = []
        self._events = self._run(http, url)

    @property
    def text(self) -> str:
        """The text of the answer so far."""
        return "".join(self._content)

    @property
    def thinking(self) -> str:
        """The reasoning of the model so far."""
        return "".join(self._thinking)

    async def aclose(self) -> None:
        await self._events.aclose()

    async def __anext__(self) -> StreamEvent:
        event = self._to_decide
        self._to_decide = None
        if event is not None and self._on_confirmation is not None:
            await self._on_confirmation(event)
        received = await anext(self._events)
        if isinstance(received, ToolConfirmationRequired):
            self._to_decide = received
        return received

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _run(self, http: httpx.AsyncClient, url: str) -> AsyncGenerator[StreamEvent, None]:
        while not self._ended:
            failure = None
            try:
                async with http.stream(
                    url=url, timeout=READ_SECONDS, **self._request()
                ) as response:
                    kind = response.headers.get("Content-Type", "")
                    if response.status_code != 200 or not kind.startswith("text/event-stream"):
                        body = await response.aread()
                        if response.status_code != 204:  # 204: there is no turn
                            raise parse_error(response.status_code, body)
                        if self._started:
                            raise ConnectionFailed(_UNKNOWN_TURN)
                        self._ended = True
                    parser = Parser()
                    async for data in response.aiter_bytes():
                        for event_id, event in parser.feed(data):
                            self._record(event_id, event)
                            yield event
            except RETRYABLE_ERRORS as error:
                failure = error
            if not self._ended:
                await anyio.sleep(self._backoff.delay_after(failure))

    def _request(self) -> Mapping[str, Any]:
        if self._first_request is not None and not self._started:
            return self._first_request
        headers = {"Last-Event-ID": self.last_event_id} if self.last_event_id else {}
        return {"method": "GET", "headers": headers}

    def _record(self, event_id: str, event: StreamEvent) -> None:
        is_same_run = _run_of(event_id) == _run_of(self.last_event_id or "")
        if self._started and not is_same_run and not _continues(event):
            raise ConnectionFailed(_UNKNOWN_TURN)
        self._backoff.reset()
        self._started = True
        self.last_event_id = event_id
        match event:
            case ContentDelta():
                self._content.append(event.content)
            case ThinkingDelta():
                self._thinking.append(event.content)
            case Snapshot():
                self._content = [event.content]
                self._thinking = [event.thinking]
        self._ended = isinstance(event, Done)


def _run_of(event_id: str) -> str:
    return event_id.partition(":")[0]


def _continues(event: StreamEvent) -> bool:
    """Return whether the first event of a new run continues the turn of an earlier run.

    A snapshot is assumed to, although the snapshot of another turn looks the same.
    """
    if isinstance(event, Status):
        return event.continues is not None
    return isinstance(event, Snapshot)


class Stream(BlockingClient[AsyncStream], Iterator[StreamEvent]):
    """Synchronous version of ``AsyncStream``."""

    def __init__(self, stream: AsyncStream, owner: object) -> None:
        """Create a stream of the client ``owner``, whose connections would close if it were
        garbage-collected.
        """
        super().__init__(stream)
        self._owner = owner

    @property
    def last_event_id(self) -> str | None:
        return self._client.last_event_id

    @property
    def text(self) -> str:
        return self._client.text

    @property
    def thinking(self) -> str:
        return self._client.thinking

    def __next__(self) -> StreamEvent:
        try:
            return run(self._client.__anext__(), self._loop)
        except StopAsyncIteration:
            raise StopIteration from None
