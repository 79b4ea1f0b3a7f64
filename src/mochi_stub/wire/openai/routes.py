"""OpenAI's HTTP interface below `/v1`: which path does what."""

from __future__ import annotations

from mochi_stub.answer import ANY, Handler, Request, Result, Routes, Stub
from mochi_stub.wire.openai.chat import chat
from mochi_stub.wire.openai.completions import completions
from mochi_stub.wire.openai.embeddings import embeddings
from mochi_stub.wire.openai.errors import Refused, json_answer, refusing
from mochi_stub.wire.openai.items import RESPONSE
from mochi_stub.wire.openai.models import model, models
from mochi_stub.wire.openai.responses import responses
from mochi_stub.wire.openai.shapes import CHAT, COMPLETION, EMBEDDING


def wrong_method(_stub: Stub, request: Request) -> Result:
    """A known path, asked otherwise than it can be."""
    message = f"Not allowed to {request.method} on {request.path}."
    return json_answer({"error": Refused(405, message, code="method_not_supported").error}, 405)


def unknown_path(_stub: Stub, request: Request) -> Result:
    """Any other path."""
    error = Refused(404, f"Invalid URL ({request.method} {request.path})").error
    return json_answer({"error": error}, 404)


def _only(method: str, handler: Handler) -> dict[str, Handler]:
    return {method: handler, ANY: wrong_method}


ROUTES: Routes = {
    "/chat/completions": _only("POST", refusing(CHAT, chat)),
    "/completions": _only("POST", refusing(COMPLETION, completions)),
    "/responses": _only("POST", refusing(RESPONSE, responses)),
    "/embeddings": _only("POST", refusing(EMBEDDING, embeddings)),
    "/models": _only("GET", models),
    "/models/*": _only("GET", model),
    "/*": {ANY: unknown_path},
}
