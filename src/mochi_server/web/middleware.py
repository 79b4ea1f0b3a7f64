"""ASGI middleware: checks of sizes, headers, origin and API key, and the handling of HEAD
requests.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mochi_server import errors
from mochi_server.constants import API_PREFIX, OPENAI_PREFIX
from mochi_server.errors import MochiError
from mochi_server.services.keys import UNNAMED, KeyRing
from mochi_server.sessions.caller import CALLER, UNRESTRICTED, Caller
from mochi_server.util.net import is_loopback, without_default_port
from mochi_server.web.requests import ERROR, header, route_path, send_error

MAX_HEADER_BYTES = 64 * 1024
WRONG_ENCODING = (
    "`Transfer-Encoding` must be `chunked`, in HTTP/1.1. Otherwise send the body with "
    "`Content-Length`."
)
LOCAL_ORIGINS = r"https?://(localhost|[\w.-]+\.localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?"
"""Regular expression for origins on the local machine, such as ``http://localhost:3000``."""

USER_HEADER = b"x-mochi-user"
"""Header in which a backend with a key of the scope `all` names its user."""
_USER_NEEDS_KEY = "X-Mochi-User is for backends. It requires an API key of the scope `all`."
_USER = re.compile("[!-~]{1,128}")
_SHARED = re.compile(
    rf"((GET|HEAD) (|{API_PREFIX})/metrics/?|POST {API_PREFIX}/\w+/reload/?|"
    rf"(POST|DELETE) {API_PREFIX}/mcp/.*|"
    rf"(?!GET|HEAD).* {API_PREFIX}/system-prompts.*)$",
    re.DOTALL,
)
"""Methods and paths of the routes that show or change what all users share.

Like a route of Starlette, a path may end with a line feed.
"""
_OWN_PATHS = re.compile(
    rf"({API_PREFIX}|{OPENAI_PREFIX}|/health|/metrics|/models/test|/docs|/openapi\.json)/"
)
"""Beginnings of the paths of this server's routes, unlike those that a library user adds."""
_SINGLE_HEADERS = (
    b"host",
    b"origin",
    b"authorization",
    b"content-type",
    b"content-length",
    b"transfer-encoding",
    USER_HEADER,
)
_ZIP_TYPES = ("application/zip", "application/x-zip-compressed")
"""Media types of ZIP files. Browsers on Windows send the second one."""

_MAX_LOGGED_ORIGINS = 100

_parse_address = lru_cache(ip_address)  # the addresses of this server are few

logger = logging.getLogger(__name__)

Check = Callable[[Scope], MochiError | None]
"""Check of a request head, which returns the error to send, or None."""


def check_requests(app: ASGIApp, checks: Sequence[Check]) -> ASGIApp:
    """Return middleware that runs checks on each request and sends the first error."""

    def call(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            for check in checks:
                error = check(scope)
                if error is not None:
                    return send_error(error, scope, send)
        return app(scope, receive, send)

    return call


def limit_bodies(app: ASGIApp, max_bytes: int) -> ASGIApp:
    """Return middleware that rejects bodies of more than ``max_bytes``, with or without
    `Content-Length`.

    Without `Content-Length`, ``BodyTooLarge`` is raised in the app when it reads the body.
    """

    def call(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return app(scope, receive, send)
        declared = header(scope, b"content-length")
        if declared.isdecimal() and int(declared) > max_bytes:
            return send_error(errors.BodyTooLarge(max_bytes), scope, send)
        is_chunked = not declared.isdecimal() and header(scope, b"transfer-encoding")
        return app(scope, limited(receive) if is_chunked else receive, send)

    def limited(receive: Receive) -> Receive:
        left = max_bytes

        async def receive_limited() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise errors.BodyTooLarge(max_bytes)
            return message

        return receive_limited

    return call


def ignore_trailing_slash(app: ASGIApp) -> ASGIApp:
    """Return middleware that removes a slash at the end of the paths of this server's routes."""

    def call(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        path = scope.get("path", "")
        if path.endswith("/") and _OWN_PATHS.match(route_path(scope)):
            scope["path"] = path[:-1]
        return app(scope, receive, send)

    return call


def answer_head(app: ASGIApp) -> ASGIApp:
    """Return middleware that handles HEAD requests as GET requests and drops the body of the
    response.

    The app receives an empty body, and a disconnect as soon as the response has started, so that
    streams end at once.
    """

    def call(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return call_get(scope, send) if scope.get("method") == "HEAD" else app(scope, receive, send)

    async def call_get(scope: Scope, send: Send) -> None:
        get = {**scope, "method": "GET"}
        started = anyio.Event()
        body: list[Message] = [{"type": "http.request"}]

        async def receive_until_start() -> Message:
            if body:
                return body.pop()
            await started.wait()
            return {"type": "http.disconnect"}

        async def send_start(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                started.set()

        await app(get, receive_until_start, send_start)
        if ERROR in get:
            scope[ERROR] = get[ERROR]
        if started.is_set():
            await send({"type": "http.response.body", "body": b""})

    return call


def head_check(scope: Scope) -> MochiError | None:
    """Return an error if the request head is too large, invalid, or ambiguous for a proxy in front
    of the server.
    """
    size = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
    size += sum(len(name) + len(value) for name, value in scope["headers"])
    if size > MAX_HEADER_BYTES:
        return errors.HeadersTooLarge(MAX_HEADER_BYTES)
    problem = _ambiguity(scope)
    return errors.MalformedRequest(problem) if problem else None


def _ambiguity(scope: Scope) -> str | None:
    """Return why a proxy could read the request head in another way, or None."""
    names = set()
    for name, _ in scope["headers"]:
        if name in names:
            return f"The header {name.decode().title()} occurs more than once. Send it once."
        if name in _SINGLE_HEADERS:
            names.add(name)
    if b"content-length" in names and b"transfer-encoding" in names:
        return "The request has both Content-Length and Transfer-Encoding. Send one of them."
    version = scope.get("http_version")
    encoding = header(scope, b"transfer-encoding").strip().lower()
    if encoding and (encoding != "chunked" or version == "1.0"):
        return WRONG_ENCODING
    if b"host" not in names and version == "1.1":
        return "The Host header is missing. HTTP/1.1 requires it."
    return None


def json_check(scope: Scope) -> MochiError | None:
    """Return an error if the body has no JSON content type, so that HTML forms of other sites
    cannot send requests.

    An empty body needs no content type. Session imports can also be ZIP files.
    """
    if scope["method"] not in ("POST", "PUT", "PATCH", "DELETE"):
        return None
    declared = header(scope, b"content-type")
    is_empty = header(scope, b"content-length") in ("", "0") and not header(
        scope, b"transfer-encoding"
    )
    media_type = declared.partition(";")[0].strip().lower()
    if re.fullmatch(r"application/([^,]*\+)?json", media_type) or (is_empty and not declared):
        return None
    if media_type in _ZIP_TYPES and scope["path"].endswith("/sessions/import"):
        return None
    return errors.ValidationFailed(
        "The body must be JSON, sent as `Content-Type: application/json`.", errors=[]
    )


def host_check(allowed_origins: Sequence[str]) -> Check:
    """Return a check against DNS rebinding: on loopback connections, reject foreign names in the
    Host header.
    """
    allowed = {urlsplit(origin).hostname for origin in allowed_origins}

    def check(scope: Scope) -> MochiError | None:
        host = header(scope, b"host")
        bare = host[1:].partition("]") if host.startswith("[") else host.partition(":")
        name = bare[0].strip().lower().rstrip(".")
        if "*" in allowed_origins or not name or is_loopback(name) or name in allowed:
            return None
        address = _local_address(scope)
        if address is None or not address.is_loopback:
            return None
        return errors.HostForbidden(host, _scheme_of_page(scope))

    return check


def _scheme_of_page(scope: Scope) -> str:
    """Return the scheme of the address that the browser shows, as the first proxy sends it.

    Any client can send these headers, so use it only for advice. RFC 7239 defines ``Forwarded``.
    """
    forwarded = header(scope, b"forwarded").partition(",")[0]
    found = re.search(r"(?:^|;)\s*proto=\"?(\w+)", forwarded, re.IGNORECASE)
    standard = "" if found is None else found[1].lower()
    common = header(scope, b"x-forwarded-proto").partition(",")[0].strip().lower()
    is_secure = "https" in (standard, common, scope.get("scheme"))
    return "https" if is_secure else "http"


def origin_check(allowed_origins: Sequence[str]) -> Check:
    """Return a check that rejects requests from web pages whose origin is not local, not that of
    this server, and not allowed.

    Each of the first ``_MAX_LOGGED_ORIGINS`` origins that it rejects is logged once.
    """
    logged = set[str]()

    def is_admitted(origin: str, host: str) -> bool:
        try:
            parts = urlsplit(origin)
            own = without_default_port(f"{parts.scheme}://{host}")  # some proxies add the port
            is_own = parts.scheme in ("http", "https") and (
                is_loopback(parts.hostname or "") or origin == own
            )
        except ValueError:
            is_own = False
        return is_own or origin in allowed_origins

    def check(scope: Scope) -> MochiError | None:
        origin = header(scope, b"origin")
        if "*" in allowed_origins or (
            origin
            and is_admitted(without_default_port(origin.lower()), header(scope, b"host").lower())
        ):
            return None
        # Browsers send no Origin with most resources that a page embeds, for example images.
        fetched = (
            header(scope, b"sec-fetch-site") == "cross-site"
            and header(scope, b"sec-fetch-mode") != "navigate"
        )
        if not origin and not fetched:
            return None
        error = errors.OriginForbidden(origin or "another site")
        if origin not in logged and len(logged) < _MAX_LOGGED_ORIGINS:
            logged.add(origin)
            hint = f" Setting: MOCHI_ALLOWED_ORIGINS={origin}" if origin not in ("", "null") else ""
            logger.warning("Origin refused origin=%r: %s%s", origin, error.message, hint)
        return error

    return check


def user_check(scope: Scope) -> MochiError | None:
    """Return an error for a CORS preflight request of the header X-Mochi-User, which web pages must
    not send.
    """
    names = header(scope, b"access-control-request-headers").lower()
    if USER_HEADER.decode() in names:
        return errors.Forbidden("Web pages must not send X-Mochi-User.")
    return None


def key_check(
    key_ring: Callable[[], KeyRing], *, insecure: bool, exempt: Collection[str] = ()
) -> Check:
    """Return a check that sets the caller and requires an API key, except for GET and HEAD to the
    paths in ``exempt``.

    If the ring is empty, the check admits requests to a loopback address or a Unix domain socket,
    or all requests if ``insecure`` is true.
    """

    def check(scope: Scope) -> MochiError | None:
        if route_path(scope) in exempt and scope["method"] in ("GET", "HEAD"):
            return None
        keys = key_ring()
        if not keys.is_empty:
            return _check_key(scope, keys)
        address = _local_address(scope)
        if not (insecure or address is None or address.is_loopback):
            return errors.Unauthorized(keys_exist=False)
        return _set_caller(scope, UNRESTRICTED, may_name_user=False)

    return check


def _check_key(scope: Scope, keys: KeyRing) -> MochiError | None:
    """Set the caller to the owner of the API key, and return an error if it is not valid."""
    sent = _sent_keys(scope)
    if not sent and _names_user(scope):
        return errors.Forbidden(_USER_NEEDS_KEY)
    caller = keys.find(sent)
    if caller is None:
        return errors.Unauthorized(key_sent=bool(sent), source=keys.source)
    CALLER.set(caller)  # the log names the key, also if the request is refused
    if caller.has_expired:
        return errors.Unauthorized(expired_key=caller.key)
    return _set_caller(scope, caller, may_name_user=caller.sees_all)


def _set_caller(scope: Scope, caller: Caller, *, may_name_user: bool) -> MochiError | None:
    """Set the caller of a request to the owner of its key.

    Return an error if this caller may not send the request.
    """
    if _names_user(scope):
        if not may_name_user:
            return errors.Forbidden(_USER_NEEDS_KEY)
        user = header(scope, USER_HEADER)
        if not _USER.fullmatch(user):
            return errors.MalformedRequest(
                "X-Mochi-User must have 1 to 128 visible ASCII characters."
            )
        # Keys without a name share their users.
        caller = replace(caller, owner=f"{caller.owner or UNNAMED}/{user}", sees_all=False)
    if not caller.sees_all and _SHARED.match(f"{scope['method']} {route_path(scope)}"):
        return errors.Forbidden(
            "This route concerns all users. It requires an API key of the scope `all`."
        )
    CALLER.set(caller)
    return None


def _names_user(scope: Scope) -> bool:
    return any(name == USER_HEADER for name, _ in scope["headers"])


def _sent_keys(scope: Scope) -> list[bytes]:
    """Return the API keys in the headers `Authorization` and `X-API-Key`."""
    scheme, _, token = header(scope, b"authorization").partition(" ")
    keys = [
        token.strip() if scheme.lower() == "bearer" else "",
        header(scope, b"x-api-key").strip(),
    ]
    return [key.encode("latin-1", "replace") for key in keys if key]


def _local_address(scope: Scope) -> IPv4Address | IPv6Address | None:
    """Return the server address of the connection, or None if it has no IP address, as a Unix
    domain socket.
    """
    try:
        return _parse_address(scope["server"][0]) if scope.get("server") else None
    except ValueError:
        return None
