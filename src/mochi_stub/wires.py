"""Which wire answers where: all of them as one table, and whose client it is where they share a path."""

from __future__ import annotations

from mochi_stub.answer import Answer, Request, Result, Routes, Stub
from mochi_stub.routing import mounted
from mochi_stub.wire.ollama.routes import ROUTES as OLLAMA
from mochi_stub.wire.openai.routes import ROUTES as OPENAI


def health(_stub: Stub, _request: Request) -> Result:
    """GET /health"""
    return Answer(200, b'{"status":"ok"}', b"application/json")


HEALTH: Routes = {"/health": {"HEAD": health, "GET": health}}

ROUTES = mounted(("", HEALTH), ("", OLLAMA), ("/ollama", OLLAMA), ("/v1", OPENAI))
