"""HTTP requests and responses, independent of the HTTP server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias
from urllib.parse import parse_qsl

Headers: TypeAlias = "tuple[tuple[bytes, bytes], ...]"


@dataclass(frozen=True)
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
        headers = {}
        for encoded_name, value in self.raw_headers:
            name = encoded_name.decode("latin-1").lower()
            headers[name] = value.decode("latin-1")
        return headers

    @cached_property
    def query(self) -> Mapping[str, str]:
        text = self.query_string.decode("latin-1")
        pairs = parse_qsl(text, keep_blank_values=True)
        return dict(pairs)


class HttpResponse(NamedTuple):
    """A complete response.

    If `has_length` is false, the body is sent in chunks without `Content-Length`.
    """

    status: int
    body: bytes = b""
    content_type: bytes = b""
    headers: Headers = ()
    has_length: bool = True
