"""Functions that shield, cancel or eagerly start coroutines, and the event loop of synchronous
clients.
"""

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import cache, wraps
from typing import Any, Concatenate, Generic, Protocol, TypeVar

import anyio
from typing_extensions import ParamSpec, Self

_CANCEL_AGAIN_SECONDS = 0.5
_CLOSE_SECONDS = 1


class _Closable(Protocol):
    async def aclose(self) -> None: ...


_Result = TypeVar("_Result")
_Client = TypeVar("_Client", bound=_Closable)
_Arguments = ParamSpec("_Arguments")


async def run_shielded(work: Awaitable[_Result]) -> _Result:
    """Await ``work`` and return its result.

    If the caller is cancelled, raise the cancellation after ``work`` ends. An error of ``work`` is
    then ignored.
    """
    future = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True):
            while not future.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([future])
        if not future.cancelled():
            future.exception()  # prevents a warning
        raise


def start_in(
    tasks: "set[asyncio.Future[Any]]", work: Coroutine[Any, Any, _Result]
) -> "asyncio.Task[_Result]":
    """Start a task for ``work``, and keep it in ``tasks`` until it has ended."""
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task


def call_in_daemon_thread(function: Callable[[], _Result]) -> "asyncio.Future[_Result]":
    """Call a function in a daemon thread, because it may hang and must not delay the exit.

    Return its future result.
    """
    outcome: Future[_Result] = Future()
    # so that the future cannot be cancelled before the thread ends
    outcome.set_running_or_notify_cancel()

    def work() -> None:
        try:
            outcome.set_result(function())
        except Exception as error:
            outcome.set_exception(error)

    threading.Thread(target=work, name="file", daemon=True).start()
    return asyncio.wrap_future(outcome)


async def cancel_and_wait(tasks: Sequence["asyncio.Future[Any]"]) -> None:
    """Cancel tasks and wait until they have ended.

    Cancel them again each half second, because a library may swallow the cancellation. Their errors
    are ignored.
    """
    while pending := [task for task in tasks if not task.done()]:
        for task in pending:
            task.cancel()
        await asyncio.wait(pending, timeout=_CANCEL_AGAIN_SECONDS)
    await asyncio.gather(*tasks, return_exceptions=True)


class EagerCall:
    """Coroutine that starts at once and runs to its first suspension, which saves a task switch if
    it does not wait.

    If ``is_done`` is false, await or close the call. ``await`` runs the rest and raises the errors.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.is_done = False
        self._coroutine = coroutine
        self._awaited: Any = None
        self._error: Exception | None = None
        try:
            self._awaited = coroutine.send(None)
        except StopIteration:
            self.is_done = True
        except Exception as error:
            self._error = error

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, None]:
        if self._error is not None:
            raise self._error
        if self.is_done:
            return
        try:
            yield self._awaited
        except BaseException:  # usually a cancellation, which the coroutine cannot catch here
            self._coroutine.close()
            raise
        yield from self._coroutine.__await__()
        self.is_done = True


class BlockingClient(Generic[_Client]):
    """Base class of synchronous clients. Use it as a context manager, or call ``close``."""

    def __init__(self, client: _Client) -> None:
        self._client = client
        self._loop = _event_loop()
        self._finalizer = weakref.finalize(self, _close, client, self._loop)

    def close(self) -> None:
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def blocking(
    method: Callable[Concatenate[_Client, _Arguments], Coroutine[Any, Any, _Result]],
) -> Callable[Concatenate[BlockingClient[_Client], _Arguments], _Result]:
    """Return a synchronous method that waits for the result of an asynchronous method."""

    @wraps(method)
    def call(
        self: BlockingClient[_Client], /, *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> _Result:
        return run(method(self._client, *args, **kwargs), self._loop)

    return call


def run(work: Coroutine[Any, Any, _Result], loop: asyncio.AbstractEventLoop) -> _Result:
    """Run a coroutine on the event loop of another thread and return its result."""
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    finally:
        future.cancel()  # cancels the work after a KeyboardInterrupt


@cache
def _event_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="clients", daemon=True).start()
    return loop


if hasattr(os, "register_at_fork"):
    # A forked process does not have the thread of the loop.
    os.register_at_fork(after_in_child=_event_loop.cache_clear)


def _close(client: _Closable, loop: asyncio.AbstractEventLoop) -> None:
    closed = asyncio.run_coroutine_threadsafe(client.aclose(), loop)
    # with a timeout, because a finalizer in the loop's own thread would block forever
    wait([closed], _CLOSE_SECONDS)
