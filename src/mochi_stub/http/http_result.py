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

from mochi_stub.config.model_registry import ModelRegistry
from mochi_stub.journal import Journal
from mochi_stub.models.catalogue import Model
from mochi_stub.models.prompt_slots import Evaluation
from mochi_stub.models.scheduler import Lease, LoadRequest, NotLoaded, Scheduler
from mochi_stub.prompt import Prompt
from mochi_stub.replies.chunks import Piece
from mochi_stub.replies.seeded_ids import SeededIds
from mochi_stub.reply import Failure, Reply


@dataclass(frozen=True)
class Request:
    """A complete request. `path` is decoded; `query_string`, `raw_headers` and `raw_path` are as they were sent."""

    method: str
    path: str
    body: bytes = b""
    query_string: bytes = b""
    raw_headers: tuple[tuple[bytes, bytes], ...] = ()
    raw_path: bytes = b""

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """By name in lower case; of a name that came twice, the last."""
        return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.raw_headers}

    @cached_property
    def query(self) -> Mapping[str, str]:
        return dict(parse_qsl(self.query_string.decode("latin-1"), keep_blank_values=True))


@dataclass(frozen=True)
class HttpResponse:
    """A whole response. `declared` says whether its length is (Content-Length) or whether it goes out in chunks."""

    status: int
    body: bytes = b""
    content_type: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    declared: bool = True


class Encoder(Protocol):
    """One reply in the format of one wire.

    A stream has the `chunk`s of the content and, last, `end` or `error`. `refusal` is a failure before anything was
    sent, and `whole` is the reply in one piece.
    """

    content_type: bytes

    def chunk(self, pieces: list[Piece]) -> bytes: ...
    def end(self) -> bytes: ...
    def error(self, failure: Failure) -> bytes: ...
    def refusal(self, failure: Failure, *, stream: bool) -> HttpResponse: ...
    def whole(self) -> HttpResponse: ...


@dataclass(frozen=True)
class Generation:
    """A reply to be played over time. `noted` are fields of its `Exchange` that the journal shall have.

    `prompt_seconds` is the time before the first piece, in which the model evaluates the prompt.
    """

    reply: Reply
    encoder: Encoder
    stream: bool
    noted: Mapping[str, Any] = field(default_factory=dict)
    evaluation: Evaluation | None = None
    prompt_seconds: float = 0.0


@dataclass(frozen=True)
class ScheduledResult:
    """A result that is made when its model is loaded, and may have to wait for that.

    The place on the model is held until what `then` makes has been sent; `failed` tells that there was none to be had.
    """

    scheduler: Scheduler
    load_request: LoadRequest
    then: Callable[[Lease], HttpResponse | Generation]
    failed: Callable[[NotLoaded], HttpResponse]


Result: TypeAlias = "HttpResponse | Generation | ScheduledResult"


@dataclass(frozen=True)
class Stub:
    """What every handler may use. `resolve` makes the reply to a prompt."""

    registry: ModelRegistry
    resolve: Callable[[Prompt], Reply]
    scheduler: Scheduler
    journal: Journal
    seed: int

    @property
    def models(self) -> tuple[Model, ...]:
        return self.registry.models

    def seeded_ids(self, request: bytes) -> SeededIds:
        return SeededIds.of(self.seed, request)


Handler = Callable[[Stub, Request], Result]
ANY = "*"
Routes = Mapping[str, Mapping[str, Handler]]
"""Path, then method, to handler. Methods in the order in which `Allow` names them.

A path that ends in `/*` stands for all that lie below it and have no entry of their own; the method `ANY` for all that
have none.
"""
