"""The journal: requests and their outcomes. Bounded, safe to read from any thread, free of secrets."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from base64 import b64decode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote_plus

import orjson

if TYPE_CHECKING:
    from mochi_stub.http.http_result import Request

Outcome = Literal["running", "finished", "cancelled", "failed"]

MAX_EXCHANGES = 1000
MAX_BYTES = 64 * 1024 * 1024

UNSEEN = "/stub/"
"""Requests to these paths are not recorded."""

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
    """One request and its outcome.

    Attributes:
        body: The parsed JSON, None if there is none or it cannot be parsed.
        status: The HTTP status, 0 until it is sent.
        outcome: "cancelled" if the client disconnected or the server stopped, "failed" if the reply has an error.
        chunks: Number of pieces of content that were streamed.
        size: Bytes of the request's body.
        rule: What made the reply. `passed_over` says why the rules before it did not.
        num_ctx: The context in effect, None if no model was loaded for the request.
        reload: Whether the model was loaded again with other settings.
        truncated: Whether the prompt was cut to the context, by `dropped_messages`, to `prompt_tokens`.
        evaluated_tokens: Tokens of the prompt that were not in the prompt cache of the model.
        duration: Seconds from the request to its end.
        images: The SHA-256 in hex of each image in the request.
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
    evaluated_tokens: int | None = None
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    duration: float = field(default=0.0, compare=False)
    images: tuple[str, ...] = ()


@dataclass
class JournalEntry:
    """An exchange in the making. Its request is parsed only when the journal is read."""

    request: Request
    status: int = 0
    outcome: Outcome = "running"
    chunks: int = 0
    noted: dict[str, Any] = field(default_factory=dict)
    begun: float = field(default_factory=time.monotonic)
    duration: float | None = None

    def exchange(self) -> Exchange:
        """Return a snapshot."""
        return Exchange(
            status=self.status,
            outcome=self.outcome,
            chunks=self.chunks,
            duration=time.monotonic() - self.begun if self.duration is None else self.duration,
            **{**self._request_fields, **self.noted},
        )

    @cached_property
    def _request_fields(self) -> dict[str, Any]:
        request, body = self.request, parsed_body(self.request.body)
        model = body.get("model") if isinstance(body, dict) else None
        return {
            "method": request.method,
            "path": request.path,
            "body": body,
            "size": len(request.body),
            "model": model if isinstance(model, str) else "",
            "query": masked_query(request.query_string),
            "headers": masked_headers(request.raw_headers),
            "images": tuple(_digests(body)),
        }


class Journal:
    """The latest exchanges, oldest first: at most 1000, with bodies of at most 64 MiB in total."""

    def __init__(self) -> None:
        self._records: deque[JournalEntry] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self.running = 0

    def open(self, request: Request) -> JournalEntry:
        """Begin an exchange."""
        record = JournalEntry(request)
        if request.path.startswith(UNSEEN):
            return record
        with self._changed:
            self.running += 1
            self._records.append(record)
            self._bytes += len(request.body)
            while len(self._records) > MAX_EXCHANGES or (self._bytes > MAX_BYTES and len(self._records) > 1):
                self._bytes -= len(self._records.popleft().request.body)
            self._changed.notify_all()
        return record

    def update(self, record: JournalEntry, *, status: int = 0, chunks: int = 0, **noted: Any) -> None:
        """Set the status and other fields of the exchange, and count chunks."""
        with self._changed:
            record.status = status or record.status
            record.chunks += chunks
            record.noted |= noted
            self._changed.notify_all()

    def close(self, record: JournalEntry, outcome: Outcome) -> None:
        with self._changed:
            record.outcome = outcome
            record.duration = time.monotonic() - record.begun
            self.running -= not record.request.path.startswith(UNSEEN)
            self._changed.notify_all()

    def clear(self) -> None:
        """Remove every exchange, also those that still run."""
        with self._changed:
            self._records.clear()
            self._bytes = 0
            self._changed.notify_all()

    def exchanges(self) -> list[Exchange]:
        """Return a snapshot."""
        with self._changed:
            return [record.exchange() for record in self._records]

    def wait_for(self, condition: Callable[[list[Exchange]], bool], timeout: float) -> list[Exchange]:
        """Block until `condition` holds for the exchanges. Raises TimeoutError, whose text has the last exchanges."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while not condition(found := [record.exchange() for record in self._records]):
                if not self._changed.wait(deadline - time.monotonic()):
                    raise TimeoutError(f"not within {timeout} s; the last exchanges: {found[-5:]}")
            return found


def masked_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers by name in lower case, without keys and passwords."""
    return {
        name.decode("latin-1"): MASK if _SECRET_HEADER.search(name) else value.decode("latin-1")
        for name, value in headers
    }


def masked_query(query: bytes) -> str:
    """Return the query string without keys and passwords."""
    pairs = [pair.partition("=") for pair in query.decode("latin-1").split("&")]
    return "&".join(
        f"{name}={MASK}" if value and _SECRET_QUERY.search(unquote_plus(name)) else name + equals + value
        for name, equals, value in pairs
    )


def parsed_body(data: bytes) -> Any:
    """Return the body as JSON, None if there is none; texts in fields that are named like a secret are replaced."""
    try:
        parsed = orjson.loads(data) if data else None
        return _masked(parsed) if _SECRET_BODY.search(data) else parsed
    except (orjson.JSONDecodeError, RecursionError):
        return None


def _masked(value: Any, hidden: bool = False) -> Any:
    """Replace the texts of secret fields; `hidden`: the value is one of them."""
    if isinstance(value, dict):
        return {key: _masked(item, bool(_SECRET_FIELD.search(key))) for key, item in value.items()}
    if isinstance(value, list):
        return [_masked(item, hidden) for item in value]
    return MASK if hidden and isinstance(value, str) else value


def _digests(value: Any) -> Iterator[str]:
    """Yield the SHA-256 of each image in a body, on any wire, in order; invalid base64 is skipped."""
    if isinstance(value, list):
        for item in value:
            yield from _digests(item)
    for key, item in value.items() if isinstance(value, dict) else ():
        texts = [item]
        if key == "images" and isinstance(item, list):  # Ollama
            texts = item
        elif key in ("url", "image_url") and isinstance(item, str) and item.startswith("data:"):  # OpenAI
            texts = [item.partition(",")[2]]
        elif key != "data" or not value.keys() & {"media_type", "mimeType", "mime_type"}:  # Anthropic and Gemini
            yield from _digests(item)
            continue
        for text in texts:
            try:
                yield hashlib.sha256(b64decode(text, validate=True)).hexdigest()
            except (ValueError, TypeError):
                continue
