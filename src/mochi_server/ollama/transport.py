"""HTTP transport for Ollama's newline-delimited JSON.

Lines are split only at ``b"\\n"``, because text may contain U+0085 or U+2028.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from http import HTTPStatus
from io import BytesIO
from typing import TYPE_CHECKING, Any

import anyio
import orjson
from pydantic import BaseModel

from mochi_server.errors import MochiError, OllamaError
from mochi_server.ollama import errors
from mochi_server.ollama.endpoint import Endpoint
from mochi_server.util.imports import import_in_thread

if TYPE_CHECKING:
    import aiohttp

Line = dict[str, Any]
OnLines = Callable[[list[Line]], None]
"""Callback for the lines parsed from one read of the connection.

An exception in the callback ends the request.
"""
_Feed = Callable[[bytes], None]

_STALL_ADVICE = "If the model is slow, raise MOCHI_OLLAMA_STALL_TIMEOUT_SECONDS."
_CHECK_SECONDS = 2.0
_DRAIN_SECONDS = 0.05
MAX_LINE_BYTES = 8 * 1024 * 1024
_MAX_UNSTREAMED_BYTES = 1024 * 1024
_MAX_LEVELS = 512  # orjson parses 1024 levels
_STRING_OR_BRACKET = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]')


class LineReader:
    """Parser of newline-delimited JSON. Check ``failure`` and ``done`` after each ``feed``."""

    def __init__(self) -> None:
        self.done = False
        self.failure: MochiError | None = None
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Line]:
        """Return the parsed lines that ``data`` completes.

        Lines after a failure or after ``done`` are dropped.
        """
        *lines, rest = data.split(b"\n")
        if lines and self._buffer:
            lines[0] = bytes(self._buffer) + lines[0]
            self._buffer.clear()
        self._buffer += rest
        parsed = self._read(lines)
        if len(self._buffer) > MAX_LINE_BYTES and not self.done:
            self.failure = self.failure or OllamaError(
                f"Ollama sent a line of more than {MAX_LINE_BYTES} bytes."
            )
        return parsed

    def end(self) -> list[Line]:
        """Return the lines that remain at the end of the stream.

        Sets ``failure`` if the answer is incomplete.
        """
        lines = self._read([bytes(self._buffer)])
        if not self.done and self.failure is None:
            self.failure = errors.malformed_answer("Ollama's answer ended before it was done.")
        return lines

    def _read(self, lines: list[bytes]) -> list[Line]:
        parsed: list[Line] = []
        if self.done or self.failure is not None:
            return parsed
        for line in lines:
            try:
                value = orjson.loads(line)
            except orjson.JSONDecodeError:
                if not line.strip():
                    continue
                value = _parse_nested(line)
            if type(value) is not dict or value.get("error"):
                self.failure = (
                    errors.reported_error(line)
                    if isinstance(value, dict)
                    else errors.invalid_json_error(line)
                )
                break
            parsed.append(value)
            if value.get("done") is True:
                self.done = True
                break
        return parsed


def _parse_nested(line: bytes) -> Any:
    """Parse a line that orjson refuses for its depth.

    Values deeper than ``_MAX_LEVELS`` become null.

    Return None if the line is not valid JSON.
    """
    parts, level, start = list[bytes](), 0, 0
    for token in _STRING_OR_BRACKET.finditer(line):
        if token[0] in b"{[":
            level += 1
            if level == _MAX_LEVELS + 1:
                parts += [line[start : token.start()], b"null"]
        elif token[0] in b"}]":
            if level == _MAX_LEVELS + 1:
                start = token.end()
            level -= 1
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(b"".join([*parts, line[start:]])) if parts else None


class Transport:
    """HTTP client for one Ollama server, with an unlimited connection pool.

    A new event loop gets a new pool.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        connect_timeout: float,
        stall_timeout: float,
        check_seconds: float = _CHECK_SECONDS,
    ) -> None:
        """``check_seconds`` is the interval of the check whether the connection of a stream still
        exists.
        """
        self.endpoint = endpoint
        self._stall_seconds = stall_timeout
        self._check_seconds = check_seconds
        self._connect_timeout = connect_timeout
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def open(self) -> None:
        """Open the connection pool of the running event loop, unless it is open.

        The first call imports the HTTP client in a thread. The import takes a fifth of a second,
        because it reads the certificates of the system.
        """
        if self._loop is not asyncio.get_running_loop():
            await import_in_thread("aiohttp")
            self._open_pool()

    async def call(self, method: str, url: str, body: bytes) -> bytes:
        """Send a request and return the body of its response.

        Raises ``ModelNotFound`` or ``OllamaError`` for its status, and errors of aiohttp.
        """
        session = await self._pool()
        request = session.request(method, url, data=body or None, allow_redirects=False)
        async with request as response:
            if response.status >= HTTPStatus.MULTIPLE_CHOICES:
                await self._raise_for_status(response, orjson.loads(body) if body else {})
            return await response.read()

    async def post(self, path: str, payload: Mapping[str, Any], on_lines: OnLines) -> None:
        """Post ``payload`` and pass batches of response lines to ``on_lines``, as
        ``AsyncOllamaClient.post_chat``.
        """
        session = await self._pool()
        request = self._request(session, path, payload)
        reader = LineReader()
        progress = 0.0

        def feed(data: bytes) -> None:
            nonlocal progress
            lines = reader.feed(data) if data else reader.end()
            if lines:
                if any(map(_has_content, lines)):
                    progress = time.monotonic()
                on_lines(lines)
            if reader.failure is not None:
                raise reader.failure

        with errors.translating_errors(self.endpoint, _STALL_ADVICE):
            with anyio.fail_after(self._stall_seconds):
                response = await request
            with closing(response):
                progress = time.monotonic()
                # A separate task has a short chain of awaits, which makes each read faster.
                reading = asyncio.ensure_future(self._read(response, payload, reader, feed))
                try:
                    while not reading.done():
                        remaining = progress + self._stall_seconds - time.monotonic()
                        if remaining <= 0:
                            raise TimeoutError
                        await asyncio.wait([reading], timeout=min(remaining, self._check_seconds))
                        connection = response.connection
                        # After a malformed chunk, aiohttp closes only the connection.
                        if connection is not None and connection.transport is None:
                            response.content.feed_eof()
                finally:
                    reading.cancel()
        reading.result()

    async def _read(
        self,
        response: "aiohttp.ClientResponse",
        payload: Mapping[str, Any],
        reader: LineReader,
        feed: _Feed,
    ) -> None:
        """Pass the response to ``feed``.

        Errors of the connection are translated, but not errors of ``feed``.
        """
        with errors.translating_errors(self.endpoint, _STALL_ADVICE):
            await self._raise_for_status(response, payload)
        while not reader.done:
            try:  # for each token, so that a context manager would be too slow
                data = await response.content.readany()
            except Exception as error:
                raise errors.translate(error, self.endpoint, _STALL_ADVICE) from error
            feed(data)
        # Read to the end, so that the connection can be reused.
        with anyio.move_on_after(_DRAIN_SECONDS), suppress(Exception):
            await response.content.read()

    async def _raise_for_status(
        self, response: "aiohttp.ClientResponse", payload: Mapping[str, Any]
    ) -> None:
        if response.status < HTTPStatus.MULTIPLE_CHOICES:
            return
        is_redirect = response.status < HTTPStatus.BAD_REQUEST
        if is_redirect:
            response.close()
        body = b"" if is_redirect else await response.read()
        errors.raise_for_status(
            response.status,
            response.headers,
            body,
            payload.get("model"),
            self.endpoint.setting,
        )

    def _request(
        self, session: "aiohttp.ClientSession", path: str, payload: Mapping[str, Any]
    ) -> "aiohttp.client._RequestContextManager":
        # Copied to save memory, because the buffer of orjson is larger than its content.
        body = bytes(memoryview(orjson.dumps(payload, default=_to_dict)))
        # A large body is sent in chunks, so that it does not block the event loop.
        data = BytesIO(body) if len(body) > _MAX_UNSTREAMED_BYTES else body
        return session.post(self.endpoint.url + path, data=data, allow_redirects=False)

    async def _pool(self) -> "aiohttp.ClientSession":
        await self.open()
        assert self._session is not None  # noqa: S101 - set by open
        return self._session

    def _open_pool(self) -> None:
        import aiohttp  # noqa: PLC0415 - a slow import

        loop = asyncio.get_running_loop()
        if self._loop is loop:  # another request has opened it during the import
            return
        self._loop = loop
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            headers={"Content-Type": "application/json", **self.endpoint.headers},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout),
            trust_env=self.endpoint.use_proxy,
            auto_decompress=True,
        )


def _to_dict(value: object) -> dict[str, Any]:
    """Return a message or a tool of the library ``ollama`` as a dict.

    Raises TypeError for other objects.
    """
    if not isinstance(value, BaseModel):
        raise TypeError
    return value.model_dump(exclude_none=True)


def _has_content(line: Line) -> bool:
    """Return whether a line restarts the stall timeout: it has text or tool calls, or it is the
    last line.
    """
    message = line.get("message")
    if type(message) is dict and (
        message.get("content") or message.get("thinking") or message.get("tool_calls")
    ):
        return True
    return line.get("done") is True
