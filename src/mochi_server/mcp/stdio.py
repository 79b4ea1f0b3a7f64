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

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from mochi_server.mcp.config import LocalServer, MessageTooLarge
from mochi_server.mcp.messages import MessageBuffer, parse, repair
from mochi_server.mcp.session import McpSession
from mochi_server.util import platform

EXIT_GRACE_SECONDS = 1
"""Seconds that a server has to exit after its stdin is closed, and again after SIGTERM."""
_REAP_SECONDS = 1
"""Maximum seconds to wait until the event loop detects that a killed server has exited."""
_CHUNK_BYTES = 64 * 1024
"""Maximum size of one read, and of one line of stderr."""

Incoming = MemoryObjectSendStream[SessionMessage | Exception]
Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]

logger = logging.getLogger(__name__)


@asynccontextmanager
async def stdio(server: LocalServer, cwd: str | None, session: McpSession) -> AsyncGenerator[Streams, None]:
    """Start an MCP server and yield the streams for its messages. ``session`` logs each line of its stderr.

    Raises:
        OSError, ValueError: The server cannot be started.
        MessageTooLarge: The server wrote a line of more than ``MAX_MESSAGE_BYTES`` to its stdout.
    """
    process = await _start(server, cwd)
    assert process.stdin and process.stdout and process.stderr  # noqa: S101, PT018 - all three are pipes
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    with platform.group_guard(process.pid):
        try:
            async with anyio.create_task_group() as tasks, incoming, read, write, outgoing:
                tasks.start_soon(_read, process.stdout, incoming, session)
                tasks.start_soon(_write, process.stdin, outgoing)
                tasks.start_soon(_log, process.stderr, session.log)
                yield read, write
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await _stop(process)


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
            limit=_CHUNK_BYTES,
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


async def _read(stdout: asyncio.StreamReader, incoming: Incoming, session: McpSession) -> None:
    buffer = MessageBuffer()
    with incoming, suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
        try:
            while chunk := await stdout.read(_CHUNK_BYTES):
                *ends, start = chunk.split(b"\n")
                for end in ends:
                    buffer.add(end)
                    await _receive(*buffer.take(), incoming)
                buffer.add(start)
                await asyncio.sleep(0)  # `read` does not yield while there is data
            await _receive(*buffer.take(), incoming)
        except MessageTooLarge:
            session.received_too_much = True
            raise
    session.end()


async def _receive(line: bytes, end: int | None, incoming: Incoming) -> None:
    message = parse(line, end) or await repair(line, end)
    if message is None:
        logger.debug("MCP server wrote a line to stdout that is not a message")
        await asyncio.sleep(0)  # a flood of such lines must not delay requests
    else:
        await incoming.send(SessionMessage(message))


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
        await asyncio.sleep(0)  # `readline` does not yield while there is data


async def _discard(output: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        while await output.read(_CHUNK_BYTES):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0)  # `read` does not yield while there is data


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Stop a server and read its output to the end, because the pipes stay open until then."""
    assert process.stdout and process.stderr  # noqa: S101, PT018 - both are pipes
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_discard, process.stdout)
        tasks.start_soon(_discard, process.stderr)
        await _signal(process)
        tasks.cancel_scope.deadline = anyio.current_time() + _REAP_SECONDS
        await process.wait()


async def _signal(process: asyncio.subprocess.Process) -> None:
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
