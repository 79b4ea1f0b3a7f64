"""CPU time of each middleware that a request passes.

Requests go through the middleware without a socket: first to an app that reads the request and
answers at once, then to that app with the innermost middleware around it, and so on outwards. A
figure is what the last middleware added.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mochi_server import create_app
from mochi_server.web.request_log import RequestLogMiddleware
from tests.benchmarks.measures import Aim, Findings, Row, Setting
from tests.benchmarks.workload import adjustable

TITLE = "Middleware"
SHOWS_ROWS = True
_BODY = b'{"message": "' + b"word " * 20 + b'"}'
_HEADERS = {
    "host": "127.0.0.1:8000",
    "content-type": "application/json",
    "content-length": str(len(_BODY)),
    "origin": "http://localhost:5173",
    "authorization": "Bearer benchmark-key",
    "user-agent": "benchmark",
    "accept": "text/event-stream",
}
_KEY = "benchmark-key"


@dataclass(frozen=True)
class Workload:
    requests: int = adjustable(20_000, "requests for each figure")


def measure(work: Workload, setting: Setting) -> Findings:
    """Return one row with the microseconds of each middleware, outermost first."""
    app = create_app(api_keys=[_KEY], log_level="ERROR")
    request_log = Middleware(RequestLogMiddleware, on_ended=lambda *_: None)
    layers = [request_log, *app.user_middleware]
    rounds = [_round(layers, app, work.requests) for _ in range(setting.rounds)]
    row: Row = {"": "mochi-server"}
    total = 0.0
    for name in rounds[0]:
        microseconds = median(each[name] for each in rounds)
        row[name] = microseconds
        total += microseconds
    row["all, µs"] = total
    return Findings([row], [Aim("all middleware, CPU of a request", total, 200, "µs")])


def _round(layers: Sequence[Middleware], app: Any, requests: int) -> dict[str, float]:
    """Return the microseconds that each middleware adds, outermost first."""
    added: dict[str, float] = {}
    layered: ASGIApp = _answer
    before = _microseconds(layered, app, requests)
    for number, layer in reversed([*enumerate(layers, 1)]):
        layered = layer.cls(layered, *layer.args, **layer.kwargs)
        now = _microseconds(layered, app, requests)
        added[f"layer {number}, {_name(layer)}, µs"] = now - before
        before = now
    return dict(reversed(added.items()))


def _name(layer: Middleware) -> str:
    return getattr(layer.cls, "__name__", str(layer.cls))


def _microseconds(app: ASGIApp, state_of: Any, requests: int) -> float:
    """Return the CPU time of a request to ``app``, in microseconds."""

    async def run() -> float:
        headers = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
        began = time.process_time()
        for _ in range(requests):
            await app(_scope(headers, state_of), _receive, _send)
        return time.process_time() - began

    return asyncio.run(run()) / requests * 1e6


def _scope(headers: list[tuple[bytes, bytes]], app: Any) -> Scope:
    path = "/api/v1/chat/0123456789/stream"
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
        "state": {},
        "app": app,
    }


async def _receive() -> Message:
    return {"type": "http.request", "body": _BODY, "more_body": False}


async def _send(message: Message) -> None:
    assert message.get("status", 200) == 200, message


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"{}"})
