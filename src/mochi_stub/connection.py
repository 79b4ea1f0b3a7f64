"""Connections of the stub: those of aiohttp, as tolerant as the servers that the stub plays."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web
from aiohttp.http_parser import HeadersParser, HttpRequestParserPy

MAX_HEAD_BYTES = 1_048_576
"""Maximum length of the request line, and of each header."""


class TolerantParser(HttpRequestParserPy):
    """Parser that accepts repeated headers.

    Pydantic AI's Gemini client sends two `User-Agent` headers. Gemini and Go accept them; aiohttp's
    strict parser responds with 400. Bodies are parsed strictly: aiohttp's lax parser of chunked
    bodies does not find the end of a chunk in a request.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._headers_parser = HeadersParser(
            self.max_line_size, self.max_headers, self.max_field_size, lax=True
        )


class Connection(web.RequestHandler):
    """Connection of a client, with a tolerant parser."""

    def __init__(self, server: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        no_log: Any = None  # aiohttp's annotation lacks None
        super().__init__(server, loop=loop, access_log=no_log)
        self._parser = TolerantParser(
            self,
            loop,
            max_line_size=MAX_HEAD_BYTES,
            max_field_size=MAX_HEAD_BYTES,
            payload_exception=web.RequestPayloadError,
            auto_decompress=False,
        )
