"""Transport to an MCP server in a child process. Unlike the SDK, it limits line sizes and stops orphaned processes."""

import asyncio
import logging
import os
import shutil
import sysconfig
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from errno import ENOENT
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from mochi_server.mcp.config import MAX_MESSAGE_BYTES, LocalServer, MessageTooLarge
from mochi_server.util import platform

if TYPE_CHECKING:
    from mochi_server.mcp.server_task import McpSession

EXIT_GRACE_SECONDS = 1
"""Seconds that a server has to exit after its stdin is closed, and again after SIGTERM."""
_REAP_SECONDS = 1
"""Maximum seconds to wait until the event loop detects that a killed server has exited."""

Incoming = MemoryObjectSendStream[SessionMessage | Exception]
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]

logger = logging.getLogger(__name__)


@asynccontextmanager
async def stdio(server: LocalServer, cwd: str | None, session: "McpSession") -> AsyncGenerator[Streams, None]:
    """Start an MCP server and yield the streams for its messages. ``session`` logs each line of its stderr.

    Raises:
        OSError, ValueError: The server cannot be started.
        MessageTooLarge: The server wrote a line of more than ``MAX_MESSAGE_BYTES`` to its stdout.
    """
    process = await _start(server, cwd)
    assert process.stdin and process.stdout and process.stderr  # noqa: S101, PT018 - all three are pipes
    guard = platform.start_group_guard(process.pid)
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with anyio.create_task_group() as tasks, incoming, read, write, outgoing:
            tasks.start_soon(_read, process.stdout, incoming, session)
            tasks.start_soon(_write, process.stdin, outgoing)
            tasks.start_soon(_log, process.stderr, session.log)
            yield read, write
            tasks.cancel_scope.cancel()
    finally:
        try:
            with anyio.CancelScope(shield=True):
                await _stop(process)
        finally:
            platform.stop_group_guard(guard)


async def _start(server: LocalServer, cwd: str | None) -> asyncio.subprocess.Process:
    environment = _environment(server)
    _check_files(server.command, cwd, environment["PATH"])
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            server.command,
            *server.args,
            env=environment,
            cwd=cwd,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=MAX_MESSAGE_BYTES,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:  # the process starts despite the cancellation
        with anyio.CancelScope(shield=True), suppress(OSError, ValueError):
            await _stop(await starting)
        raise


def _environment(server: LocalServer) -> dict[str, str]:
    environment = {**get_default_environment(), **server.env}
    # Services do not activate the virtual environment, but its programs must be found.
    search_path = [environment.get("PATH", os.defpath), sysconfig.get_path("scripts")]
    return {**environment, "PATH": os.pathsep.join(filter(None, search_path))}


def _check_files(command: str, cwd: str | None, search_path: str) -> None:
    """Raise an error that states whether the program or its working directory is missing."""
    if cwd is not None and not Path(cwd).is_dir():
        raise FileNotFoundError(ENOENT, "its directory cwd does not exist")
    if os.path.basename(command) == command and shutil.which(command, path=search_path) is None:  # noqa: PTH119
        raise FileNotFoundError(ENOENT, "the program was not found; install it, or set its full path as the command")


async def _read(stdout: asyncio.StreamReader, incoming: Incoming, session: "McpSession") -> None:
    with incoming, suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
        while True:
            try:
                line = await stdout.readline()
            except ValueError as error:
                session.received_too_much = True
                raise MessageTooLarge from error
            if not line:
                break
            try:
                message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                logger.debug("MCP server wrote a line to stdout that is not a message")
            else:
                await incoming.send(SessionMessage(message))
    session.end()


async def _write(stdin: asyncio.StreamWriter, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
    with outgoing, suppress(ConnectionError):
        async for item in outgoing:
            line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            stdin.write(line.encode("utf-8", "replace") + b"\n")
            await stdin.drain()


async def _log(stderr: asyncio.StreamReader, log: Callable[[str], None]) -> None:
    while not stderr.at_eof():
        with suppress(ValueError):  # the line is too long
            log((await stderr.readline()).decode("utf-8", "replace").rstrip())


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Stop a server in the order that MCP specifies: close its stdin, send SIGTERM, then send SIGKILL.

    Before each signal, the server has ``EXIT_GRACE_SECONDS`` to exit. The signals go to its whole process group.
    """
    assert process.stdin is not None  # noqa: S101 - it is a pipe
    process.stdin.close()
    try:
        with anyio.move_on_after(EXIT_GRACE_SECONDS):
            await process.wait()
        platform.terminate_group(process.pid)
        with anyio.move_on_after(EXIT_GRACE_SECONDS):
            await process.wait()
    finally:
        platform.terminate_group(process.pid, kill=True)
    with anyio.move_on_after(_REAP_SECONDS):
        await process.wait()
