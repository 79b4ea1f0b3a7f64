"""Engine that validates and runs turns. ``prepare`` may raise and writes nothing; ``run`` writes."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import anyio

from mochi_server import errors
from mochi_server.chat.flush_schedule import FlushSchedule
from mochi_server.chat.idempotency import resolve_idempotent
from mochi_server.chat.model_call import ModelCall
from mochi_server.chat.prompt_messages import last_user_index
from mochi_server.chat.tool_loop import ToolLoop, ToolLoopLimits
from mochi_server.chat.toolbox_factory import ToolboxFactory
from mochi_server.chat.turn import Turn, TurnRequest, TurnResult
from mochi_server.chat.turn_writer import TurnWriter
from mochi_server.chat.write_retry import WriteRetry
from mochi_server.events import ChatEvent, Publish
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.services.context_window import WindowRegistry
from mochi_server.sessions.store import SessionStore

logger = logging.getLogger(__name__)


@dataclass
class ChatEngine:
    """Runs the turns of one server with one Ollama."""

    store: SessionStore
    client: AsyncOllamaClient
    windows: WindowRegistry
    toolbox_factory: ToolboxFactory
    limits: ToolLoopLimits
    retry: WriteRetry = field(default_factory=WriteRetry)
    _schedule: FlushSchedule = field(default_factory=FlushSchedule)

    def stop_retrying(self) -> None:
        """Stop retrying failed writes, because the process is shutting down."""
        self.retry.close()

    def prefetch(self) -> None:
        """Ask Ollama in the background what the next turn needs to know."""
        self.client.prefetch_loaded()

    async def prepare(self, session_id: str, request: TurnRequest) -> Turn:
        """Validate a request against its session and model. Raises what a client gets as an HTTP status.

        A failure of Ollama does not raise: the message of the user is stored even then.
        """
        session = await self.store.load(session_id)
        if request.revision not in (None, session.revision):
            raise errors.SessionConflict(session_id)
        request = resolve_idempotent(session, request)
        if request.message is None and not request.continues and last_user_index(session.history) is None:
            raise errors.EmptyHistory(session_id)
        toolbox = await self.toolbox_factory.create(session, interactive=request.interactive, tools=request.tools)
        model, failure = None, None
        try:
            model = await self.client.find_model(session.model)
        except (errors.OllamaUnreachable, errors.OllamaError) as error:
            failure = error
        if request.images and model is not None and not model.can("vision"):
            raise errors.ValidationFailed(f"images: model {session.model!r} cannot see images.", model=session.model)
        return Turn(session, request, request.wrap_toolbox(toolbox), model, failure)

    async def run(self, turn: Turn, publish: Publish, is_stopped: Callable[[], bool] = lambda: False) -> TurnResult:
        """Run a turn, push its events to ``publish`` and return its result. A failure is in the result, not raised.

        A turn that is cancelled stores its partial answer, and its result is ``cancelled``. ``is_stopped`` returns
        whether a client has stopped the turn.
        """
        writer = TurnWriter(self.store, turn.session, turn.request, schedule=self._schedule, retry=self.retry)
        scope = anyio.CancelScope()
        gate = _EventGate(publish, scope)
        model: ModelCall | None = None
        result, failure, cancelled = TurnResult(), None, False
        try:
            with scope:
                writer.begin(turn.request.images, gate.open)
                turn = replace(turn, request=turn.request.without_data())  # a turn may take minutes
                if turn.request.responder is not None:
                    result = await turn.request.responder(gate.publish)
                else:
                    model = self._model_call(turn, writer, gate.publish)
                    await self._answer(turn, writer, model, gate.publish)
            await writer.wait_until_stored()
            failure = result.failure
        except asyncio.CancelledError:
            cancelled = True
        except Exception as error:
            failure = _as_mochi_error(error)
        if cancelled or failure is not None:
            with suppress(asyncio.CancelledError):  # cancelled again: the partial turn is stored all the same
                failure = await writer.interrupt(is_stopped) or failure
        return replace(_result(writer, model, result), failure=failure, cancelled=cancelled)

    def _model_call(self, turn: Turn, writer: TurnWriter, publish: Publish) -> ModelCall:
        if turn.model is None:
            raise turn.model_failure or errors.ModelNotFound(turn.session.model)
        return ModelCall(
            self.client,
            self.windows,
            self.store,
            publish,
            model=turn.model,
            session=turn.session,
            history=writer.history,
            generation=turn.request.generation,
        )

    async def _answer(self, turn: Turn, writer: TurnWriter, model: ModelCall, publish: Publish) -> None:
        if warnings := model.warnings(turn.toolbox.schemas()):
            publish(warnings)
        if turn.request.images:
            await writer.wait_until_stored()  # the prompt is built from the stored images
        await ToolLoop(model, writer, turn.toolbox, self.limits, publish).run()
        await model.window.save(self.store)
        publish([_result(writer, model).completed()])


class _EventGate:
    """Holds events back until the message of the user is stored. If it cannot be stored, the turn is cancelled."""

    def __init__(self, publish: Publish, scope: anyio.CancelScope) -> None:
        self._publish = publish
        self._scope = scope
        self._is_open = False
        self._held: list[ChatEvent] = []

    def publish(self, events: list[ChatEvent]) -> None:
        if self._is_open:
            self._publish(events)
        else:
            self._held += events

    def open(self, is_stored: bool) -> None:
        if not is_stored:
            self._scope.cancel()
            return
        self._is_open = True
        if self._held:
            self._publish(self._held)


def _result(writer: TurnWriter, model: ModelCall | None, result: TurnResult = TurnResult()) -> TurnResult:  # noqa: B008 - frozen
    """Add what the turn has stored so far to the result of a responder."""
    return replace(
        result,
        stored=[*writer.stored, *result.stored],
        outcomes=writer.outcomes,
        handed_back=writer.handed_back,
        window=model.window.decision if model is not None else None,
    )


def _as_mochi_error(error: Exception) -> errors.MochiError:
    if isinstance(error, errors.MochiError):
        return error
    logger.error("A turn failed unexpectedly", exc_info=error)
    return errors.InternalError()
