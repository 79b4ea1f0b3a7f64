"""Connections to MCP servers through the MCP SDK.

Unlike the SDK, the transport over child processes limits the size of messages and the time to
close, and stops orphaned processes.

Importing this module takes a second and needs the extra ``mcp``.
"""

import asyncio
import os
import shutil
import sysconfig
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from errno import ENOENT
from pathlib import Path
from typing import Any, cast

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import Client, MCPError
from mcp.client import Transport
from mcp.client.stdio import get_default_environment
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from mochi_server import __version__
from mochi_server.mcp.config import LocalServer, ServerConfig
from mochi_server.mcp.credentials import Credentials
from mochi_server.mcp.http import open_http
from mochi_server.mcp.messages import MAX_TOOLS, MessageFilter, decode, read_lines
from mochi_server.mcp.session import McpSession, MessageTooLarge, invalid_response
from mochi_server.mcp.tool_mapping import McpTool, content_of, map_tools
from mochi_server.tools.execution import ToolContent, ToolRaised
from mochi_server.util import platform
from mochi_server.util.schema_checks import SchemaChecks

# Maximum seconds to wait until the event loop detects that a killed server has exited.
_REAP_SECONDS = 1
_CHUNK_BYTES = 64 * 1024  # maximum size of one read, and of one line of stderr
_SESSION_LOST = (
    (404, mcp_types.INVALID_REQUEST),
    (404, mcp_types.CONNECTION_CLOSED),
    (400, mcp_types.CONNECTION_CLOSED),
)
"""HTTP status and code with which a restarted server rejects requests of the old session."""
# Prefixes of the SDK's messages for a refused response, and for a closed connection, whose code has
# other uses
_FAILED_MESSAGES = ("Failed to parse JSON response: ", "SSE stream failed: ")
_CLOSED_MESSAGES = ("Connection closed", "SSE stream ")

_Incoming = MemoryObjectSendStream[SessionMessage | Exception]


@dataclass(frozen=True)
class McpConnection:
    """An initialized connection to an MCP server."""

    client: Client
    session: McpSession
    filter: MessageFilter

    async def tools(self, checks: SchemaChecks) -> tuple[list[McpTool], list[str]]:
        """Return the usable tools of the server, and the problems of its unusable tools.

        Raises errors of the SDK.
        """
        tools: list[mcp_types.Tool] = []
        cursor = None
        self.filter.listed = 0
        self.filter.problems.clear()
        while True:
            page = await self.client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None or self.filter.listed > MAX_TOOLS:
                break
        usable, problems = await map_tools(tools, checks)
        problems = [*self.filter.problems, *problems]
        if self.filter.listed > MAX_TOOLS:
            problems.append(f"it offers more than {MAX_TOOLS} tools; the others are ignored")
        return usable, problems

    async def call(self, tool: str, arguments: dict[str, Any]) -> ToolContent:
        """Call a tool and return its result. Raises ``ToolRaised`` if the call fails.

        If the calling task is cancelled, the call is also cancelled on the server.
        """
        try:
            result = await self.client.call_tool(tool, arguments)
        except Exception as error:
            raise ToolRaised(self.reason_of_failure(error)) from error
        content = await anyio.to_thread.run_sync(content_of, result)  # decodes and hashes images
        if result.is_error:
            raise ToolRaised(content.text)
        return content

    def reason_of_failure(self, error: Exception) -> str:
        """Return why a request failed, and end the session if the connection or session is lost."""
        if isinstance(error, ValidationError):
            return invalid_response(error)
        if not isinstance(error, MCPError):  # another invalid response
            return f"{type(error).__name__}: {error}"
        if self.session.needs_authorization:
            return self.session.authorization_advice
        reason = error.message
        for prefix in _FAILED_MESSAGES:
            reason = reason.removeprefix(prefix)
        too_large = str(MessageTooLarge(self.session.limits.message_bytes))
        if self.session.received_too_much or reason == too_large:
            return f"{too_large}, which is the limit. Request a smaller result."
        if error.code == mcp_types.CONNECTION_CLOSED and reason.startswith(_CLOSED_MESSAGES):
            self.session.end()
            return "the connection ended before the response"
        if (self.session.error_status, error.code) in _SESSION_LOST:
            self.session.end()
        return reason


@asynccontextmanager
async def connect(
    server: ServerConfig, cwd: str | None, session: McpSession, credentials: Credentials
) -> AsyncGenerator[McpConnection, None]:
    """Connect to an MCP server and yield the connection.

    Raises any error of the transport, the SDK or the server.
    """

    async def handle(message: object) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            session.changed.set()

    async def watch_tools() -> None:
        with suppress(ListenNotSupportedError, MCPError, SubscriptionLost):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    session.changed.set()

    if isinstance(server, LocalServer):
        streams = _stdio(server, cwd, session)
    else:
        streams = open_http(server, session, credentials)
    message_filter = MessageFilter(
        lambda: client.session.protocol_version or mcp_types.LATEST_PROTOCOL_VERSION
    )
    client = Client(
        cast("Transport", message_filter.wrap(streams)),
        message_handler=handle,
        client_info=mcp_types.Implementation(name="mochi-server", version=__version__),
        cache=None,
    )
    async with client, anyio.create_task_group() as tasks:
        tools = client.server_capabilities.tools
        if tools is not None and tools.list_changed:
            tasks.start_soon(watch_tools)
        yield McpConnection(client, session, message_filter)
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def _stdio(
    server: LocalServer, cwd: str | None, session: McpSession
) -> AsyncGenerator[Any, None]:
    """Start a local server, yield the streams of its messages, and stop the server."""
    process = await _start(server, cwd, session.limits.exit_seconds)
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    with platform.group_guard(process.pid):
        try:
            async with anyio.create_task_group() as tasks, incoming, read, write, outgoing:
                exit_logged = anyio.Event()
                tasks.start_soon(_read, process, incoming, session, exit_logged)
                tasks.start_soon(_write, process, outgoing)
                tasks.start_soon(_log_stderr, process, session, exit_logged)
                yield read, write
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await _stop(process, session.limits.exit_seconds)


async def _start(server: LocalServer, cwd: str | None, exit_seconds: float) -> Process:
    """Start the program of a server. Raises ``OSError`` and ``ValueError``.

    On cancellation, stop the program before the cancellation continues.
    """
    environment = {**get_default_environment(), **server.env}
    # Services do not activate the virtual environment, but its programs must be found.
    folders = [environment.get("PATH", os.defpath), sysconfig.get_path("scripts")]
    search_path = os.pathsep.join(filter(None, folders))
    _check_files(server.command, cwd, search_path)
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            server.command,
            *server.args,
            env={**environment, "PATH": search_path},
            cwd=cwd,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=_CHUNK_BYTES,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:  # the process starts despite the cancellation
        with anyio.CancelScope(shield=True), suppress(OSError, ValueError):
            await _stop(await starting, exit_seconds)
        raise


def _check_files(command: str, cwd: str | None, search_path: str) -> None:
    """Raise ``FileNotFoundError`` with advice if the directory or the program does not exist."""
    if cwd is not None and not Path(cwd).is_dir():
        raise FileNotFoundError(ENOENT, "its directory cwd does not exist")
    if Path(command).name == command and shutil.which(command, path=search_path) is None:
        raise FileNotFoundError(
            ENOENT, "the program was not found; install it, or set its full path as the command"
        )


async def _chunks(stream: asyncio.StreamReader | None) -> AsyncIterator[bytes]:
    if stream is None:
        return
    while chunk := await stream.read(_CHUNK_BYTES):
        yield chunk


async def _read(
    process: Process, incoming: _Incoming, session: McpSession, exit_logged: anyio.Event
) -> None:
    """Pass on the messages on a server's stdout. When stdout ends, end the session.

    Before that, wait briefly until the exit is logged, because the end of ``incoming`` stops the
    logging. Raises ``MessageTooLarge``.
    """
    with incoming, suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
        try:
            async for line in read_lines(_chunks(process.stdout), session.limits.message_bytes):
                message = await decode(line)
                if message is not None:  # other lines are the output of a print function
                    await incoming.send(SessionMessage(message))
        except MessageTooLarge:
            session.received_too_much = True
            raise
        with anyio.move_on_after(_REAP_SECONDS):  # it may not exit, or a child may keep stderr open
            await exit_logged.wait()
    session.end()


async def _write(process: Process, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
    """Write messages to a server's stdin, until the server closes it or no more messages come."""
    assert process.stdin is not None  # noqa: S101 - it is a pipe
    # uvloop raises RuntimeError if the program has closed its input.
    with outgoing, suppress(ConnectionError, RuntimeError):
        async for item in outgoing:
            line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(line.encode("utf-8", "replace") + b"\n")
            await process.stdin.drain()


async def _log_stderr(process: Process, session: McpSession, exit_logged: anyio.Event) -> None:
    """Log each line of a server's stderr, and then the exit of the server.

    A server may close stderr earlier than it exits.
    """
    assert process.stderr is not None  # noqa: S101 - it is a pipe
    last_line = ""
    while not process.stderr.at_eof():
        with suppress(ValueError):  # the line is too long
            line = await process.stderr.readline()
            last_line = session.log(line.decode("utf-8", "replace").rstrip()) or last_line
        await asyncio.sleep(0)  # `readline` does not yield while there is data
    await process.wait()
    session.log_exit(last_line)
    exit_logged.set()


async def _discard(stream: asyncio.StreamReader | None) -> None:
    """Read a stream to its end."""
    with suppress(ConnectionError):
        async for _ in _chunks(stream):
            await asyncio.sleep(0)  # `read` does not yield while there is data


async def _stop(process: Process, exit_seconds: float) -> None:
    """Stop a server in the order that MCP specifies: close its stdin, send SIGTERM, then send
    SIGKILL.

    Before each signal, the server has ``exit_seconds`` to exit. The signals go to its whole process
    group. The output of the server is read to the end, because the pipes stay open until then.
    """
    assert process.stdin is not None  # noqa: S101 - it is a pipe
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_discard, process.stdout)
        tasks.start_soon(_discard, process.stderr)
        try:
            process.stdin.close()
            with anyio.move_on_after(exit_seconds):
                await process.wait()
            platform.terminate_group(process.pid)
            with anyio.move_on_after(exit_seconds):
                await process.wait()
        finally:
            platform.terminate_group(process.pid, kill=True)
        tasks.cancel_scope.deadline = anyio.current_time() + _REAP_SECONDS
        await process.wait()
