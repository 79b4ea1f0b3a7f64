"""Requests of web pages (CORS). The pages of all origins may use the stub."""

from __future__ import annotations

from mochi_stub.http import HttpResponse, Request


def is_cross_origin(request: Request) -> bool:
    """Return whether a web page of another origin sent the request."""
    origin = request.headers.get("origin")
    if not origin:
        return False
    host = request.headers.get("host", "")
    own_origins = (f"http://{host}", f"https://{host}")
    return origin not in own_origins


def preflight_response(request: Request) -> HttpResponse | None:
    """Return the response to a preflight request, or None for other requests."""
    if request.method != "OPTIONS" or not is_cross_origin(request):
        return None
    names = request.headers.get("access-control-request-headers", "*")
    headers = (
        (b"access-control-allow-methods", b"GET,POST,PUT,PATCH,DELETE,HEAD,OPTIONS"),
        (b"access-control-allow-headers", names.encode("latin-1")),
        (b"access-control-max-age", b"43200"),
    )
    return HttpResponse(204, headers=headers, has_length=False)
