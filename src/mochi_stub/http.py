"""HTTP/1.1 server of the stub, based on asyncio and the parser httptools, and access control with
the rules of Ollama.

uvicorn is not used. Its httptools protocol drops the body of requests with an `Upgrade` header,
which Java's client always sends. Its h11 protocol serves less than a third of the requests per
second that this protocol serves.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import cached_property, lru_cache
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, NamedTuple, TypeAlias, cast
from urllib.parse import parse_qsl, unquote

import httptools

logger = logging.getLogger("mochi_stub")

Headers: TypeAlias = "tuple[tuple[bytes, bytes], ...]"


@dataclass  # not frozen: frozen instances take three times as long to create
class Request:
    """A complete HTTP request.

    `path` is percent-decoded; the query string and the `raw_` fields are not decoded.
    """

    method: str
    path: str
    body: bytes = b""
    query_string: bytes = b""
    raw_headers: Headers = ()
    raw_path: bytes = b""

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """Header values by lower-case name. The last value of a repeated header wins."""
        return {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in self.raw_headers
        }

    @cached_property
    def query(self) -> Mapping[str, str]:
        return dict(parse_qsl(self.query_string.decode("latin-1"), keep_blank_values=True))


class HttpResponse(NamedTuple):
    """A complete response.

    If `has_length` is false, the body is sent in chunks without `Content-Length`.
    """

    status: int
    body: bytes = b""
    content_type: bytes = b""
    headers: Headers = ()
    has_length: bool = True


Application = Callable[["ResponseWriter"], Coroutine[Any, Any, None]]

_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_UPGRADE_HEADERS = (b"upgrade", b"http2-settings", b"connection")
_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"400 Bad Request"
)


class HttpConnection(asyncio.Protocol):
    """Connection to one client.

    It answers the requests of the client in order and ignores `Upgrade` headers.
    """

    transport: asyncio.Transport

    def __init__(self, app: Application, connections: set[HttpConnection]) -> None:
        self.app = app
        self.connections = connections
        self.parser = httptools.HttpRequestParser(self)
        # the writers of all requests that were received completely; only the first writer is active
        self.writers: deque[ResponseWriter] = deque()
        self.writable = asyncio.Event()
        self.writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.connections.add(self)

    def connection_lost(self, _exc: Exception | None) -> None:
        self.connections.discard(self)
        if self.writers:
            self.writers[0].task.cancel()
        self.writers.clear()
        del self.parser  # like the writers, it refers to this connection

    def data_received(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self.parser.get_method() == b"CONNECT":
                self._reject()
            else:
                head = self._head_without_upgrade()
                self.parser = httptools.HttpRequestParser(self)
                self.data_received(head + data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._reject()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def finish(self) -> None:
        """Close an idle connection at once. Close a busy connection after the current response."""
        if self.writers:
            self.writers[0].keep_alive = False
        else:
            self.transport.close()

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.body = bytearray()

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if dict(self.headers).get(b"expect", b"").lower() == b"100-continue":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # `data_received` parses the request again, without its upgrade headers
        url = httptools.parse_url(self.url)
        method, path = self.parser.get_method().decode("ascii"), unquote(url.path.decode("ascii"))
        request = Request(
            method, path, bytes(self.body), url.query or b"", tuple(self.headers), url.path
        )
        version = self.parser.get_http_version()
        keep_alive = version != "1.0" and self.parser.should_keep_alive()
        self.writers.append(ResponseWriter(self, request, keep_alive, version))
        if len(self.writers) == 1:
            self.writers[0].answer()

    def answer_next(self) -> None:
        """Answer the next request.

        Close the connection instead if the last response did not allow keep-alive.
        """
        if not self.writers.popleft().keep_alive:
            self.writers.clear()
            self.transport.close()
        elif self.writers:
            self.writers[0].answer()

    def _head_without_upgrade(self) -> bytes:
        lines = [b"%s: %s" % header for header in self.headers if header[0] not in _UPGRADE_HEADERS]
        if any(name == b"connection" and b"close" in value.lower() for name, value in self.headers):
            lines.append(b"connection: close")
        version = self.parser.get_http_version().encode()
        return b"\r\n".join(
            [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version), *lines, b"", b""]
        )

    def _reject(self) -> None:
        """Close the connection after the answers to earlier requests.

        Without these, send the rejection first.
        """
        if self.writers:
            self.writers[-1].keep_alive = False
        else:
            self.transport.write(_BAD_REQUEST)
            self.transport.close()


@dataclass
class ResponseWriter:
    """Writer of the response to one request.

    `task` runs the application and is cancelled by a client disconnect.
    """

    connection: HttpConnection
    request: Request
    keep_alive: bool
    version: str = "1.1"
    head: bytes = b""
    chunked: bool = False
    complete: bool = False
    task: asyncio.Task[None] = field(init=False)

    def answer(self) -> None:
        self.task = asyncio.get_running_loop().create_task(self._run())

    def start(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Prepare the status line and the headers.

        The next `write` sends them together with its part of the body.

        Without `Content-Length`, the body is sent in chunks or, in HTTP/1.0, ends with the
        connection.
        """
        all_headers = [(b"date", _date(int(time.time()))), *headers]
        has_body = self.request.method != "HEAD" and status not in (204, 304)
        self.chunked = (
            has_body and b"content-length" not in dict(all_headers) and self.version != "1.0"
        )
        if not self.keep_alive and self.version != "1.0":
            all_headers.append((b"connection", b"close"))
        if self.chunked:
            all_headers.append((b"transfer-encoding", b"chunked"))
        status_line = f"HTTP/{self.version} {status} {_PHRASES.get(status, '')}".encode()
        self.head = b"\r\n".join(
            [status_line, *[b"%s: %s" % header for header in all_headers], b"", b""]
        )

    async def write(self, body: bytes, *, last: bool = False) -> None:
        """Send a part of the body, which can be empty. If `last` is true, complete the response."""
        if self.request.method == "HEAD":
            body = b""
        frames = [b"%x\r\n" % len(body), body, b"\r\n"] if self.chunked and body else [body]
        if self.chunked and last:
            frames.append(b"0\r\n\r\n")
        await self.connection.writable.wait()
        if not self.connection.transport.is_closing():
            self.connection.transport.write(b"".join([self.head, *frames]))
        self.head = b""
        if last:
            self.complete = True
            self.connection.answer_next()

    async def _run(self) -> None:
        try:
            await self.connection.app(self)
        except asyncio.CancelledError:
            # the connection is lost; the task would store this error, whose traceback refers to the
            # task
            return
        except Exception:
            logger.exception(
                "request failed: method=%s path=%s", self.request.method, self.request.path
            )
        if not self.complete:
            self.connection.transport.close()


@lru_cache(maxsize=1)
def _date(seconds: int) -> bytes:
    return formatdate(seconds, usegmt=True).encode()


DEFAULT_ORIGINS = (
    *(
        f"{scheme}://{host}{port}"
        for host in ("localhost", "127.0.0.1", "0.0.0.0")  # noqa: S104 - only compared
        for scheme in ("http", "https")
        for port in ("", ":*")
    ),
    *("app://*", "file://*", "tauri://*", "vscode-webview://*", "vscode-file://*"),
)
_LOCAL_DOMAINS = (".localhost", ".local", ".internal")


class Access:
    """Rules for the origins and host names of requests.

    The stub refuses requests whose header `Origin` is not allowed (CORS). On a loopback address, it
    also refuses requests whose header `Host` is neither a local name nor an address. This check
    prevents DNS rebinding.

    Args:
        origins: Comma-separated origins that are allowed in addition to `DEFAULT_ORIGINS`. One `*`
            in an origin matches any text. The origin `*` allows all origins and host names.
        host: Address that the server listens on.

    Raises ValueError for an invalid origin.
    """

    def __init__(self, origins: str = "", host: str = "127.0.0.1") -> None:
        added = tuple(origin.strip().lower() for origin in origins.split(",") if origin.strip())
        for origin in added:
            if origin != "*" and ("://" not in origin or origin.count("*") > 1):
                raise ValueError(
                    f"invalid origin {origin!r}: use an origin such as https://example.com, or * "
                    "for all"
                )
        self.open = "*" in added
        self._patterns = tuple(origin.partition("*") for origin in (*DEFAULT_ORIGINS, *added))
        self._checks_host = not self.open and (host == "localhost" or _is_loopback(host))

    def response(self, request: Request) -> HttpResponse | None:
        """Return the response to a preflight request or to a refused request, or None for other
        requests.
        """
        host = request.headers.get("host", "")
        if origin := _foreign_origin(request):
            if not self._allows(origin):
                return HttpResponse(403)
            if request.method == "OPTIONS":
                return self._preflight(request)
        return HttpResponse(403) if self._checks_host and not _is_local(host) else None

    def headers(self, request: Request) -> Headers:
        """Return the CORS headers of a response."""
        origin = _foreign_origin(request)
        if not origin or not self._allows(origin):
            return ()
        if self.open:
            return ((b"access-control-allow-origin", b"*"),)
        return ((b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"Origin"))

    def _allows(self, origin: str) -> bool:
        return self.open or any(
            (origin.startswith(start) and origin.endswith(end)) if star else origin == start
            for start, star, end in self._patterns
        )

    def _preflight(self, request: Request) -> HttpResponse:
        names = request.headers.get("access-control-request-headers", "*").encode("latin-1")
        methods = (b"access-control-allow-methods", b"GET,POST,PUT,PATCH,DELETE,HEAD,OPTIONS")
        allowed = (
            methods,
            (b"access-control-allow-headers", names),
            (b"access-control-max-age", b"43200"),
        )
        return HttpResponse(204, headers=allowed, has_length=False)


def _foreign_origin(request: Request) -> str:
    origin, host = request.headers.get("origin", ""), request.headers.get("host", "")
    return "" if origin in (f"http://{host}", f"https://{host}") else origin


def _name(host: str) -> str:
    name, colon, port = host.rpartition(":")
    if not colon or (":" in name and not name.endswith("]")) or not (port.isdigit() or not port):
        return host
    return name.removeprefix("[").removesuffix("]")


@lru_cache(maxsize=256)
def _is_local(host: str) -> bool:
    name = _name(host).lower()
    names = ("", "localhost", socket.gethostname().lower())
    return name in names or name.endswith(_LOCAL_DOMAINS) or _is_loopback(name) is not None


def _is_loopback(address: str) -> bool | None:
    """Return whether an IP address is a loopback address, or None if the text is not an IP
    address.
    """
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return None
