"""HTTP client for tests: httpx and a minimal parser of server-sent events."""

import ssl
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import local
from typing import Any

import httpx
import orjson

KEPT = httpx.Limits()
UNUSED_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""TLS context that is shared because creating one takes longer than most requests.

No connection is encrypted.
"""


@dataclass(frozen=True)
class Event:
    """One server-sent event."""

    id: str
    type: str
    data: dict[str, Any]


class ConnectionsOfEachThread(httpx.BaseTransport):
    """Transport with one connection pool per thread.

    A shared pool may close an idle connection that another thread has just received.
    """

    def __init__(self, limits: httpx.Limits) -> None:
        self._limits = limits
        self._own = local()
        self._pools: list[httpx.HTTPTransport] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if not hasattr(self._own, "pool"):
            self._own.pool = httpx.HTTPTransport(verify=UNUSED_TLS, limits=self._limits)
            self._pools.append(self._own.pool)
        response: httpx.Response = self._own.pool.handle_request(request)
        return response

    def close(self) -> None:
        for pool in self._pools:
            pool.close()


class Api:
    """Client of one server, usable from any thread. Fails the test on an unexpected status."""

    def __init__(self, url: str, *, limits: httpx.Limits = KEPT, **client: Any) -> None:
        transport = ConnectionsOfEachThread(limits)
        plain = {
            "base_url": f"{url}/api/v1",
            "trust_env": False,
            "transport": transport,
            "timeout": 60,
        }
        self.http = httpx.Client(**{**plain, **client})

    def __enter__(self) -> "Api":
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def create_session(self, model: str, **fields: Any) -> dict[str, Any]:
        return self.ok(self.http.post("/sessions", json={"model": model, **fields}), 201)

    def session(self, session_id: str) -> dict[str, Any]:
        return self.ok(self.http.get(f"/sessions/{session_id}"))

    def messages(self, session_id: str) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.session(session_id)["messages"]
        return messages

    def send_message(
        self, session_id: str, message: str | None = None, **fields: Any
    ) -> dict[str, Any]:
        return self.ok(self.http.post(f"/chat/{session_id}", json=_body(message, fields)))

    def stream_message(
        self, session_id: str, message: str | None = None, **fields: Any
    ) -> list[Event]:
        with self.open_stream(session_id, message, **fields) as events:
            return list(events)

    @contextmanager
    def open_stream(
        self, session_id: str, message: str | None = None, **fields: Any
    ) -> Iterator[Iterator[Event]]:
        """Yield the events as they arrive. Leaving the context closes the connection."""
        body = _body(message, fields)
        with self.http.stream("POST", f"/chat/{session_id}/stream", json=body) as response:
            assert response.status_code == 200, response.read()
            assert response.headers["content-type"].startswith("text/event-stream")
            yield read_events(response)

    @staticmethod
    def ok(response: httpx.Response, status: int = 200) -> dict[str, Any]:
        assert response.status_code == status, response.text
        body: dict[str, Any] = response.json()
        return body


def read_events(response: httpx.Response) -> Iterator[Event]:
    """Yield the events of a stream without pings."""
    rest = b""
    for data in response.iter_raw():
        *frames, rest = (rest + data).split(b"\n\n")
        for frame in frames:
            fields = dict(
                line.split(b": ", 1) for line in frame.split(b"\n") if not line.startswith(b":")
            )
            if fields:
                yield Event(
                    fields[b"id"].decode(), fields[b"event"].decode(), orjson.loads(fields[b"data"])
                )
    assert rest == b"", "the stream ended inside an event"


INCIDENTAL = frozenset({"status"})
"""Types of events that may occur anywhere in a stream.

Add a new event here if exact sequences need not contain it.
"""


def types_of(events: Iterable[Event]) -> list[str]:
    """Return the types of the events, oldest first, without incidental events.

    Compare exact sequences with this.
    """
    return [event.type for event in events if event.type not in INCIDENTAL]


def text_of(events: list[Event]) -> str:
    """Return the answer's text from the events of a stream."""
    return "".join(event.data["content"] for event in events if event.type == "content_delta")


def error_of(response: httpx.Response) -> tuple[int, str]:
    """Return status and code of an error response. Fails if it does not have the error envelope."""
    body = response.json()
    assert set(body) == {"error"}, body
    assert set(body["error"]) == {"code", "message", "details"}, body
    assert isinstance(body["error"]["message"], str)
    assert body["error"]["message"]
    return response.status_code, body["error"]["code"]


def _body(message: str | None, fields: dict[str, Any]) -> dict[str, Any]:
    return fields if message is None else {"message": message, **fields}
