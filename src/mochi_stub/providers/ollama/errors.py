"""Responses of Ollama's API in JSON, and the lookup of the requested model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from mochi_stub.http.http_result import Headers, HttpResponse, Stub
from mochi_stub.models.catalogue import Model
from mochi_stub.providers.ollama.go_json import dumps, quoted
from mochi_stub.providers.ollama.model_names import Name, find, parse_name, routed
from mochi_stub.providers.provider_pipeline import headers_of
from mochi_stub.reply import Failure, HttpError

JSON = b"application/json; charset=utf-8"
no_remote = partial(HttpError, 403, "ollama cloud is disabled: remote model is unavailable")
no_remote_details = partial(HttpError, 403, "ollama cloud is disabled: remote model details are unavailable")
invalid_name = partial(HttpError, 400, "invalid model name")
model_required = partial(HttpError, 400, "model is required")


def json_response(value: object, status: int = 200, headers: Headers = ()) -> HttpResponse:
    return HttpResponse(status, dumps(value).encode(), JSON, headers)


def error_response(failure: Failure, *_: object) -> HttpResponse:
    return json_response({"error": failure.message}, failure.status, headers_of(failure))


def local_model(
    stub: Stub, name: str, *, error_if_empty: HttpError | None = None, error_if_missing: HttpError | None = None
) -> Model:
    """Return the model with this name.

    Raises `error_if_empty` (default: 400) for an empty name, `error_if_missing` (default: 404) for an unknown name, and
    other HttpErrors for an invalid name (400) and a cloud model (403).
    """
    if not name:
        raise error_if_empty or model_required()
    base_name, location = routed(name)
    if location == "cloud":
        raise no_remote()
    model = find(stub.models, valid_name(base_name))
    if model is None:
        raise error_if_missing or not_found(name)
    return model


def requested_name(body: Mapping[str, Any]) -> str:
    """Return the model name from the field `model` or the deprecated field `name`, or "" if both are missing."""
    return body.get("model") or body.get("name") or ""


def valid_name(text: str, field: str = "") -> Name:
    """Parse a model name. Raises HttpError for an invalid name. The error message begins with `field`, if set."""
    name = parse_name(text)
    if name is None:
        raise HttpError(400, f"{field} {quoted(text)} is invalid") if field else invalid_name()
    return name


def not_found(name: str) -> HttpError:
    return HttpError(404, f"model '{name}' not found")
