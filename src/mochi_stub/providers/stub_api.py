"""Routes below `/stub/`: the request journal and the state of the scheduler."""

from __future__ import annotations

import math

import orjson

from mochi_stub.http.http_result import HttpResponse, Request, Result, Routes, Stub
from mochi_stub.journal import Exchange
from mochi_stub.providers.provider_pipeline import JSON


def requests(stub: Stub, _request: Request) -> Result:
    """Handle `GET /stub/requests`: return the journal, newest request last."""
    rows = b",".join(_row(exchange) for exchange in stub.journal.exchanges())
    return HttpResponse(200, b'{"requests":[' + rows + b"]}", JSON)


def clear(stub: Stub, _request: Request) -> Result:
    stub.journal.clear()
    return HttpResponse(204)


def state(stub: Stub, _request: Request) -> Result:
    """Handle `GET /stub/state`: return the loaded models, latest expiry first, and counters.

    `loads`, `reloads` and `truncations` count all events since the start. `in_flight` counts all unfinished
    requests. `queued` counts the requests that wait until their model is loaded, and `waiting` counts the requests that
    wait for a slot of a loaded model. `keep_alive` is in seconds; null means forever.
    """
    scheduler = stub.scheduler
    models = [
        {
            "name": loaded.model.name,
            "context_length": loaded.settings.context,
            "keep_alive": None if math.isinf(loaded.keep_alive) else loaded.keep_alive,
            "requests": loaded.users,
        }
        for loaded in scheduler.loaded()
    ]
    counters = {name: getattr(scheduler, name) for name in ("loads", "reloads", "truncations", "queued", "waiting")}
    return HttpResponse(200, orjson.dumps({"models": models, **counters, "in_flight": stub.journal.running}), JSON)


def _row(exchange: Exchange) -> bytes:
    row = {**vars(exchange), "duration_ms": round(exchange.duration * 1000, 3)}
    del row["duration"]
    try:
        return orjson.dumps(row)
    except orjson.JSONEncodeError:  # the body is nested too deeply for orjson
        return orjson.dumps({**row, "body": None})


OBSERVATION: Routes = {"/stub/requests": {"GET": requests, "DELETE": clear}, "/stub/state": {"GET": state}}
