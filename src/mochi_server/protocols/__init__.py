"""Protocols besides the native API. Each has a folder with its schemas, parser, encoder and routes.

A protocol has two entries: its folder, and the name of the folder in ``NAMES``. The module ``routes`` of the folder
defines ``PROTOCOL``.

A run publishes events. ``part_reader`` converts the events to parts. The encoder of a protocol converts the parts to
bytes.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module

from fastapi import APIRouter

from mochi_server.errors import MochiError
from mochi_server.web.asgi import NATIVE_ERRORS, ErrorFormat

NAMES = ("ai_sdk", "ag_ui", "openai_chat", "responses")
"""Folders of the protocols, in the order in which their routes are matched."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """Registration of a protocol. All errors of requests below ``prefix`` have the format ``errors``."""

    prefix: str
    router: APIRouter
    encode_error: Callable[[MochiError], bytes]
    """Function that returns the bytes that report an error and end a stream."""
    errors: ErrorFormat = NATIVE_ERRORS
    resumes: bool = True
    """Whether clients can resume a stream at another server."""

    def matches(self, path: str) -> bool:
        """Return whether the path of a request belongs to the protocol."""
        pattern = re.sub(r"\{\w+\}", "[^/]+", self.prefix + self.router.prefix)
        return re.match(f"{pattern}(/|$)", path) is not None


def load_protocols() -> Iterator[Protocol]:
    """Import the protocols."""
    for name in NAMES:
        protocol: Protocol = import_module(f"{__name__}.{name}.routes").PROTOCOL
        yield protocol
