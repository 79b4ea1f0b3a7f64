"""Thread-safe journal of the latest requests and their outcomes. `***` replaces secrets."""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Literal
from urllib.parse import unquote_plus

import orjson

from mochi_stub.http import Request

Outcome = Literal["running", "finished", "cancelled", "failed"]

MAX_EXCHANGES = 1000
STUB_ROUTES = "/stub/"  # requests to these routes are not recorded
MASK = "***"
_SECRET_HEADER = re.compile(  # the stub converts header names to lower case
    rb"auth|cookie|credential|api-?key|token|secret|passw|(?<!idempotency)-key$"
)
_SECRET_QUERY = re.compile(
    r"(?i)(?:key|token|secret|passw(?:or)?d|auth|credentials?|sig|signature)$"
)
_SECRET_FIELD = re.compile(
    r"(?i)(?:(?:api|access|private|secret|subscription|auth|signing|encryption)[_-]?keys?"
    r"|token|secret|passw(?:or)?d|passphrase|authorization|auth|bearer|cookie|credentials?)$"
)


@dataclass
class Exchange:
    """One request and its outcome.

    Attributes:
        body: Parsed JSON body. None if there is no body or it is not JSON.
        status: HTTP status, 0 until the response starts.
        outcome: "running", "finished", "cancelled" (by the client or the server's end), or "failed"
            (with an error).
        chunks: Number of content chunks in the streamed reply.
        size: Size of the request body in bytes.
        rule: Name of the rule that selected the reply, for example a trigger of the configuration.
        mode: Kinds of content in the reply, for example `reasoning+text`, `tool_calls`, `embedding`
            or `error`.
        passed_over: Rules that were tried before `rule`, each with the reason why it did not apply.
        num_ctx: Context length of the model in tokens. None if the request used no model.
        reload: Whether the request reloaded the model with other settings.
        truncated: Whether the prompt was shortened to fit the context.
        prompt_tokens: Number of prompt tokens after truncation. None for embeddings.
        evaluated_tokens: Number of prompt tokens that were not in the prompt cache. None if the API
            reports none.
        duration: Seconds from the start of the request to the end of the response.
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
    mode: str = ""
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


@dataclass
class JournalEntry:
    """Entry that grows while its request is processed. `exchange` returns its current state.

    The request is parsed only when the journal is read.
    """

    journal: Journal
    request: Request
    status: int = 0
    outcome: Outcome = "running"
    chunks: int = 0
    fields: dict[str, Any] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)
    duration: float | None = None

    def update(self, *, status: int = 0, chunks: int = 0, **fields: Any) -> None:
        """Set `status` unless it is 0, set `fields`, and add `chunks` to the chunk count."""
        with self.journal.changed:
            self.status = status or self.status
            self.chunks += chunks
            self.fields |= fields
            self.journal.changed.notify_all()

    def close(self, outcome: Outcome) -> None:
        """End the entry. Call this once."""
        with self.journal.changed:
            self.outcome = outcome
            self.duration = time.monotonic() - self.started
            if not self.request.path.startswith(STUB_ROUTES):
                self.journal.running -= 1
            self.journal.changed.notify_all()

    def exchange(self) -> Exchange:
        """Return what the journal shows of the request and its outcome."""
        duration = self.duration
        if duration is None:
            duration = time.monotonic() - self.started
        fields = {
            "status": self.status,
            "outcome": self.outcome,
            "chunks": self.chunks,
            "duration": duration,
            **self._request_fields,
            **self.fields,
        }
        return Exchange(self.request.method, self.request.path, **fields)

    @cached_property
    def _request_fields(self) -> dict[str, Any]:
        request = self.request
        body = parsed_body(request.body)
        model = ""
        if isinstance(body, dict) and isinstance(body.get("model"), str):
            model = body["model"]
        return {
            "body": body,
            "size": len(request.body),
            "model": model,
            "query": masked_query(request.query_string),
            "headers": masked_headers(request.raw_headers),
        }


class Journal:
    """Journal with an entry for each of the latest 1000 exchanges, oldest first."""

    def __init__(self) -> None:
        self._entries: deque[JournalEntry] = deque(maxlen=MAX_EXCHANGES)
        self.changed = threading.Condition()
        self.running = 0

    def open(self, request: Request) -> JournalEntry:
        """Return the entry of a new request. Record it, except for requests to `STUB_ROUTES`."""
        entry = JournalEntry(self, request)
        if request.path.startswith(STUB_ROUTES):
            return entry
        with self.changed:
            self.running += 1
            self._entries.append(entry)
            self.changed.notify_all()
        return entry

    def clear(self) -> None:
        with self.changed:
            self._entries.clear()
            self.changed.notify_all()

    def exchanges(self) -> list[Exchange]:
        with self.changed:
            return [entry.exchange() for entry in self._entries]

    def wait_for(
        self, condition: Callable[[list[Exchange]], bool], timeout: float
    ) -> list[Exchange]:
        """Wait until `condition` accepts the exchanges, and return them.

        Raises TimeoutError after `timeout` seconds.
        """
        with self.changed:
            is_met = self.changed.wait_for(lambda: condition(self.exchanges()), timeout)
            exchanges = self.exchanges()
        if is_met:
            return exchanges
        last = exchanges[-5:]
        raise TimeoutError(f"the condition was not met within {timeout} s; last exchanges: {last}")


def masked_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers as a dictionary of strings, without secrets."""
    masked = {}
    for encoded_name, value in headers:
        name = encoded_name.decode("latin-1")
        if _is_secret_header(encoded_name):
            masked[name] = MASK
        else:
            masked[name] = value.decode("latin-1")
    return masked


def masked_query(query: bytes) -> str:
    """Return the query string as text, without secrets."""
    pairs = query.decode("latin-1").split("&")
    masked = []
    for pair in pairs:
        name, _, value = pair.partition("=")
        is_secret = _SECRET_QUERY.search(unquote_plus(name))
        if value and is_secret:
            masked.append(f"{name}={MASK}")
        else:
            masked.append(pair)
    return "&".join(masked)


def parsed_body(data: bytes) -> Any:
    """Return the parsed JSON body with masked secrets, or None for an empty body or invalid
    JSON.
    """
    try:
        body = orjson.loads(data)
        return _masked(body)
    except (orjson.JSONDecodeError, RecursionError):
        return None


def _masked(value: Any, secret: bool = False) -> Any:
    """Return a JSON value without the texts of secret fields.

    If `secret` is true, mask also a text itself, or the texts of a list. Objects are masked by the
    names of their own fields, so that the schema of an argument `password` stays readable.
    """
    if isinstance(value, dict):
        masked = {}
        for key, item in value.items():
            masked[key] = _masked(item, _is_secret_field(key))
        return masked
    if isinstance(value, list):
        return [_masked(item, secret) for item in value]
    if secret and isinstance(value, str):
        return MASK
    return value


@lru_cache  # names repeat, and a search takes microseconds
def _is_secret_header(name: bytes) -> bool:
    return bool(_SECRET_HEADER.search(name))


@lru_cache
def _is_secret_field(name: str) -> bool:
    return bool(_SECRET_FIELD.search(name))
