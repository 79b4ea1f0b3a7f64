"""How Ollama says no, and how it finds the model that a request names."""

from __future__ import annotations

from functools import wraps

from mochi_stub.answer import Answer, BodyHandler, Handler, Request, Result, Stub
from mochi_stub.catalogue import Model
from mochi_stub.wire.ollama.gojson import dumps, quoted
from mochi_stub.wire.ollama.gotypes import BadBody
from mochi_stub.wire.ollama.names import BadName, find, parse_name, routed
from mochi_stub.wire.ollama.requests import BadOptions

JSON = b"application/json; charset=utf-8"
NO_REMOTE = "ollama cloud is disabled: remote model is unavailable"
NO_REMOTE_DETAILS = "ollama cloud is disabled: remote model details are unavailable"


class Refused(Exception):
    """The request ends with this status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status, self.message = status, message


def json_answer(value: object, status: int = 200) -> Answer:
    return Answer(status, dumps(value).encode(), JSON)


def refusing(handler: BodyHandler) -> Handler:
    """The handler, its refusals made into answers."""

    @wraps(handler)
    def answering(stub: Stub, request: Request) -> Result:
        try:
            return handler(stub, request.body)
        except Refused as refusal:
            return json_answer({"error": refusal.message}, refusal.status)
        except (BadBody, BadName) as error:
            return json_answer({"error": str(error)}, 400)
        except BadOptions as error:
            return json_answer({"error": str(error)}, 500)

    return answering


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
