"""Answers by the model of a session, and the tools that it may call."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from mochi_server import errors
from mochi_server.chat.approvals import ApprovalService, SessionApprover
from mochi_server.chat.conversation import Conversation
from mochi_server.chat.model_call import ModelCall
from mochi_server.chat.tool_loop import ForcedCallLoop, ToolLoop, ToolLoopLimits
from mochi_server.chat.turn import Answerer
from mochi_server.chat.turn_input import ToolSelection, TurnInput
from mochi_server.chat.turn_writer import TurnWriter
from mochi_server.events import Publish, TurnWarning
from mochi_server.inference.gateway import ModelGateway
from mochi_server.inference.windows import WindowDecision
from mochi_server.ollama.payloads import qualified_name
from mochi_server.ollama.types import ModelInfo
from mochi_server.services.sessions import SelectionChecker, SessionService
from mochi_server.sessions.history_edits import edited
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import Message, ToolSettings
from mochi_server.tools.discovery import Tool
from mochi_server.tools.execution import ToolExecutionService
from mochi_server.tools.registry import ToolRegistry
from mochi_server.tools.toolbox import ClientToolbox, FunctionToolbox, JoinedToolbox, LimitedToolbox, Toolbox

ToolboxSource = Callable[[ChatSession, SessionApprover], Awaitable[Toolbox | None]]
"""Function that returns a toolbox with additional tools, or None. Those tools request approval from the approver."""


@dataclass
class ToolboxFactory:
    """Factory of toolboxes. Tools of ``agents`` take precedence over session tools with the same name."""

    registry: ToolRegistry
    execution: ToolExecutionService
    approvals: ApprovalService
    agents: ToolboxSource

    async def create(self, conversation: Conversation, session: ChatSession, turn_input: TurnInput) -> Toolbox:
        """Create the toolbox of a turn. Raises ``ValidationFailed`` if a tool that the turn must call is missing."""
        selected = turn_input.tools
        approver = SessionApprover(self.approvals, conversation, turn_input.interactive)
        own = FunctionToolbox(
            await self._enabled(session, selected.names),
            self.execution,
            approver,
            partial(self._current, approver, selected.names),
        )
        agents = await self.agents(session, approver)
        return _select(own if agents is None else JoinedToolbox(agents, own), selected)

    async def _current(self, approver: SessionApprover, tools: Sequence[str] | None) -> Mapping[str, Tool]:
        return await self._enabled(await approver.conversation.load(), tools)

    async def _enabled(self, session: ChatSession, tools: Sequence[str] | None) -> Mapping[str, Tool]:
        settings = session.metadata.tool_settings if tools is None else ToolSettings(tools=list(tools))
        if not (settings.tools or settings.tool_group):
            return {}
        return (await self.registry.catalogue()).selected(settings.tools, settings.tool_group)


def _select(own: Toolbox, selected: ToolSelection) -> Toolbox:
    """Return the client's tools and the tools of ``own``, limited by ``selected``. Client tools take precedence."""
    if not selected.may_call:
        return LimitedToolbox(own, names=())
    toolbox = JoinedToolbox(ClientToolbox(selected.client_tools), own) if selected.client_tools else own
    if selected.only is not None:
        toolbox = LimitedToolbox(toolbox, names=[selected.only])
    if selected.must_call and not toolbox.schemas():
        missing = f"there is no tool {selected.only!r}" if selected.only is not None else "the request has no tools"
        raise errors.ValidationFailed.at("tool_choice", f"{missing}; add one to `tools`")
    return toolbox


@dataclass(frozen=True)
class ModelAnswers:
    gateway: ModelGateway
    toolboxes: ToolboxFactory
    limits: ToolLoopLimits
    sessions: SessionService
    selections: SelectionChecker

    async def prepare(self, conversation: Conversation, session: ChatSession, turn_input: TurnInput) -> "ModelAnswerer":
        """Check the model, the tools and the edited message of a turn. Raises ``MochiError`` for invalid ones.

        If Ollama fails, the answerer contains the error instead of the model. The turn still stores the user message.
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
    services: ModelAnswers
    conversation: Conversation
    input: TurnInput  # input of the turn, without the bytes of its images
    toolbox: Toolbox
    model: ModelInfo | errors.MochiError  # model that answers, or the error of its lookup
    warnings: Sequence[TurnWarning]  # a warning for each enabled tool, tool group and agent that cannot be used
    repeated: Sequence[Message] = ()
    _call: ModelCall | None = field(default=None, init=False)

    @property
    def window(self) -> WindowDecision | None:
        return None if self._call is None else self._call.allocation.decision

    async def begin(self, session: ChatSession) -> ChatSession:
        if self.input.edit_index is not None:
            session = await self.services.sessions.edit(session, self.input.edit_index, self.input.text or "")
        return session

    async def answer(self, session: ChatSession, writer: TurnWriter, publish: Publish) -> None:
        wanted = self.input.model
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
