"""Answers by the model of a session."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from mochi_server import errors
from mochi_server.chat.answerer import Answerer
from mochi_server.chat.conversation import Conversation
from mochi_server.chat.forced_call import ForcedCallLoop
from mochi_server.chat.model_call import ModelCall
from mochi_server.chat.tool_loop import ToolLoop, ToolLoopLimits
from mochi_server.chat.toolbox_factory import ToolboxFactory
from mochi_server.chat.turn_input import TurnInput
from mochi_server.chat.turn_writer import TurnWriter
from mochi_server.events import Publish, TurnWarning
from mochi_server.inference.gateway import ModelGateway
from mochi_server.inference.windows import WindowDecision
from mochi_server.ollama.payloads import qualified_name
from mochi_server.ollama.types import ModelInfo
from mochi_server.services.sessions import SelectionChecker, SessionService
from mochi_server.sessions.history_edits import edited
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import Message
from mochi_server.tools.toolbox import Toolbox


@dataclass(frozen=True)
class ModelAnswers:
    """Factory of the answers of models."""

    gateway: ModelGateway
    toolboxes: ToolboxFactory
    limits: ToolLoopLimits
    sessions: SessionService
    selections: SelectionChecker
    """Checker of the tools and agents that a session enables."""

    async def prepare(self, conversation: Conversation, session: ChatSession, turn_input: TurnInput) -> "ModelAnswerer":
        """Check the model, the tools and the edited message of a turn, and return its answerer.

        If Ollama fails, the answerer contains the error instead of the model. The turn then still stores the user
        message.

        Raises:
            InvalidMessageIndex: The message to edit is not a user message.
            MochiError: The model is not installed, or it cannot see the images of the message.
        """
        if turn_input.edit_index is not None:
            edited(session, turn_input.edit_index, turn_input.text or "")
        if turn_input.model is not None and conversation.kind == "session":
            metadata = replace(session.metadata, model=turn_input.model)
            session = ChatSession(metadata, session.history, session.extra)
        toolbox = await self.toolboxes.create(conversation, session, turn_input)
        model: ModelInfo | errors.MochiError
        try:
            model = await self.gateway.find_model(session.model)
        except (errors.OllamaUnreachable, errors.OllamaError) as error:
            model = error.with_traceback(None)  # the traceback refers to all data of the turn
        if turn_input.images and isinstance(model, ModelInfo) and not model.has_capability("vision"):
            text = f"images: model {session.model!r} cannot see images. Choose a vision model."
            raise errors.ValidationFailed(text, model=session.model)
        warnings: Sequence[TurnWarning] = ()
        if turn_input.tools.names is None:
            enabled = session.metadata
            warnings = (await self.selections.check(enabled.tool_settings, enabled.agent_settings)).warnings
        return ModelAnswerer(self, conversation, turn_input.without_data(), toolbox, model, warnings)


@dataclass(eq=False)
class ModelAnswerer(Answerer):
    """Answerer that calls the model of the session and runs its tool calls."""

    services: ModelAnswers
    conversation: Conversation
    input: TurnInput
    """Input of the turn, without the bytes of its images."""
    toolbox: Toolbox
    model: ModelInfo | errors.MochiError
    """Model that answers, or the error of its lookup."""
    warnings: Sequence[TurnWarning]
    """A warning for each enabled tool, tool group and agent that cannot be used."""
    repeated: Sequence[Message] = ()
    _session: ChatSession | None = None
    _call: ModelCall | None = field(default=None, init=False)

    @property
    def window(self) -> WindowDecision | None:
        return None if self._call is None else self._call.window

    async def begin(self, session: ChatSession) -> ChatSession:
        if self.input.edit_index is not None:
            session = await self.services.sessions.edit(session, self.input.edit_index, self.input.text or "")
        self._session = session
        return session

    async def answer(self, writer: TurnWriter, publish: Publish) -> None:
        assert self._session is not None  # noqa: S101 - the engine calls `begin` first
        session, wanted = self._session, self.input.model
        if wanted is not None and qualified_name(wanted) != qualified_name(session.model):
            session = await self.services.sessions.patch(session.session_id, {"model": wanted})
        if isinstance(self.model, errors.MochiError):
            raise self.model
        services, generation, tools = self.services, self.input.generation, self.input.tools
        self._call = call = ModelCall(services.gateway, writer, publish, self.model, session, generation)
        if warnings := [*self.warnings, *call.warnings(self.toolbox.schemas())]:
            publish(warnings)
        if self.input.images:
            await writer.wait_until_stored()  # the prompt is built from the stored images
        loop = ForcedCallLoop if tools.must_call else ToolLoop
        await loop(call, writer, self.toolbox, services.limits, publish, parallel_calls=tools.parallel).run()
        await call.save_window(self.conversation.store)
