"""Engine that validates and executes turns."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace

from mochi_server import errors
from mochi_server.chat.conversation import Conversation
from mochi_server.chat.prompt import last_user_index
from mochi_server.chat.run import Run
from mochi_server.chat.turn import AnswererFactory, Turn, TurnResult, resolve_idempotent
from mochi_server.chat.turn_input import TurnInput
from mochi_server.chat.turn_writer import TurnWriter
from mochi_server.events import ChatEvent

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChatEngine:
    """Executor of turns. ``prepare`` validates an input without writing; ``run`` executes the turn and stores it."""

    models: AnswererFactory
    agents: AnswererFactory

    async def prepare(self, conversation: Conversation, turn_input: TurnInput) -> Turn:
        """Validate the input of a turn against its session and choose its answerer.

        Raises ``MochiError`` if the session cannot be loaded, has another revision or does not fit the input.
        """
        session = await conversation.store.load(conversation.session_id)
        if turn_input.revision not in (None, session.revision):
            raise errors.SessionConflict(session.session_id)
        turn_input, stored_answer = resolve_idempotent(session, turn_input)
        if turn_input.change == "regenerate" and last_user_index(session.history) is None:
            raise errors.EmptyHistory(session.session_id)
        factory = self.models if turn_input.agent is None else self.agents
        answerer = stored_answer or await factory.prepare(conversation, session, turn_input)
        return Turn(conversation, session, turn_input, answerer)

    async def run(self, turn: Turn, run: Run) -> TurnResult:
        """Execute a turn, publish its events in ``run`` and return its result.

        If the turn fails, the result contains the error. On cancellation, the engine stores the partial answer, unless
        the whole answer is stored already. If the server has cancelled the turn, its approval request stays stored.
        """
        try:
            session = await turn.answerer.begin(turn.session)
        except errors.MochiError as error:
            return TurnResult(failure=error)
        writer = TurnWriter(turn.conversation, session, turn.input)
        gate = _EventGate(run)
        failure, cancelled = None, False
        try:
            gate.open_after(writer.begin(turn.input.images))
            turn = replace(turn, input=turn.input.without_data())  # free the images: a turn may take minutes
            if session.metadata.pending_approval is not None:  # an earlier turn was interrupted
                await _discard_approval(turn.conversation)
            await turn.answerer.answer(session, writer, gate.publish)
            await writer.wait_until_stored()
            gate.publish([_result(turn, writer).completed()])
        except asyncio.CancelledError:
            cancelled = not writer.is_complete
            if writer.is_complete:
                gate.publish([_result(turn, writer).completed()])
        except Exception as error:
            failure = _as_mochi_error(error, session.session_id)
        if cancelled or failure is not None:
            with suppress(asyncio.CancelledError):  # the partial turn is stored even if it is cancelled again
                failure = await writer.interrupt(lambda: run.stopped) or failure
                if run.abort_error is None:
                    await _discard_approval(turn.conversation)
        if gate.error is not None:
            failure, cancelled = _as_mochi_error(gate.error, session.session_id), False
        return replace(_result(turn, writer), failure=failure, cancelled=cancelled)


@dataclass
class _EventGate:
    """Gate that buffers events until the user message is stored. If that write fails, the gate cancels the turn."""

    run: Run
    error: BaseException | None = None  # error of the write of the user message
    buffered: list[ChatEvent] | None = field(default_factory=list)
    """Events that are not published yet, or None after the user message is stored."""

    def publish(self, events: list[ChatEvent]) -> None:
        if self.buffered is None:
            self.run.publish(events)
        else:
            self.buffered += events

    def open_after(self, write: "asyncio.Future[None] | None") -> None:
        """Open the gate when the user message is stored. ``write`` is None if the turn has no new message."""
        if write is None:
            self.buffered = None
        else:
            write.add_done_callback(self._on_write_end)

    def _on_write_end(self, write: "asyncio.Future[None]") -> None:
        self.error = write.exception()
        if self.error is not None:
            self.run.cancel()
            return
        events, self.buffered = self.buffered, None
        if events:
            self.run.publish(events)


async def _discard_approval(conversation: Conversation) -> None:
    with suppress(errors.MochiError):
        if (await conversation.store.load(conversation.session_id)).metadata.pending_approval is not None:
            await conversation.store.patch(conversation.session_id, {"pending_approval": None})


def _result(turn: Turn, writer: TurnWriter) -> TurnResult:
    return TurnResult(
        stored=writer.stored,
        repeated=turn.answerer.repeated,
        outcomes=writer.outcomes,
        client_tool_calls=writer.client_tool_calls,
        window=turn.answerer.window,
    )


def _as_mochi_error(error: BaseException, session_id: str) -> errors.MochiError:
    if isinstance(error, errors.MochiError):
        return error
    logger.error("Turn failed unexpectedly session_id=%s", session_id, exc_info=error)
    return errors.InternalError()
