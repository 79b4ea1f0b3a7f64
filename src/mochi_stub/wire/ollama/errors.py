"""Error responses of Ollama's API, and the lookup of the requested model."""

from __future__ import annotations

from functools import partial

from mochi_stub.http.http_result import Headers, HttpResponse, Stub
from mochi_stub.models.catalogue import Model
from mochi_stub.reply import Failure
from mochi_stub.wire.ollama.go_json import dumps
from mochi_stub.wire.ollama.model_names import find, parse_name, routed
from mochi_stub.wire.provider_pipeline import HttpError, headers_of

JSON = b"application/json; charset=utf-8"
no_remote = partial(HttpError, 403, "ollama cloud is disabled: remote model is unavailable")
no_remote_details = partial(HttpError, 403, "ollama cloud is disabled: remote model details are unavailable")
invalid_name = partial(HttpError, 400, "invalid model name")
model_required = partial(HttpError, 400, "model is required")


def json_answer(value: object, status: int = 200, headers: Headers = ()) -> HttpResponse:
    return HttpResponse(status, dumps(value).encode(), JSON, headers)


def failure_answer(failure: Failure, *_: object) -> HttpResponse:
    return json_answer({"error": failure.message}, failure.status, headers_of(failure))


def local_model(stub: Stub, name: str, *, malformed: HttpError, missing: HttpError) -> Model:
    """Return the model with this name.

    Raises `malformed` for an invalid name, `missing` for an unknown name, and HttpError (403) for a cloud model.
    """
    base_name, location = routed(name)
    if location == "cloud":
        raise no_remote()
    parsed = parse_name(base_name)
    if parsed is None:
        raise malformed
    model = find(stub.models, parsed)
    if model is None:
        raise missing
    return model


def not_found(name: str) -> HttpError:
    return HttpError(404, f"model '{name}' not found")
