"""Route table of Ollama's API."""

from __future__ import annotations

from mochi_stub.http.http_result import ANY, Handler, HttpResponse, Routes
from mochi_stub.providers.ollama import errors
from mochi_stub.providers.ollama import model_admin as admin
from mochi_stub.providers.ollama import request_schema as schema
from mochi_stub.providers.ollama.generation import chat, embed, embeddings, generate
from mochi_stub.providers.ollama.model_details import ps, show, tags
from mochi_stub.providers.ollama.request_schema import checked

VERSION = "0.33.0"
NO_CLOUD = {"cloud": {"disabled": True, "source": "env"}}
NO_WEB = "ollama cloud is disabled:"


def _always(answer: HttpResponse) -> Handler:
    return lambda *_: answer


def _error(status: int, message: str) -> Handler:
    return _always(errors.json_response({"error": message}, status))


def _get_and_head(handler: Handler) -> dict[str, Handler]:
    return {"HEAD": handler, "GET": handler}


_SIGN_OUT = _error(500, "there was an error signing out")
ROUTES: Routes = {
    "/": _get_and_head(_always(HttpResponse(200, b"Ollama is running", b"text/plain; charset=utf-8"))),
    "/api/version": _get_and_head(_always(errors.json_response({"version": VERSION}))),
    "/api/status": {"GET": _always(errors.json_response(NO_CLOUD))},
    "/api/tags": _get_and_head(tags),
    "/api/ps": {"GET": ps},
    "/api/show": {"POST": checked("ShowRequest", schema.SHOW, show)},
    "/api/chat": {"POST": checked("ChatRequest", schema.CHAT, chat)},
    "/api/generate": {"POST": checked("GenerateRequest", schema.GENERATE, generate)},
    "/api/embed": {"POST": checked("EmbedRequest", schema.EMBED, embed)},
    "/api/embeddings": {"POST": checked("EmbeddingRequest", schema.EMBEDDINGS, embeddings)},
    "/api/pull": {"POST": checked("PullRequest", schema.PULL, admin.pull)},
    "/api/push": {"POST": _error(400, admin.NO_FILES)},
    "/api/create": {"POST": checked("CreateRequest", schema.create_fields, admin.create)},
    "/api/copy": {"POST": checked("CopyRequest", schema.COPY, admin.copy)},
    "/api/delete": {"DELETE": checked("DeleteRequest", schema.DELETE, admin.delete)},
    "/api/blobs/*": {ANY: _error(400, admin.NO_FILES)},
    "/api/me": {"POST": _error(503, "account unavailable")},
    "/api/signout": {"POST": _SIGN_OUT},
    "/api/user/keys/*": {"DELETE": _SIGN_OUT},
    "/api/experimental/web_search": {"POST": _error(403, f"{NO_WEB} web search is unavailable")},
    "/api/experimental/web_fetch": {"POST": _error(403, f"{NO_WEB} web fetch is unavailable")},
    "/api/experimental/model-recommendations": {"GET": _always(errors.json_response({"recommendations": []}))},
}
