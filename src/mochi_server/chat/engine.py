"""Engine that validates and executes turns."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from mochi_server import errors
from mochi_server.chat.conversation import Conversation
from mochi_server.chat.model_answerer import ModelAnswererFactory
from mochi_server.chat.parked_record import refuse_if_waiting
from mochi_server.chat.prompt import last_user_index
from mochi_server.chat.run import Run, TurnParked
from mochi_server.chat.turn import PrepareAnswer, Turn, resolve_idempotent
from mochi_server.chat.turn_input import TurnInput
from mochi_server.chat.turn_result import TurnResult
from mochi_server.chat.turn_writer import TurnWriter
from mochi_server.events import ChatEvent

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChatEngine:
    """Executor of turns. ``prepare`` validates an input without writing; ``run`` executes the turn and stores it."""

    answerers: ModelAnswererFactory
    prepare_agent: PrepareAnswer

    async def prepare(self, conversation: Conversation, turn_input: TurnInput) -> Turn:
        """Validate the input of a turn against its session and choose its answerer. Raises ``MochiError``."""
        session = await conversation.store.load(conversation.session_id)
        refuse_if_waiting(session)
        if session.metadata.pending_approval is not None:  # unreadable, so that crash recovery ends the turn
            session = await conversation.store.patch(session.session_id, {"pending_approval": None})
        if turn_input.revision not in (None, session.revision):
            raise errors.SessionConflict(session.session_id)
        turn_input, stored_answer = resolve_idempotent(session, turn_input)
        if turn_input.change == "regenerate" and last_user_index(session.history) is None:
            raise errors.EmptyHistory(session.session_id)
        prepare: PrepareAnswer = self.answerers.prepare if turn_input.agent is None else self.prepare_agent
        answerer = stored_answer or await prepare(conversation, session, turn_input)
        return Turn(conversation, session, turn_input, answerer)

    async def run(self, turn: Turn, run: Run) -> TurnResult:
        """Execute a turn, publish its events in ``run`` and return its result, which contains the error, if any."""
        try:
            session = await turn.answerer.begin(turn.session)
        except errors.MochiError as error:
            return TurnResult(failure=error)
        writer = TurnWriter(turn.conversation, session, turn.input, run)
        write = writer.begin(turn.input.new_images)
        gate = _EventGate(run, buffered=None if write is None else [])
        if write is not None:
            write.add_done_callback(gate.on_write_end)
        failure, cancelled, records = None, False, turn.answerer.records
        try:
            turn = replace(turn, input=turn.input.without_data())  # free the images: a turn may take minutes
            await turn.answerer.answer(session, writer, gate.publish)
            await writer.wait_until_stored()
            gate.publish([_result(turn, writer).completed()])
        except TurnParked:
            return _result(turn, writer, parked_until=records.record.due if records and records.record else None)
        except asyncio.CancelledError:
            cancelled = not writer.is_complete
            if writer.is_complete:
                gate.publish([_result(turn, writer).completed()])
        except Exception as error:
            failure = as_mochi_error(error, session.session_id)
        if cancelled or failure is not None:
            with suppress(asyncio.CancelledError):  # the partial turn is stored even if it is cancelled again
                failure = await writer.interrupt(lambda: run.stopped) or failure
        if records is not None:
            await records.clear()
        if gate.error is not None:
            failure, cancelled = as_mochi_error(gate.error, session.session_id), False
        result = _result(turn, writer, failure=failure, cancelled=cancelled)
        await writer.store_end(run.state_after(result), result.answer)
        return result


@dataclass
class _EventGate:
    """Gate that buffers events until the user message is stored. If that write fails, the gate cancels the turn."""

    run: Run
    buffered: list[ChatEvent] | None  # events that are not published yet, or None after the message is stored
    error: BaseException | None = None  # error of the write

    def publish(self, events: list[ChatEvent]) -> None:
        if self.buffered is None:
            self.run.publish(events)
        else:
            self.buffered += events

    def on_write_end(self, write: "asyncio.Future[None]") -> None:
        self.error = write.exception()
        if self.error is not None:
            self.run.cancel()
            return
        events, self.buffered = self.buffered, None
        if events:
            self.run.publish(events)


def _result(turn: Turn, writer: TurnWriter, **ending: Any) -> TurnResult:
    return TurnResult(
        stored=writer.stored,
        repeated=turn.answerer.repeated,
        first_chunks=writer.first_chunks,
        outcomes=writer.outcomes,
        client_tool_calls=writer.client_tool_calls,
        window=turn.answerer.window,
        **ending,
    )


def as_mochi_error(error: BaseException, session_id: str) -> errors.MochiError:
    """Return the error of a failed turn for clients. Log errors that are not meant for them."""
    if isinstance(error, errors.MochiError):
        return error
    logger.error("Turn failed unexpectedly session_id=%s", session_id, exc_info=error)
    return errors.InternalError()
