"""Registration of a protocol: what the code outside its folder uses of it."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Protocol:
    """Registration of a protocol.

    ``errors``, ``key_header`` and ``request_id_header`` apply to all requests below ``prefix``.
    """

    prefix: str
    router: APIRouter
    encode_error: Callable[[MochiError], bytes]
    """Function that returns the bytes that report an error and end a stream."""
    errors: ErrorFormat = NATIVE_ERRORS
    is_resumable: bool = False
    """Whether a client can resume a stream at another server."""
    turn_paths: Collection[str] = ()
    """Paths after ``prefix`` of the routes that start a turn in the session of the header `X-Mochi-Session`."""
    key_header: str | None = None
    """Header in lower case that can contain the API key, besides `Authorization`."""
    request_id_header: str | None = None
    """Header in lower case that contains the request ID, besides `X-Request-ID`."""
    description: str | None = None
    """Description of the router's tag in the OpenAPI document. None if another protocol describes the tag."""
