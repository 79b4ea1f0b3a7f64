"""Engine that validates and executes turns."""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace

from mochi_server import errors
from mochi_server.chat.flusher import Flusher
from mochi_server.chat.forced_call import ForcedCallLoop
from mochi_server.chat.idempotency import resolve_idempotent
from mochi_server.chat.model_call import ModelCall
from mochi_server.chat.prompt_messages import last_user_index
from mochi_server.chat.run import Run
from mochi_server.chat.storage_retry import StorageRetry
from mochi_server.chat.tool_loop import ToolLoop, ToolLoopLimits
from mochi_server.chat.toolbox_factory import ToolboxFactory
from mochi_server.chat.turn import Turn, TurnRequest, TurnResult
from mochi_server.chat.turn_writer import TurnWriter
from mochi_server.events import ChatEvent, Publish, TurnWarning
from mochi_server.inference.gateway import ModelGateway
from mochi_server.ollama.types import ModelInfo
from mochi_server.services.selection import SelectionChecker
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import SessionStore

logger = logging.getLogger(__name__)


@dataclass
class ChatEngine:
    """Executor of turns. ``prepare`` validates a request without writing; ``run`` executes the turn and stores it."""

    store: SessionStore
    gateway: ModelGateway
    toolbox_factory: ToolboxFactory
    limits: ToolLoopLimits
    retry: StorageRetry = field(default_factory=StorageRetry)
    selections: SelectionChecker | None = None
    """Checker of the tools and agents that a session enables.

    If the checker is None, turns do not warn about enabled tools and agents that cannot be used.
    """
    _flusher: Flusher = field(init=False)

    def __post_init__(self) -> None:
        self._flusher = Flusher(self.store)

    async def prepare(self, session_id: str, request: TurnRequest) -> Turn:
        """Validate a turn request against its session and model, and return the turn.

        If Ollama fails, the turn contains the error instead of the model. ``run`` then still stores the user message.

        Raises:
            SessionConflict: The session does not have the revision that the request expects.
            MochiError: The session cannot be loaded or has no user message, or the request is invalid.
        """
        session = await self.store.load(session_id)
        if request.revision not in (None, session.revision):
            raise errors.SessionConflict(session_id)
        request = resolve_idempotent(session, request)
        if request.message is None and not request.continues and last_user_index(session.history) is None:
            raise errors.EmptyHistory(session_id)
        if request.model is not None and request.store_model is not None:
            metadata = replace(session.metadata, model=request.model)
            session = ChatSession(metadata, session.history, session.extra)
        toolbox = await self.toolbox_factory.create(session, interactive=request.interactive, tools=request.tools)
        model: ModelInfo | errors.MochiError
        try:
            model = await self.gateway.find_model(session.model)
        except (errors.OllamaUnreachable, errors.OllamaError) as error:
            model = error.with_traceback(None)  # the traceback refers to all data of the turn
        if request.images and isinstance(model, ModelInfo) and not model.can("vision"):
            text = f"images: model {session.model!r} cannot see images. Choose a vision model."
            raise errors.ValidationFailed(text, model=session.model)
        warnings = await self._warnings(session, request)
        return Turn(session, request, request.wrap_toolbox(toolbox), model, warnings)

    async def _discard_approval(self, session_id: str) -> None:
        """Remove the approval request of an interrupted turn from a session. If this fails, do nothing."""
        with suppress(errors.MochiError):
            if (await self.store.load(session_id)).metadata.pending_approval is not None:
                await self.store.patch(session_id, {"pending_approval": None})

    async def _warnings(self, session: ChatSession, request: TurnRequest) -> list[TurnWarning]:
        if self.selections is None or request.tools is not None:
            return []
        metadata = session.metadata
        return (await self.selections.check(metadata.tool_settings, metadata.agent_settings)).warnings

    async def run(self, turn: Turn, run: Run) -> TurnResult:
        """Execute a turn, publish its events in ``run`` and return its result.

        If the turn fails, the result contains the error. On cancellation, the engine stores the partial answer and
        sets ``cancelled`` in the result, unless the whole answer is stored: then the turn is complete. If the server
        has cancelled the turn, for example at a shutdown, the session keeps the turn's approval request.
        """
        writer = TurnWriter(self.store, turn.session, turn.request, flusher=self._flusher, retry=self.retry)
        gate = _EventGate(run)
        model: ModelCall | None = None
        result, failure, cancelled = TurnResult(), None, False
        try:
            writer.begin(turn.request.images, gate.on_write_end)
            if turn.session.metadata.pending_approval is not None:  # an earlier turn was interrupted
                await self._discard_approval(turn.session.session_id)
            turn = replace(turn, request=turn.request.without_data())  # free the images: a turn may take minutes
            if turn.request.responder is not None:
                result = await turn.request.responder(gate.publish)
            else:
                if turn.request.store_model is not None:
                    turn = replace(turn, session=await turn.request.store_model())
                model = self._model_call(turn, writer, gate.publish)
                await self._answer(turn, writer, model, gate.publish)
            await writer.wait_until_stored()
            failure = result.failure
        except asyncio.CancelledError:
            cancelled = not writer.is_complete
            if writer.is_complete:
                gate.publish([_result(writer, model).completed()])
        except Exception as error:
            failure = _as_mochi_error(error, turn.session.session_id)
        if cancelled or failure is not None:
            with suppress(asyncio.CancelledError):  # the partial turn is stored even if it is cancelled again
                failure = await writer.interrupt(lambda: run.stopped) or failure
                if run.abort_error is None:
                    await self._discard_approval(turn.session.session_id)
        if gate.error is not None:
            failure, cancelled = _as_mochi_error(gate.error, turn.session.session_id), False
        return replace(_result(writer, model, result), failure=failure, cancelled=cancelled)

    def _model_call(self, turn: Turn, writer: TurnWriter, publish: Publish) -> ModelCall:
        if isinstance(turn.model, errors.MochiError):
            raise turn.model
        generation = turn.request.generation
        return ModelCall(self.gateway, writer, publish, turn.model, turn.session, generation)

    async def _answer(self, turn: Turn, writer: TurnWriter, model: ModelCall, publish: Publish) -> None:
        if warnings := [*turn.warnings, *model.warnings(turn.toolbox.schemas())]:
            publish(warnings)
        if turn.request.images:
            await writer.wait_until_stored()  # the prompt is built from the stored images
        loop = ForcedCallLoop if turn.request.must_call else ToolLoop
        parallel_calls = turn.request.parallel_calls
        await loop(model, writer, turn.toolbox, self.limits, publish, parallel_calls=parallel_calls).run()
        await model.save_window(self.store)
        publish([_result(writer, model).completed()])


@dataclass
class _EventGate:
    """Gate that buffers events until the user message is stored. If that write fails, the gate cancels the turn."""

    run: Run
    error: Exception | None = None
    """Error of the write of the user message."""
    buffered: list[ChatEvent] | None = field(default_factory=list)
    """Events that are not published yet, or None after the user message is stored."""

    def publish(self, events: list[ChatEvent]) -> None:
        if self.buffered is None:
            self.run.publish(events)
        else:
            self.buffered += events

    def on_write_end(self, error: Exception | None) -> None:
        if error is not None:
            self.error = error
            self.run.cancel()
            return
        events, self.buffered = self.buffered, None
        if events:
            self.run.publish(events)


def _result(writer: TurnWriter, model: ModelCall | None, result: TurnResult = TurnResult()) -> TurnResult:  # noqa: B008 - frozen
    """Return ``result`` with the messages, the tool outcomes and the context window of the turn so far."""
    return replace(
        result,
        stored=[*writer.stored, *result.stored],
        outcomes=writer.outcomes,
        handed_back=[*result.handed_back, *writer.handed_back],
        window=model.window if model is not None else None,
    )


def _as_mochi_error(error: Exception, session_id: str) -> errors.MochiError:
    if isinstance(error, errors.MochiError):
        return error
    logger.error("Turn failed unexpectedly session_id=%s", session_id, exc_info=error)
    return errors.InternalError()
