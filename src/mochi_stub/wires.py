"""Which wire answers where: all of them as one table, and whose client it is where they share a path.

Below `/v1` OpenAI, Anthropic and Gemini meet. A client of Gemini's or Anthropic's gives itself away by a header (or, of
Gemini's, a key in the query); everybody else is OpenAI's.
"""

from __future__ import annotations

from mochi_stub.answer import ANY, Answer, Handler, Request, Result, Routes, Stub
from mochi_stub.plan import Plan
from mochi_stub.reply import Failure
from mochi_stub.routing import mounted
from mochi_stub.wire.anthropic import errors as anthropic_errors
from mochi_stub.wire.anthropic import routes as anthropic
from mochi_stub.wire.gemini import errors as gemini_errors
from mochi_stub.wire.gemini import routes as gemini
from mochi_stub.wire.observation import OBSERVATION
from mochi_stub.wire.ollama.refusals import json_answer
from mochi_stub.wire.ollama.routes import ROUTES as OLLAMA
from mochi_stub.wire.openai import errors as openai_errors
from mochi_stub.wire.openai.routes import ROUTES as OPENAI


def health(_stub: Stub, _request: Request) -> Result:
    """GET /health"""
    return Answer(200, b'{"status":"ok"}', b"application/json")


def by_client(path: str, method: str) -> Handler:
    """The handler of the wire whose client asks."""
    by_provider = {"gemini": gemini.ROUTES, "anthropic": anthropic.SHARED, "openai": OPENAI}
    handlers = {name: _handler(routes, path, method) for name, routes in by_provider.items()}
    return lambda stub, request: handlers[provider(request)](stub, request)


def provider(request: Request) -> str:
    headers = request.headers
    if "x-goog-api-key" in headers or "x-goog-api-client" in headers or "key" in request.query:
        return "gemini"
    return "anthropic" if "anthropic-version" in headers else "openai"


def failure_answer(request: Request, failure: Failure) -> Answer:
    """A failure that no wire has made, in the words of the one that was asked."""
    path = request.path
    if path.startswith("/v1/messages"):
        return anthropic_errors.failure_answer(failure, Plan.of(0, request.body))
    if path.startswith(("/v1beta/", "/v1alpha/")) or (request.method == "POST" and path.startswith("/v1/models/")):
        listed = path.endswith(":streamGenerateContent") and request.query.get("alt") != "sse"
        return gemini_errors.failure_answer(failure, listed=listed)
    if path.startswith("/v1/"):
        return openai_errors.failure_answer(failure)
    return json_answer({"error": failure.message}, failure.status)


def _handler(routes: Routes, path: str, method: str) -> Handler:
    return routes[path].get(method) or routes[path][ANY]


HEALTH: Routes = {"/health": {"HEAD": health, "GET": health}}
SHARED: Routes = {
    "/models": {"GET": by_client("/models", "GET"), ANY: by_client("/models", ANY)},
    "/models/*": {
        "GET": by_client("/models/*", "GET"),
        "POST": gemini.verb,
        ANY: by_client("/models/*", ANY),
    },
    "/*": {ANY: by_client("/*", ANY)},
}

ROUTES = mounted(
    ("", HEALTH),
    ("", OBSERVATION),
    ("", OLLAMA),
    ("/ollama", OLLAMA),
    ("/v1", OPENAI),
    ("/v1", anthropic.ROUTES),
    ("/v1", SHARED),
    ("/v1beta", gemini.ROUTES),
    ("/v1alpha", gemini.ROUTES),
)
