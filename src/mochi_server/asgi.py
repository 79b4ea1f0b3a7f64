"""Reading a request's head and refusing it, for whoever stands before the routes."""

from starlette.types import Scope, Send

from mochi_server.errors import MochiError, Unauthorized


def header(scope: Scope, name: bytes) -> str:
    """A header's value; "" when there is none."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


ERROR = "mochi.error"
"""Name in a request's scope: the code of the error that it was answered with."""


async def refuse(error: MochiError, scope: Scope, send: Send) -> None:
    """Answer with an error, whole."""
    scope[ERROR] = error.code
    body = error.body()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if isinstance(error, Unauthorized):
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": int(error.status), "headers": headers})
    await send({"type": "http.response.body", "body": body})
