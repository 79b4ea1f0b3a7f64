"""What a wire hands to the application: bytes that are ready, or a generation to be played.

A wire reads a request and says what to answer; it never sees the socket. `app.py` sends, paces, watches the client and
keeps the journal, for every wire alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeAlias
from urllib.parse import parse_qsl

from mochi_stub.catalogue import Model
from mochi_stub.chunks import Piece
from mochi_stub.journal import Journal
from mochi_stub.library import Library
from mochi_stub.plan import Plan
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Failure, Reply
from mochi_stub.scheduler import Lease, Need, NotLoaded, Scheduler


@dataclass(frozen=True)
class Request:
    """What was asked, read to its end. `path` is decoded, `query_string` and `raw_headers` are as they came."""

    method: str
    path: str
    body: bytes = b""
    query_string: bytes = b""
    raw_headers: tuple[tuple[bytes, bytes], ...] = ()

    @classmethod
    def of(cls, scope: Mapping[str, Any], body: bytes) -> Request:
        """Return the request of an ASGI scope."""
        return cls(scope["method"], scope["path"], body, scope["query_string"], tuple(scope["headers"]))

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """By name in lower case; of a name that came twice, the last."""
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.raw_headers}

    @cached_property
    def query(self) -> Mapping[str, str]:
        return dict(parse_qsl(self.query_string.decode("latin-1"), keep_blank_values=True))


@dataclass(frozen=True)
class Answer:
    """A whole response. `declared` says whether its length is (Content-Length) or whether it goes out in chunks."""

    status: int
    body: bytes = b""
    content_type: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    declared: bool = True


class Encoder(Protocol):
    """One reply in the words of one wire."""

    content_type: bytes

    def chunk(self, pieces: list[Piece]) -> bytes:
        """Pieces of content inside a stream."""

    def end(self) -> bytes:
        """What closes a stream."""

    def error(self, failure: Failure) -> bytes:
        """A failure inside a stream."""

    def refusal(self, failure: Failure, *, stream: bool) -> Answer:
        """A failure before anything was sent."""

    def whole(self) -> Answer:
        """The reply in one piece."""


@dataclass(frozen=True)
class Generation:
    """A reply to be played over time. `noted` are fields of its `Exchange` that the journal shall have."""

    reply: Reply
    encoder: Encoder
    stream: bool
    noted: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Scheduled:
    """A result that is made when its model is loaded, and may have to wait for that.

    The place on the model is held until what `then` makes has been sent; `failed` tells that there was none to be had.
    """

    scheduler: Scheduler
    need: Need
    then: Callable[[Lease], Answer | Generation]
    failed: Callable[[NotLoaded], Answer]


Result: TypeAlias = "Answer | Generation | Scheduled"


def crashed(error: Exception) -> Answer:
    """What is said where the stub itself is at fault."""
    return Answer(500, f"the stub failed: {error!r}".encode(errors="replace"), b"text/plain; charset=utf-8")


@dataclass(frozen=True)
class Stub:
    """What every handler may use. `resolve` makes the reply to a prompt."""

    library: Library
    resolve: Callable[[Prompt], Reply]
    scheduler: Scheduler
    journal: Journal
    seed: int

    @property
    def models(self) -> tuple[Model, ...]:
        """Those there are at the moment."""
        return self.library.models

    def plan(self, request: bytes) -> Plan:
        return Plan.of(self.seed, request)


Handler = Callable[[Stub, Request], Result]
BodyHandler = Callable[[Stub, bytes], Result]
"""A handler to which only the body matters."""

ANY = "*"
Routes = Mapping[str, Mapping[str, Handler]]
"""Path, then method, to handler. Methods in the order in which `Allow` names them.

A path that ends in `/*` stands for all that lie below it and have no entry of their own; the method `ANY` for all that
have none.
"""


def on_body(handler: BodyHandler) -> Handler:
    """The handler, given the body only."""
    return lambda stub, request: handler(stub, request.body)
