"""What the server was asked and how each exchange went. Bounded; safe to read from any thread; free of secrets."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal
from urllib.parse import unquote_plus

import orjson

from mochi_stub.images import image_digests

Outcome = Literal["running", "finished", "cancelled", "failed"]

MAX_EXCHANGES = 1000
MAX_BYTES = 64 * 1024 * 1024

UNSEEN = "/stub/"
"""Who looks at the journal does not stand in it."""

MASK = "***"
_SECRET_HEADER = re.compile(rb"auth|cookie|credential|api-?key|token|secret|passw|(?<!idempotency)-key$")
_SECRET_QUERY = re.compile(r"(?i)(?:key|token|secret|passw(?:or)?d|auth|credentials?|sig|signature)$")
_SECRET_FIELD = re.compile(
    r"(?i)(?:(?:api|access|private|secret|subscription|auth|signing|encryption)[_-]?keys?"
    r"|token|secret|passw(?:or)?d|passphrase|authorization|auth|bearer|cookie|credentials?)$"
)
_SECRET_BODY = re.compile(
    rb"(?i)(?:keys?|token|secret|passw(?:or)?d|phrase|auth\w*|bearer|cookie|credentials?)\"\s*:|\\u"
)


@dataclass
class Exchange:
    """One request and its fate.

    `body` is the parsed JSON, None where there was none or it could not be read. `status` is 0 until it is sent.
    `chunks` counts the pieces of content sent in a stream, `size` the bytes of the request's body. "cancelled": the
    client went, or the server was stopped; "failed": the reply was an error, or ended in one.

    `rule` names what made the reply, `passed_over` says of what stood before it why it did not. What the scheduler
    did: `num_ctx` is the context in effect (None: no model was loaded for the request), `reload` whether the model was
    loaded anew with other settings, `truncated` whether the prompt was cut to the context, `dropped_messages` by how
    many messages, `prompt_tokens` how long it then was. `duration` is the seconds from the request to its end. `images`
    are the images it brought, in order, each by the SHA-256 of its bytes in hex.
    """

    method: str
    path: str
    body: Any = None
    status: int = 0
    outcome: Outcome = "running"
    chunks: int = 0
    size: int = 0
    model: str = ""
    rule: str = ""
    passed_over: tuple[str, ...] = ()
    num_ctx: int | None = None
    reload: bool = False
    truncated: bool = False
    dropped_messages: int = 0
    prompt_tokens: int | None = None
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    duration: float = field(default=0.0, compare=False)
    images: tuple[str, ...] = ()


class Record:
    """An exchange as it is kept: what came in is read only when somebody looks at it."""

    def __init__(self, method: str, path: str, data: bytes, query: bytes, headers: Sequence[tuple[bytes, bytes]]):
        self.method, self.path, self.data, self.query, self.headers = method, path, data, query, headers
        self.status = 0
        self.outcome: Outcome = "running"
        self.chunks = 0
        self.noted: Mapping[str, Any] = {}
        self.begun = time.monotonic()
        self.duration: float | None = None

    def exchange(self) -> Exchange:
        """How it stands; what is returned does not change any more."""
        body = self._body
        model = body.get("model") if isinstance(body, dict) else None
        return Exchange(
            self.method,
            self.path,
            body,
            self.status,
            self.outcome,
            self.chunks,
            len(self.data),
            query=masked_query(self.query),
            headers=masked_headers(self.headers),
            duration=time.monotonic() - self.begun if self.duration is None else self.duration,
            images=self._images,
            **{"model": model if isinstance(model, str) else "", **self.noted},
        )

    @cached_property
    def _body(self) -> Any:
        return parsed_body(self.data)

    @cached_property
    def _images(self) -> tuple[str, ...]:
        return image_digests(self._body)


class Journal:
    """The latest exchanges, oldest first: no more than 1000, and bodies of no more than 64 MiB in all."""

    def __init__(self) -> None:
        self._records: deque[Record] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self.running = 0

    def open(
        self,
        method: str,
        path: str,
        data: bytes = b"",
        query: bytes = b"",
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> Record:
        """A new exchange."""
        record = Record(method, path, data, query, headers)
        if path.startswith(UNSEEN):
            return record
        with self._changed:
            self.running += 1
            self._records.append(record)
            self._bytes += len(data)
            while len(self._records) > MAX_EXCHANGES or (self._bytes > MAX_BYTES and len(self._records) > 1):
                self._bytes -= len(self._records.popleft().data)
            self._changed.notify_all()
        return record

    def note(self, record: Record, facts: Mapping[str, Any]) -> None:
        """Fields of the exchange that have become known. They are seen with what is sent next."""
        record.noted = {**record.noted, **facts}

    def sent(self, record: Record, *, status: int | None = None, chunks: int = 0) -> None:
        with self._changed:
            record.status = record.status if status is None else status
            record.chunks += chunks
            self._changed.notify_all()

    def close(self, record: Record, outcome: Outcome) -> None:
        with self._changed:
            record.outcome = outcome
            record.duration = time.monotonic() - record.begun
            self.running -= not record.path.startswith(UNSEEN)
            self._changed.notify_all()

    def clear(self) -> None:
        """Forget every exchange; those that still run end unseen."""
        with self._changed:
            self._records.clear()
            self._bytes = 0
            self._changed.notify_all()

    def exchanges(self) -> list[Exchange]:
        """A copy that does not change any more."""
        with self._changed:
            return [record.exchange() for record in self._records]

    def wait_for(self, condition: Callable[[list[Exchange]], bool], timeout: float) -> list[Exchange]:
        """Block until `condition` holds of the exchanges. Raises TimeoutError, which tells what there was."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while not condition(found := [record.exchange() for record in self._records]):
                if not self._changed.wait(deadline - time.monotonic()):
                    raise TimeoutError(f"not within {timeout} s; the last exchanges: {found[-5:]}")
            return found


def masked_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Names in lower case; what may be a key or a password is replaced."""
    return {
        name.decode("latin-1"): MASK if _SECRET_HEADER.search(name) else value.decode("latin-1")
        for name, value in headers
    }


def masked_query(query: bytes) -> str:
    """The query string without the keys in it."""
    pairs = [pair.partition("=") for pair in query.decode("latin-1").split("&")]
    return "&".join(
        f"{name}={MASK}" if value and _SECRET_QUERY.search(unquote_plus(name)) else name + equals + value
        for name, equals, value in pairs
    )


def parsed_body(data: bytes) -> Any:
    """The body as JSON, None where there is none; in fields that are named like a secret texts are replaced."""
    try:
        parsed = orjson.loads(data) if data else None
        return _masked(parsed) if _SECRET_BODY.search(data) else parsed
    except (orjson.JSONDecodeError, RecursionError):
        return None


def _masked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _hidden(item) if _SECRET_FIELD.search(key) else _masked(item) for key, item in value.items()}
    return [_masked(item) for item in value] if isinstance(value, list) else value


def _hidden(value: Any) -> Any:
    if isinstance(value, list):
        return [_hidden(item) for item in value]
    return MASK if isinstance(value, str) else _masked(value)
