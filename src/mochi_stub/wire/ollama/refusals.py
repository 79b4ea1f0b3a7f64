"""How Ollama says no, and how it finds the model that a request names."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from mochi_stub.answer import Answer, BodyHandler, Generation, Handler, Request, Result, Scheduled, Stub, on_body
from mochi_stub.catalogue import Model
from mochi_stub.fitting import TooLong
from mochi_stub.scheduler import Lease, Need, NotLoaded
from mochi_stub.wire.ollama.gojson import dumps, quoted
from mochi_stub.wire.ollama.gotypes import BadBody
from mochi_stub.wire.ollama.names import BadName, find, parse_name, routed
from mochi_stub.wire.ollama.requests import BadOptions

_T = TypeVar("_T")

JSON = b"application/json; charset=utf-8"
NO_REMOTE = "ollama cloud is disabled: remote model is unavailable"
NO_REMOTE_DETAILS = "ollama cloud is disabled: remote model details are unavailable"


class Refused(Exception):
    """The request ends with this status and message."""

    def __init__(self, status: int, message: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        super().__init__(status, message)
        self.status, self.message, self.headers = status, message, headers


def json_answer(value: object, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Answer:
    return Answer(status, dumps(value).encode(), JSON, headers)


def refusing(handler: BodyHandler) -> Handler:
    """The handler of a body, its refusals made into answers."""
    return refusing_all(on_body(handler))


def refusing_all(handler: Handler) -> Handler:
    """The handler, its refusals made into answers."""

    @wraps(handler)
    def answering(stub: Stub, request: Request) -> Result:
        return _told(lambda: handler(stub, request))

    return answering


def _told(attempt: Callable[[], _T]) -> _T | Answer:
    try:
        return attempt()
    except Refused as refusal:
        return json_answer({"error": refusal.message}, refusal.status, refusal.headers)
    except (BadBody, BadName, TooLong) as error:
        return json_answer({"error": str(error)}, 400)
    except BadOptions as error:
        return json_answer({"error": str(error)}, 500)


def scheduled(stub: Stub, need: Need, then: Callable[[Lease], Answer | Generation]) -> Scheduled:
    """What is made when the model has been loaded; refusals that come only then are told like all others."""
    return Scheduled(stub.scheduler, need, lambda lease: _told(lambda: then(lease)), _not_loaded)


def _not_loaded(error: NotLoaded) -> Answer:
    return json_answer({"error": error.message}, error.status)


def local_model(stub: Stub, name: str, *, malformed: Refused, missing: Refused) -> Model:
    """The model of that name, which may be one that stands for a remote one. Raises Refused and BadName."""
    bare, place = routed(name)
    if place == "cloud":
        raise Refused(403, NO_REMOTE)
    parsed = parse_name(bare)
    if parsed is None:
        raise malformed
    model = find(stub.models, parsed)
    if model is None:
        raise missing
    return model


def not_found(name: str) -> Refused:
    return Refused(404, f"model '{name}' not found")


def not_pulled(name: str) -> Refused:
    return Refused(404, f"model {quoted(name)} not found, try pulling it first")


INVALID_NAME = Refused(400, "invalid model name")
MODEL_REQUIRED = Refused(400, "model is required")
