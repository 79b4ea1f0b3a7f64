"""Execution of a live turn: its events, and the storage of its end."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from mochi_server import errors
from mochi_server.chat.loop import TurnLoop
from mochi_server.chat.run import Run
from mochi_server.chat.turn import PreparedTurn
from mochi_server.chat.turn_control import TurnControl, TurnSuspended
from mochi_server.chat.turn_result import TurnResult
from mochi_server.chat.writer import TurnWriter
from mochi_server.events import ChatEvent, Publish, TurnWarning

logger = logging.getLogger(__name__)

_ANSWER_FAILURES = (
    errors.ContextOverflow,
    errors.ModelNotFound,
    errors.OllamaError,
    errors.OllamaUnreachable,
    errors.ToolsNotSupported,
)
"""Errors after which the stored message can be answered by another request."""


async def execute_run(turn: PreparedTurn, run: Run) -> TurnResult:
    """Execute the turn of a run, publish its events and return its result.

    If the user message cannot be stored, cancel the turn and return a result with that error.
    """
    gate = _EventGate(run, turn.writer)
    reported = [*run.log.warnings]
    result = await execute_turn(turn, gate.publish, run.control, reported)
    if gate.error is not None:
        failure = as_mochi_error(gate.error, run.session_id)
        return replace(result, failure=failure, cancelled=False)
    if result.failure is None and turn.writer.turn.state == "completed":
        gate.publish([result.completed()])
    return result


async def execute_turn(
    turn: PreparedTurn,
    publish: Publish,
    control: TurnControl,
    reported: Sequence[TurnWarning] = (),
) -> TurnResult:
    """Execute a turn and store its end. Return its result, which contains the error, if any.

    A cancellation is not raised, but becomes part of the result. If the turn is suspended or
    continues at the next server, it has no end to store, and its first write may still be running.

    Raises an error that prevents the storage of the end, if it is no ``MochiError``.

    ``reported`` has the warnings that the turn published before it was continued.
    """
    writer = turn.writer
    failure: errors.MochiError | None = None
    cancelled = False
    try:
        await TurnLoop(turn, publish, reported).run()
        await writer.wait_until_stored()
    except TurnSuspended:
        return writer.result()
    except asyncio.CancelledError:
        cancelled = not writer.turn.has_ended
        if cancelled and control.leaves_to_next_server(writer.turn):
            return writer.result()
    except Exception as error:
        failure = as_mochi_error(error, writer.conversation.session_id)
        failure.__traceback__ = None  # it refers to this frame
        if turn.input.retry_advice and isinstance(failure, _ANSWER_FAILURES):
            failure = failure.with_advice(turn.input.retry_advice)
    if not writer.turn.has_ended:
        state = control.state_after(failure, cancelled=cancelled)
        reason = control.abort_error if cancelled else failure
        with suppress(asyncio.CancelledError):  # the end is stored even if it is cancelled again
            failure = await writer.end(state, reason) or failure
    warnings = writer.take_version_warnings()
    if warnings:
        publish(warnings)
    if not cancelled:
        turn.phases.complete(publish, writer.added, failure)
    return writer.result(failure=failure, cancelled=cancelled)


class _EventGate:
    """Gate that buffers events until the user message is stored.

    If that write fails, the gate cancels the turn.
    """

    def __init__(self, run: Run, writer: TurnWriter) -> None:
        self.error: BaseException | None = None  # error of the write
        self._run = run
        # Events that are not published yet, or None after the write.
        self._buffered: list[ChatEvent] | None = []
        writer.initial_write.add_done_callback(self._on_write_end)

    def publish(self, events: list[ChatEvent]) -> None:
        if self._buffered is None:
            self._run.publish(events)
        else:
            self._buffered += events

    def _on_write_end(self, write: "asyncio.Future[None]") -> None:
        self.error = write.exception()
        if self.error is not None:
            self._run.cancel()
            return
        events = self._buffered
        self._buffered = None
        if events:
            self._run.publish(events)


def as_mochi_error(error: BaseException, session_id: str) -> errors.MochiError:
    """Return the error of a failed turn for clients. Log errors that are not meant for them."""
    if isinstance(error, errors.MochiError):
        return error
    logger.error("Turn failed unexpectedly session_id=%s", session_id, exc_info=error)
    return errors.InternalError()
