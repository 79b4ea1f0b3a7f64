"""Execution of a live turn: its events, and the storage of its end."""

import asyncio
import logging
from contextlib import suppress
from typing import Any

from mochi_server import errors
from mochi_server.chat.approvals import TurnSuspended
from mochi_server.chat.idempotency import StoredAnswer
from mochi_server.chat.loop import TurnLoop
from mochi_server.chat.run import Run
from mochi_server.chat.turn import PreparedTurn
from mochi_server.chat.turn_result import TurnResult
from mochi_server.chat.writer import TurnWriter
from mochi_server.events import ChatEvent, ContentDelta, ThinkingDelta
from mochi_server.sessions.change import Change
from mochi_server.sessions.turn import StoredTurn

logger = logging.getLogger(__name__)


async def play_turn(turn: PreparedTurn, run: Run) -> TurnResult:
    """Execute a turn, publish its events in ``run`` and return its result, which contains the
    error, if any.
    """
    writer = turn.writer
    gate = _EventGate(run, writer)
    failure, cancelled = None, False
    try:
        await TurnLoop(turn, gate.publish).run()
        await writer.wait_until_stored()
    except TurnSuspended:
        return _result(writer, suspended=True)
    except asyncio.CancelledError:
        cancelled = not writer.turn.has_ended
        if cancelled and _continues_later(run, writer):
            return _result(writer, suspended=True)
    except Exception as error:
        failure = as_mochi_error(error, run.session_id)
    if failure is None and not cancelled:
        gate.publish([_result(writer).completed()])
    if not writer.turn.has_ended:
        failure = await _end(run, writer, failure, cancelled=cancelled) or failure
    if gate.error is not None:
        failure, cancelled = as_mochi_error(gate.error, run.session_id), False
    return _result(writer, failure=failure, cancelled=cancelled)


async def repeat_answer(answer: StoredAnswer, run: Run) -> TurnResult:
    """Publish the stored answer to a request with the same idempotency key, and return its
    result.
    """
    events: list[ChatEvent] = []
    for message in answer.messages:
        if message["role"] == "assistant":
            events += [ThinkingDelta(message["thinking"])] if message.get("thinking") else []
            events += [ContentDelta(message["content"])] if message["content"] else []
    result = TurnResult(repeated=answer.messages, client_tool_calls=answer.client_tool_calls)
    answer_id = None if result.answer is None else result.answer["message_id"]
    await run.conversation.write(
        Change(turn=StoredTurn(list(run.run_ids), "completed", answer.first, answer_id))
    )
    run.publish([*events, result.completed()])
    return result


def _continues_later(run: Run, writer: TurnWriter) -> bool:
    """Return whether a shutdown has cancelled a turn that continues at the next server."""
    return run.control.ends_for_shutdown and not run.stopped and writer.turn.survives


async def _end(
    run: Run, writer: TurnWriter, failure: errors.MochiError | None, *, cancelled: bool
) -> errors.MochiError | None:
    """Store the end of a turn that has failed or was cancelled, or whose client runs its calls."""
    with suppress(asyncio.CancelledError):  # the end is stored even if the turn is cancelled again
        if cancelled:
            state: Any = "stopped" if run.stopped else "cancelled"
            return await writer.end(state, run.abort_error, keeps_text=run.stopped)
        state = "completed" if failure is None else "failed"
        return await writer.end(state, failure, keeps_text=failure is None)
    return None


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
        events, self._buffered = self._buffered, None
        if events:
            self._run.publish(events)


def _result(writer: TurnWriter, **ending: Any) -> TurnResult:
    return TurnResult(
        stored=writer.added,
        first_chunks=writer.first_chunks,
        outcomes=writer.outcomes,
        client_tool_calls=writer.client_tool_calls,
        window=writer.window,
        turn=writer.turn,
        **ending,
    )


def as_mochi_error(error: BaseException, session_id: str) -> errors.MochiError:
    """Return the error of a failed turn for clients. Log errors that are not meant for them."""
    if isinstance(error, errors.MochiError):
        return error
    logger.error("Turn failed unexpectedly session_id=%s", session_id, exc_info=error)
    return errors.InternalError()
