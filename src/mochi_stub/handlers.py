"""Request handlers: the state that they share, and the results that they return.

`app.py` sends these results.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from mochi_stub.http import HttpResponse, Request
from mochi_stub.journal import Journal
from mochi_stub.models import Model
from mochi_stub.models.scheduler import Lease, LoadRequest, Scheduler
from mochi_stub.prompt import Prompt
from mochi_stub.replies import SeededIds
from mochi_stub.replies.chunks import Piece
from mochi_stub.reply import Failure, Reply


class Encoder(Protocol):
    """Encoder of one reply in the format of one provider's API.

    A stream consists of the results of `chunk`, followed by the result of `end` or `error`.
    `complete_response` returns the response to a request without streaming.
    """

    content_type: bytes

    def chunk(self, pieces: list[Piece]) -> bytes: ...
    def end(self) -> bytes: ...
    def error(self, failure: Failure) -> bytes: ...
    def complete_response(self) -> HttpResponse: ...


class Generation(NamedTuple):
    """A reply that is sent over time.

    `journal_fields` holds additional fields for the journal entry of the request.

    `prompt_seconds` is the delay before the first piece, which simulates the evaluation of the
    prompt. `error_content_type` is the content type of an error before the first piece, if it
    differs from that of the API's other errors.
    """

    reply: Reply
    encoder: Encoder
    stream: bool
    journal_fields: Mapping[str, Any] = {}
    prompt_seconds: float = 0.0
    error_content_type: bytes = b""


Result: TypeAlias = "HttpResponse | Generation | Awaitable[HttpResponse | Generation]"


class ModelRegistry:
    """Registry of models. It is not thread-safe: use it from the event loop only.

    `read_declared` returns the declared models, which a configuration can change. After a client
    deletes a declared model, clients can pull this model again.
    """

    def __init__(self, read_declared: Callable[[], Sequence[Model]]) -> None:
        self._read_declared = read_declared
        self._models: dict[str, Model] = {}
        self.declared: tuple[Model, ...] = ()
        self.refresh()

    @property
    def models(self) -> tuple[Model, ...]:
        return tuple(self._models.values())

    def refresh(self) -> None:
        """Replace the declared models if they have changed.

        Models that client requests added remain. Declared models that they deleted return.
        """
        declared = tuple(self._read_declared())
        if declared == self.declared:
            return
        models = {model.name: model for model in declared}
        for name, model in self._models.items():
            if model not in self.declared:
                models[name] = model
        self.declared = declared
        self._models = models

    def add(self, model: Model) -> None:
        """Add a model, or replace the model of that name."""
        self._models[model.name] = model

    def remove(self, model: Model) -> None:
        self._models.pop(model.name, None)


@dataclass(frozen=True)
class Stub:
    """State of the stub for a request handler.

    `resolve` returns the reply of a model to a prompt. `load` waits for a model and a free slot,
    which are released after the response to the request.
    """

    registry: ModelRegistry
    resolve: Callable[[Prompt, Model], Reply]
    scheduler: Scheduler
    load: Callable[[LoadRequest], Awaitable[Lease]]
    journal: Journal
    seed: int

    @property
    def models(self) -> tuple[Model, ...]:
        return self.registry.models

    def seeded_ids(self, request: bytes) -> SeededIds:
        """Return generated IDs and times, which depend on the seed and the body of a request."""
        key = str(self.seed).encode()[:64]
        digest = hashlib.blake2b(request, digest_size=8, key=key).digest()
        fingerprint = int.from_bytes(digest, "big")
        return SeededIds(fingerprint)


Handler = Callable[[Stub, Request], Result]
ANY = "*"
Routes = Mapping[str, Mapping[str, Handler]]
"""Handlers by path and method. The `Allow` header lists the methods in the order of the mapping.

A path that ends in `/*` matches all paths below it that have no entry of their own. `ANY` matches
all methods that have no entry.
"""
