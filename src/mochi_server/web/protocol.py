"""Registration of a protocol: what the code outside its folder uses of it."""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

from fastapi import APIRouter
from pydantic import BaseModel

from mochi_server.errors import MochiError
from mochi_server.models.common import ErrorEnvelope


@dataclass(frozen=True, slots=True)
class ErrorFormat:
    """Format of the errors of a protocol."""

    envelope: type[BaseModel]
    """Schema of the body."""
    encode: Callable[[MochiError], tuple[int, bytes]]
    """Function that returns the HTTP status and the JSON body of an error."""
    code_field: str = "code"
    """Field in the object `error` of the body that identifies the kind of the error."""


NATIVE_ERRORS = ErrorFormat(ErrorEnvelope, lambda error: (error.status, error.body()))


@dataclass(frozen=True)
class Protocol:
    """Registration of a protocol.

    ``errors``, ``key_header`` and ``request_id_header`` apply to all paths below ``prefix`` and the router's prefix.
    """

    prefix: str
    router: APIRouter
    encode_error: Callable[[MochiError], bytes]
    """Function that returns the bytes that report an error and end a stream."""
    errors: ErrorFormat = NATIVE_ERRORS
    resumes: bool = True
    """Whether clients can resume a stream at another server."""
    turn_paths: Collection[str] = ()
    """Paths after ``prefix`` of the routes that start a turn in the session of the header `X-Mochi-Session`."""
    key_header: str | None = None
    """Header in lower case that can contain the API key, besides `Authorization`."""
    request_id_header: str | None = None
    """Header in lower case that contains the request ID, besides `X-Request-ID`."""
    description: str | None = None
    """Description of the router's tag in the OpenAPI document. None if another protocol describes the tag."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Pattern for the paths of the protocol."""
        path = re.sub(r"\{\w+\}", "[^/]+", self.prefix + self.router.prefix)
        return re.compile(f"{path}(/|$)")


def protocol_at(path: str, protocols: Iterable[Protocol]) -> Protocol | None:
    """Return the protocol with the longest prefix of ``path``, or None if the path belongs to the native API."""
    found = [protocol for protocol in protocols if protocol.pattern.match(path)]
    return max(found, key=lambda protocol: len(protocol.pattern.pattern), default=None)
