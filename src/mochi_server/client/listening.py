"""Where a listener of a turn stands: what it has heard, what it asks for next. Pure: sends nothing, never waits."""

from collections.abc import Iterator, Sequence

import httpx

from mochi_server.client import requests
from mochi_server.client.errors import ConnectionFailed, Unavailable, error_of
from mochi_server.client.requests import Request
from mochi_server.client.wire import Frame, Parser, StreamEvent
from mochi_server.events import ContentDelta, Done, Snapshot, ThinkingDelta

DELAYS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each attempt to go on after a connection was lost."""

LOST = (httpx.TransportError, Unavailable)
"""After which another attempt may go better."""


class Patience:
    """How long to wait after each failure in a row."""

    def __init__(self, delays: Sequence[float]) -> None:
        self._delays = delays
        self._failures = 0
        self._met = False

    def reset(self) -> None:
        """Something came."""
        self._failures, self._met = 0, True

    def wait_after(self, error: Exception | None) -> float:
        """Seconds. Raises ``ConnectionFailed`` when it is at its end, or where there never was a server."""
        nobody_there = isinstance(error, httpx.ConnectError) and not self._met
        self._met = self._met or not nobody_there
        if nobody_there or self._failures >= len(self._delays):
            raise ConnectionFailed(f"The connection to the server is lost: {error or 'it was closed'}") from error
        self._failures += 1
        return self._delays[self._failures - 1]


class Listening:
    """The first request begins; when it breaks off, the next one asks for what has not been heard."""

    def __init__(
        self, session_id: str, first: Request[None], delays: Sequence[float], after: str | None = None
    ) -> None:
        self.patience = Patience(delays)
        self.ended = False
        self.last_event_id = after
        self._content: list[str] = []
        self._thinking: list[str] = []
        self._session_id = session_id
        self._first = first
        self._begun = False

    @property
    def text(self) -> str:
        """The answer as far as it was heard."""
        return "".join(self._content)

    @property
    def thinking(self) -> str:
        """The thinking as far as it was heard."""
        return "".join(self._thinking)

    def request(self) -> Request[None]:
        """What to ask for: until something was heard the beginning, which is safe to repeat, then the rest."""
        return requests.listen(self._session_id, self.last_event_id) if self._begun else self._first

    def is_stream(self, response: httpx.Response) -> bool:
        """Whether an answer is events, rather than something to ``read``."""
        return response.status_code == 200 and response.headers.get("Content-Type", "").startswith("text/event-stream")

    def read(self, status: int, body: bytes) -> None:
        """An answer that is no stream. Raises ``ClientError`` unless it says that there is nothing to hear."""
        if status != 204:
            raise error_of(status, body)
        if self._begun:
            raise ConnectionFailed("The server no longer knows the turn; the session has what was stored of it.")
        self.ended = True

    def feed(self, parser: Parser, data: bytes) -> Iterator[StreamEvent]:
        """The events in some bytes, each counted as heard when it is handed out."""
        for frame in parser.feed(data):
            if self._is_new(frame):
                self._note(frame)
                yield frame.event

    def _is_new(self, frame: Frame) -> bool:
        if self.last_event_id is None:
            return True
        (heard_run, _, heard), (run, _, number) = self.last_event_id.rpartition(":"), frame.id.rpartition(":")
        if self._begun and run != heard_run:
            raise ConnectionFailed("The server no longer knows the turn; the session has what was stored of it.")
        return run != heard_run or int(number) > int(heard)

    def _note(self, frame: Frame) -> None:
        self.patience.reset()
        self._begun, self.last_event_id = True, frame.id
        event = frame.event
        if isinstance(event, ContentDelta):
            self._content.append(event.content)
        elif isinstance(event, ThinkingDelta):
            self._thinking.append(event.content)
        elif isinstance(event, Snapshot):
            self._content, self._thinking = [event.content], [event.thinking]
        self.ended = isinstance(event, Done)
