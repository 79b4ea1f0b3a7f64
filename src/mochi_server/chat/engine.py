"""A turn from its request to its stored answer. ``prepare`` may raise and writes nothing; ``run`` writes."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from mochi_server.chat.history import last_user_index
from mochi_server.chat.loop import Conversation, Limits
from mochi_server.chat.model import ChatModel
from mochi_server.chat.repeated import unless_said
from mochi_server.chat.toolboxes import Toolboxes
from mochi_server.chat.transcript import Checkpoints, Transcript
from mochi_server.chat.turn import Turn, TurnRequest
from mochi_server.chat.write_retry import WriteRetry
from mochi_server.errors import (
    EmptyHistory,
    InternalError,
    MochiError,
    ModelNotFound,
    OllamaError,
    OllamaUnreachable,
    SessionConflict,
    ValidationFailed,
)
from mochi_server.events import ChatEvent, TurnError
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.types import ModelInfo
from mochi_server.services.context_window import WindowDecision, WindowRegistry
from mochi_server.sessions.session import now
from mochi_server.sessions.store import SessionStore

logger = logging.getLogger(__name__)


class ChatEngine:
    """Turns of chats with one Ollama."""

    def __init__(
        self,
        store: SessionStore,
        client: AsyncOllamaClient,
        windows: WindowRegistry,
        toolboxes: Toolboxes,
        limits: Limits,
        *,
        retry: WriteRetry | None = None,
    ) -> None:
        self._store = store
        self._client = client
        self._windows = windows
        self._toolboxes = toolboxes
        self._limits = limits
        self._checkpoints = Checkpoints()
        self._retry = retry or WriteRetry()

    def stop_retrying(self) -> None:
        """Repeat no write from now on, because the process ends."""
        self._retry.close()

    def expect(self) -> None:
        """A turn is about to be prepared: ask Ollama meanwhile what each of them needs to know."""
        self._client.look_ahead()

    async def prepare(self, session_id: str, request: TurnRequest) -> Turn:
        """Check session and model. Raises what a client should get as an HTTP status.

        What Ollama does wrong is no reason to refuse: the user's message is worth storing all the same.
        """
        session = await self._store.load(session_id)
        if request.revision not in (None, session.revision):
            raise SessionConflict(session_id)
        request = unless_said(session, request)
        if request.message is None and not request.continues and last_user_index(session.history) is None:
            raise EmptyHistory(session_id)
        toolbox = await self._toolboxes.of(session, interactive=request.interactive, tools=request.tools)
        turn = Turn(session, request, request.offer(toolbox))
        try:
            turn.model = await self._client.find_model(session.model)
        except (OllamaUnreachable, OllamaError) as error:
            turn.model_failure = error
        if request.images and turn.model is not None and not turn.model.can("vision"):
            raise ValidationFailed(f"images: model {session.model!r} cannot see images.", model=session.model)
        return turn

    async def run(self, turn: Turn) -> AsyncGenerator[list[ChatEvent], None]:
        """The turn's events. Failures are events, too, and remembered in ``turn.failure``.

        When the turn is cancelled, what the model said so far is stored before the cancellation goes on.
        """
        transcript = Transcript(self._store, turn, self._checkpoints, self._retry)
        try:
            transcript.begin()
            instead = turn.request.instead
            async with aclosing(instead(turn) if instead else self._answer(turn, transcript)) as batches:
                async for batch in batches:
                    await transcript.begun()
                    yield batch
        except Exception as error:
            turn.failure = _known(error)
            await _interrupt(turn, transcript)
            yield [TurnError.of(turn.failure)]
        except (asyncio.CancelledError, GeneratorExit):
            await _interrupt(turn, transcript)
            raise

    async def _answer(self, turn: Turn, transcript: Transcript) -> AsyncGenerator[list[ChatEvent], None]:
        session = turn.session
        info = _model_of(turn)
        model = ChatModel(
            self._client, self._windows, self._store, info=info, session=session, wishes=turn.request.wishes
        )
        if warnings := model.warnings(turn.toolbox.schemas()):
            yield warnings
        if turn.request.images:
            await transcript.begun()  # the model is sent them as they are stored
        conversation = Conversation(model, transcript, turn.toolbox, self._limits)
        turn.outcomes, turn.handed_back = conversation.outcomes, conversation.handed_back
        try:
            async with aclosing(conversation.events()) as batches:
                async for batch in batches:
                    yield batch
        finally:
            turn.window = model.window
        if turn.window is not None:
            await self._remember_window(turn, turn.window)
        yield [turn.completed()]

    async def _remember_window(self, turn: Turn, decision: WindowDecision) -> None:
        before = turn.session.metadata.context_window_config
        after = self._windows.adjusted(before, decision, now())
        if after == before:
            return
        session = await self._store.load(turn.session.session_id)
        if session.metadata.context_window_config == before:  # else somebody set it during the turn, and that stays
            await self._store.patch(session.session_id, {"context_window_config": after})


async def _interrupt(turn: Turn, transcript: Transcript) -> None:
    """Store what there is of a turn. If that fails, the failure is what the client has to know."""
    try:
        await transcript.interrupt()
    except MochiError as error:
        logger.error("The answer could not be stored session_id=%s: %s", turn.session.session_id, error.message)
        turn.failure = error


def _model_of(turn: Turn) -> ModelInfo:
    if turn.model is None:
        raise turn.model_failure or ModelNotFound(turn.session.model)
    return turn.model


def _known(error: Exception) -> MochiError:
    if isinstance(error, MochiError):
        return error
    logger.error("A turn failed unexpectedly", exc_info=error)
    return InternalError()
