"""The client for ``async`` programs: ``client`` with ``await``; what both decide is in ``requests``."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal, TypeVar

import anyio
import httpx
from typing_extensions import Unpack

from mochi_server.client import requests
from mochi_server.client.listening import DELAYS, LOST, Listening, Patience
from mochi_server.client.requests import Request
from mochi_server.client.streams import AsyncStream
from mochi_server.client.types import (
    ChatAnswer,
    Confirmation,
    Decided,
    RunStatus,
    Session,
    SessionDetail,
    SessionOptions,
    TurnOptions,
)
from mochi_server.events import ToolConfirmationRequired

T = TypeVar("T")


class AsyncMochiClient:
    """``MochiClient`` with ``await``; streams are for ``async for``.

    ``delays`` are the seconds before each attempt to go on after a connection was lost. ``http`` is an ``httpx`` client
    of your own, with the ``base_url`` of the API (``http://127.0.0.1:8000/api/v1``); it stays yours to close. Raises
    ``ValueError`` for a ``url`` that is none.

    Every method raises ``ApiError`` for what the server refuses and ``ConnectionFailed`` when it cannot be reached.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        *,
        api_key: str | None = None,
        delays: Sequence[float] = DELAYS,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._http = http or httpx.AsyncClient(**requests.settings(url, api_key))
        self._owned = http is None
        self._delays = delays

    async def create_session(self, model: str, **options: Unpack[SessionOptions]) -> Session:
        """Create a session. ``MODEL_NOT_FOUND`` when Ollama does not have the model."""
        return await self._send(requests.create_session(model, options))

    async def list_sessions(self, q: str | None = None, *, limit: int | None = None, offset: int = 0) -> list[Session]:
        """Sessions, the last changed first: all, or those whose title and messages hold every word of ``q``."""
        return await self._send(requests.list_sessions(q, limit, offset))

    async def get_session(self, session_id: str) -> SessionDetail:
        """A session with its messages."""
        return await self._send(requests.get_session(session_id))

    async def set_title(self, session_id: str, title: str | None) -> Session:
        """Name a session; None returns to the title that it has by itself."""
        return await self._send(requests.set_title(session_id, title))

    async def fork_session(
        self, session_id: str, message_index: int | None = None, *, message_id: str | None = None
    ) -> SessionDetail:
        """Begin a session with the messages up to one of this session, by default the last.

        ``INVALID_MESSAGE_INDEX`` when there is no such message, or when it is inside a round of tool calls.
        """
        return await self._send(requests.fork_session(session_id, message_index, message_id))

    async def export_session(self, session_id: str, format: Literal["json", "markdown"] = "json") -> bytes:
        """A session as a file: JSON, which can be imported, or Markdown, to be read."""
        return await self._send(requests.export_session(session_id, format))

    async def import_sessions(self, data: bytes) -> list[Session]:
        """Store the sessions of an exported file, of this server or of Open WebUI, under new ids: all or none."""
        return await self._send(requests.import_sessions(data))

    async def delete_session(self, session_id: str) -> None:
        """Delete a session; a running turn is stopped first."""
        await self._send(requests.delete_session(session_id))

    async def chat(
        self,
        session_id: str,
        message: str | None = None,
        *,
        wait_for_confirmation: bool = False,
        idempotency_key: str | None = None,
        **options: Unpack[TurnOptions],
    ) -> ChatAnswer:
        """Send a message and get the whole answer; without one, the last user message is answered again.

        Calls of tools that need approval are denied, unless ``wait_for_confirmation`` and somebody confirms them.
        """
        return await self._send(requests.chat(session_id, message, wait_for_confirmation, idempotency_key, options))

    def stream(
        self,
        session_id: str,
        message: str | None = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[TurnOptions],
    ) -> AsyncStream:
        """Send a message and get the events of the answer, ``Done`` the last.

        The message is sent when iterating begins. A lost connection is resumed: no event is lost, none comes twice.
        """
        first = requests.stream(session_id, message, idempotency_key, options)
        return AsyncStream(self._http, Listening(session_id, first, self._delays))

    def listen(self, session_id: str, after: str | None = None) -> AsyncStream:
        """The events of the running or latest turn, from its beginning or behind an event; none when there is none.

        ``after`` is the ``last_event_id`` of a stream. Events that the server no longer keeps come as a ``Snapshot``.
        """
        return AsyncStream(self._http, Listening(session_id, requests.listen(session_id, after), self._delays, after))

    async def confirm(
        self,
        session_id: str,
        call: str | ToolConfirmationRequired,
        approved: bool,
        *,
        arguments: dict[str, Any] | None = None,
        reason: str | None = None,
        remember: Literal["once", "session"] = "once",
    ) -> Decided:
        """Approve or deny a call: the event that asks, or its ``confirmation_id``.

        ``arguments`` replace those of the model, the model is told the ``reason``, ``remember="session"`` decides for
        all later calls of that tool in the session. ``CONFIRMATION_RESOLVED`` when it was decided before.
        """
        return await self._send(
            requests.confirm(session_id, call, approved, arguments=arguments, reason=reason, remember=remember)
        )

    async def list_confirmations(self, session_id: str) -> list[Confirmation]:
        """The calls that wait for approval, oldest first."""
        return await self._send(requests.list_confirmations(session_id))

    async def stop(self, session_id: str) -> RunStatus:
        """Stop the running turn and keep what was said; nothing happens when none is running."""
        return await self._send(requests.stop(session_id))

    async def get_run(self, session_id: str) -> RunStatus:
        """The running or latest turn."""
        return await self._send(requests.get_run(session_id))

    async def aclose(self) -> None:
        """Close the connections."""
        if self._owned:
            await self._http.aclose()

    async def __aenter__(self) -> "AsyncMochiClient":
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _send(self, request: Request[T]) -> T:
        patience = Patience(self._delays if request.repeatable else ())
        while True:
            try:
                return request.result(await self._http.request(request.method, request.path, **request.arguments()))
            except LOST as error:
                await anyio.sleep(patience.wait_after(error))
