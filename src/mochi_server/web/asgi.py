"""Read a request's head and refuse it, for middleware.

Middleware that reads only the head is a plain function that returns an awaitable. A coroutine would stay in memory for
as long as a stream is open.
"""

from starlette.types import Scope, Send

from mochi_server.constants import OPENAI_PREFIX
from mochi_server.errors import MochiError, Unauthorized
from mochi_server.openai.errors import openai_body, openai_status


def header(scope: Scope, name: bytes) -> str:
    """A header's value; "" when there is none."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), "")


ERROR = "mochi.error"
"""Name in a request's scope: the code of the error that it was answered with."""


def format_error(error: MochiError, path: str) -> tuple[int, bytes]:
    """Status and body of an error, in the words of the API that was asked."""
    if path == OPENAI_PREFIX or path.startswith(f"{OPENAI_PREFIX}/"):
        return openai_status(error), openai_body(error)
    return error.status, error.body()


async def send_error(error: MochiError, scope: Scope, send: Send) -> None:
    """Answer with an error, whole."""
    scope[ERROR] = error.code
    status, body = format_error(error, scope["path"])
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if isinstance(error, Unauthorized):
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
