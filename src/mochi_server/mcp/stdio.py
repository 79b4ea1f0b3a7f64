"""The transport to a server that is a program of its own: started, spoken with line by line, ended with all it started.

The SDK has one, too. It puts no bound to a line, takes twenty seconds for one of 50 MB, and leaves a server behind that
does not end by itself when this process is killed.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from mochi_server import posix
from mochi_server.mcp.config import LocalServer
from mochi_server.mcp.limits import MAX_MESSAGE_BYTES, TooLarge

LEAVES_SECONDS = 1
"""What a server is given to end after its input has ended, and again after it was told to."""

Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]

logger = logging.getLogger(__name__)


@asynccontextmanager
async def stdio(
    server: LocalServer, cwd: str | None, said: Callable[[str], None], ended: Callable[[], None]
) -> AsyncGenerator[Streams, None]:
    """Start a server and speak with it. ``said`` gets each line of its errors; ``ended`` tells that it hung up.

    Raises ``OSError`` and ``ValueError`` when it cannot be started, ``TooLarge``.
    """
    process = await _start(server, cwd)
    assert process.stdin and process.stdout and process.stderr  # noqa: S101, PT018 - they are pipes
    guard = posix.guard_group(process.pid)
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with anyio.create_task_group() as tasks, incoming, read, write, outgoing:
            tasks.start_soon(_read, process.stdout, incoming, ended)
            tasks.start_soon(_write, process.stdin, outgoing)
            tasks.start_soon(_log, process.stderr, said)
            try:
                yield read, write
            finally:
                tasks.cancel_scope.cancel()
    finally:
        try:
            with anyio.CancelScope(shield=True):
                await _end(process)
        finally:
            posix.dismiss(guard)


async def _start(server: LocalServer, cwd: str | None) -> asyncio.subprocess.Process:
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            server.command,
            *server.args,
            env={**get_default_environment(), **server.env},
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
    except asyncio.CancelledError:  # it starts all the same
        with anyio.CancelScope(shield=True), suppress(OSError, ValueError):
            await _end(await starting)
        raise


async def _read(
    stdout: asyncio.StreamReader,
    incoming: MemoryObjectSendStream[SessionMessage | Exception],
    ended: Callable[[], None],
) -> None:
    async with incoming:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
            while line := await _line(stdout):
                if (message := _message(line)) is not None:
                    await incoming.send(message)
        ended()


async def _line(stdout: asyncio.StreamReader) -> bytes:
    try:
        return await stdout.readline()
    except ValueError as error:
        raise TooLarge from error


def _message(line: bytes) -> SessionMessage | None:
    """A line as a message; None for what is none, such as what a program prints by mistake."""
    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError:
        if line.strip():
            logger.debug("An MCP server printed a line that is no message")
        return None


async def _write(stdin: asyncio.StreamWriter, outgoing: MemoryObjectReceiveStream[SessionMessage]) -> None:
    async with outgoing:
        with suppress(ConnectionError):
            async for item in outgoing:
                line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                stdin.write(line.encode("utf-8", "replace") + b"\n")
                await stdin.drain()


async def _log(stderr: asyncio.StreamReader, said: Callable[[str], None]) -> None:
    line = b"..."
    while line:
        with suppress(ValueError):  # it was too long, and is left out
            line = await stderr.readline()
            said(line.decode("utf-8", "replace").rstrip())


async def _end(process: asyncio.subprocess.Process) -> None:
    """As the protocol has it: its input ends, it is told to end, it is killed; and with it what it has started."""
    assert process.stdin is not None  # noqa: S101 - it is a pipe
    process.stdin.close()
    try:
        with anyio.move_on_after(LEAVES_SECONDS):
            await process.wait()
        posix.terminate_group(process.pid)
        with anyio.move_on_after(LEAVES_SECONDS):
            await process.wait()
    finally:
        posix.kill_group(process.pid)
    with anyio.move_on_after(LEAVES_SECONDS):
        await process.wait()
