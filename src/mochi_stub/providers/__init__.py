"""APIs of the providers: the route table of all APIs and of the stub.

To add a provider, write a module that defines its `API`, and add this API to `APIS`. The module
converts requests to a `Prompt`, and has an encoder of replies and a reader of recordings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from typing import TypeAlias

from mochi_stub.handlers import ANY, Handler, Result, Routes, Stub
from mochi_stub.http import Headers, HttpResponse, Request
from mochi_stub.providers.anthropic import API as ANTHROPIC
from mochi_stub.providers.gemini import API as GEMINI
from mochi_stub.providers.ollama import API as OLLAMA
from mochi_stub.providers.ollama.models import error_response
from mochi_stub.providers.openai import API as OPENAI
from mochi_stub.providers.provider_pipeline import JSON, Api, always, json_response
from mochi_stub.reply import HttpError

PathHandlers: TypeAlias = "tuple[Api, Mapping[str, Handler]]"


def requests(stub: Stub, _request: Request) -> Result:
    """Handle `GET /stub/requests`: return the journal, newest request last."""
    rows = []
    for exchange in stub.journal.exchanges():
        row = dict(vars(exchange))
        seconds = row.pop("duration")
        row["duration_ms"] = round(seconds * 1000, 3)
        rows.append(row)
    return json_response({"requests": rows})


def clear(stub: Stub, _request: Request) -> Result:
    """Handle `DELETE /stub/requests`: clear the journal."""
    stub.journal.clear()
    return HttpResponse(204)


def state(stub: Stub, _request: Request) -> Result:
    """Handle `GET /stub/state`: return the loaded models, latest expiry first, and counters of the
    scheduler.

    `keep_alive` is in seconds; null means forever. `in_flight` counts all unfinished requests.
    """
    scheduler = stub.scheduler
    models = []
    for loaded in scheduler.loaded_models():
        keep_alive: float | None = loaded.keep_alive
        if loaded.keep_alive == math.inf:
            keep_alive = None
        model = {
            "name": loaded.model.name,
            "context_length": loaded.settings.context,
            "keep_alive": keep_alive,
            "requests": loaded.users,
        }
        models.append(model)
    result = {
        "models": models,
        "loads": scheduler.loads,
        "reloads": scheduler.reloads,
        "truncations": scheduler.truncations,
        "queued": scheduler.queued,
        "waiting": scheduler.waiting,
        "in_flight": stub.journal.running,
    }
    return json_response(result)


def refusal(stub: Stub, request: Request, error: HttpError) -> HttpResponse:
    """Return the error response in the format of the provider to which the requested path
    belongs.
    """
    api, _ = _api_and_handlers(request)
    ids = stub.seeded_ids(request.body)
    return api.error_response(error.failure, ids, request, **error.details)


def response_headers(stub: Stub, request: Request) -> Headers:
    """Return the headers that all responses of the requested API have."""
    api, _ = _api_and_handlers(request)
    return api.headers(stub, request)


def route(stub: Stub, request: Request) -> Result:
    """Return the result of the matching handler, or else the API's response to a wrong method.

    Raises HttpError.
    """
    api, handlers = _api_and_handlers(request)
    handler = handlers.get(request.method) or handlers.get(ANY) or api.wrong_method
    if handler:
        return handler(stub, request)
    methods = ", ".join(handlers).encode()
    allow = (b"allow", methods)
    return HttpResponse(405, b"405 method not allowed", b"text/plain", headers=(allow,))


def _api_and_handlers(request: Request) -> PathHandlers:
    """Return the API of a request and its handlers for the path.

    A path without a route of its own uses the route of the nearest prefix that ends in `/*`.

    If several APIs have the path, those with the method precede the others. Then the headers and
    query parameters of the client select the API, and by default it is the first one.
    """
    path = request.path
    matches = ROUTES.get(path)
    while matches is None:
        path = path.rpartition("/")[0]
        matches = ROUTES.get(f"{path}/*")
    if len(matches) == 1:
        return matches[0]
    with_method = []
    for api, handlers in matches:
        if request.method in handlers or ANY in handlers:
            with_method.append((api, handlers))
    candidates = with_method or matches
    sent = {*request.headers, *request.query}
    for api, handlers in candidates:
        if api.client_marks & sent:
            return api, handlers
    return candidates[0]


_HEALTH = always(HttpResponse(200, b'{"status":"ok"}', JSON))
_STUB_ROUTES: Routes = {
    "/health": {"HEAD": _HEALTH, "GET": _HEALTH},
    "/stub/requests": {"GET": requests, "DELETE": clear},
    "/stub/state": {"GET": state},
    "/*": {ANY: always(HttpResponse(404, b"404 page not found", b"text/plain"))},
}
_STUB = Api(("",), _STUB_ROUTES, error_response)
APIS = (OPENAI, GEMINI, ANTHROPIC, OLLAMA, _STUB)
"""All APIs. If several have a path and no client of them is recognized, the first one responds."""
RECORDED_FORMATS = {ending: recorded for api in APIS for ending, recorded in api.recorded.items()}
"""Format of the recorded responses of each path of a model, by the ending of the path."""

ROUTES: dict[str, list[PathHandlers]] = {}
for _api in APIS:
    for _prefix, _path in product(_api.prefixes, _api.routes):
        _full_path = f"{_prefix}{_path}".rstrip("/") or "/"
        ROUTES.setdefault(_full_path, []).append((_api, _api.routes[_path]))
