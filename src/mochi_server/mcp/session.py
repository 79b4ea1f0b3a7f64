"""State of one connection to an MCP server, which the transport and the connection task share."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import anyio
from pydantic import ValidationError

from mochi_server.constants import API_PREFIX
from mochi_server.mcp.limits import McpLimits
from mochi_server.tools.execution import ToolContent, shorten
from mochi_server.util.text import SecretMasker

DISCONNECTED = "the connection was closed; the next call reconnects"
_MAX_TEXT = 500
_CONNECTING = "it has not responded yet"
_EXITED = "it exited without a response; its last line on stderr is in the log"
_ENDED = "the server ended the connection without a response"
_NOT_BEGUN = "Child exited without calling task_status.started()"
"""Text of anyio's error if a stream over SSE ends before the SDK knows where to send messages."""

logger = logging.getLogger(__name__)

Call = Callable[[str, dict[str, Any]], Awaitable[ToolContent]]
"""Function that calls a tool. It raises ``ToolRaised`` if the call fails."""


class NeedsAuthorization(Exception):
    """The MCP server needs an authorization that only a user can give."""


class OAuthFailed(Exception):
    """The authorization at an MCP server failed. The message has no secrets."""


class UnsafeAddress(OAuthFailed):
    """An authorization address of a server is not permitted."""


class MessageTooLarge(Exception):
    """A message of a server is larger than ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"it sent a message of more than {_size(limit)}")


def _size(count: int) -> str:
    """Return a number of bytes as text, in MiB if that is a whole number."""
    mebibytes, rest = divmod(count, 1024 * 1024)
    if rest:
        return f"{count:,} bytes"
    return f"{mebibytes} MiB"


def invalid_response(error: ValidationError) -> str:
    """Return the first problem of an invalid response as text."""
    first = error.errors()[0]
    field = ".".join(map(str, first["loc"]))
    return f"its response is not valid MCP: {field}: {first['msg']}"


@dataclass(eq=False)
class McpSession:
    """State of one connection to an MCP server, or of the attempt to connect."""

    name: str
    secrets: SecretMasker
    limits: McpLimits = field(default_factory=McpLimits)
    opened: "asyncio.Future[Call | None]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """Future with the function that calls tools, or with None if the attempt to connect failed."""
    problem: str | None = _CONNECTING
    error_status: int | None = None
    """HTTP status of the latest response to a message, if it is an error."""
    is_remote: bool = False
    """Whether the server is reached over HTTP, and not a process of this machine."""
    over_sse: bool = False
    """Whether the server has refused streamable HTTP."""
    needs_authorization: bool = False
    """Whether the server has refused a request without a valid token."""
    received_too_much: bool = False
    """Whether the server wrote a message to its stdout that is too large."""
    ended: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the tools have changed or the connection has ended."""

    def connect_timeout(self) -> AbstractContextManager[anyio.CancelScope]:
        """Return a context that raises ``TimeoutError`` if connecting or listing takes too long."""
        return anyio.fail_after(self.limits.connect_seconds)

    def open(self, call: Call) -> None:
        """Make the connection available to calls."""
        self.problem = None
        if not self.opened.done():
            self.opened.set_result(call)

    def end(self) -> None:
        """Mark the connection as ended, so that the next call reconnects."""
        self.ended = True
        if self.problem is None:
            self.problem = DISCONNECTED
        elif self.problem == _CONNECTING:
            self.problem = self._early_end
        self.changed.set()
        if not self.opened.done():
            self.opened.set_result(None)

    def log(self, line: str) -> str:
        """Log a line that the server wrote to stderr, and return it without secrets."""
        text = shorten(self.secrets.mask(line), _MAX_TEXT)
        if text:
            logger.debug("MCP server output server=%s: %s", self.name, text)
        return text

    def log_exit(self, last_line: str) -> None:
        """Log that the server has exited by itself, with its last line on stderr."""
        text = last_line or "it wrote nothing to stderr"
        logger.warning("MCP server exited server=%s: %s", self.name, text)

    @property
    def is_connecting(self) -> bool:
        """Whether the attempt to connect has neither succeeded nor failed.

        This is false in an automatic attempt after a failed or ended connection, which keeps the
        earlier problem.
        """
        return self.problem == _CONNECTING

    @property
    def authorization_advice(self) -> str:
        """What to do if the server needs authorization, as text."""
        return (
            f"it requires authorization. Send POST {API_PREFIX}/mcp/servers/"
            f"{quote(self.name, safe='')}/authorize, and open the URL of the response in a browser"
        )

    @property
    def _early_end(self) -> str:
        return _ENDED if self.is_remote else _EXITED

    def explain(self, error: BaseException) -> str:
        """Return the cause of a failed connection as text, without secrets."""
        while inner := getattr(error, "exceptions", None):  # task groups raise exception groups
            error = inner[0]
        if self.needs_authorization:
            return self.authorization_advice
        return self._known_cause(error) or self._other_cause(error)

    def _known_cause(self, error: BaseException) -> str | None:
        if isinstance(error, TimeoutError) and error.errno is None:
            return f"it did not respond within {self.limits.connect_seconds:g} seconds"
        if isinstance(error, MessageTooLarge):
            return str(error)
        if self.error_status is not None:
            return f"it responded with HTTP status {self.error_status}"
        if self.ended or str(error) == _NOT_BEGUN:
            return self._early_end
        if isinstance(error, FileNotFoundError | PermissionError | NotADirectoryError):
            return f"it cannot be started: {error.strerror}"
        return None

    def _other_cause(self, error: BaseException) -> str:
        if isinstance(error, ValidationError):
            text = invalid_response(error)
        elif isinstance(error, OAuthFailed):
            text = str(error)
        else:
            text = f"the connection failed: {str(error) or type(error).__name__}"
        return self.shown(text)

    def shown(self, text: str) -> str:
        """Return a text as one short line without secrets, for messages."""
        line = " ".join(text.split())
        return shorten(self.secrets.mask(line), _MAX_TEXT)
