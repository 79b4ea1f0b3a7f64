"""Answers by models: the checks before a turn, and the tools that the model may call."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from mochi_server import errors
from mochi_server.chat.approvals import ApprovalService, SessionApprover
from mochi_server.chat.conversation import Conversation
from mochi_server.chat.model_call import ModelCall, save_window
from mochi_server.chat.parked_record import ParkedTurn, RecordWriter, turn_messages
from mochi_server.chat.tool_loop import CheckAnswer, ForcedCallLoop, ToolLoop, ToolLoopLimits
from mochi_server.chat.turn import Answerer
from mochi_server.chat.turn_input import ToolSelection, TurnInput
from mochi_server.chat.turn_writer import TurnWriter
from mochi_server.events import Publish, TurnWarning
from mochi_server.inference.gateway import ModelGateway
from mochi_server.inference.waiting import Ticket
from mochi_server.ollama.payloads import qualified_name
from mochi_server.ollama.types import ModelInfo
from mochi_server.services.sessions import SessionService
from mochi_server.sessions.session import ChatSession, edited
from mochi_server.sessions.types import ToolSettings
from mochi_server.tools.discovery import Tool
from mochi_server.tools.execution import ToolExecutionService
from mochi_server.tools.registry import ToolRegistry
from mochi_server.tools.toolbox import ClientToolbox, FunctionToolbox, JoinedToolbox, LimitedToolbox, Toolbox, failed

ToolboxSource = Callable[[ChatSession, SessionApprover], Awaitable[Toolbox | None]]
"""Function that returns a toolbox with additional tools, or None. Those tools request approval from the approver."""


def _select(own: Toolbox, selected: ToolSelection) -> Toolbox:
    """Add the client's tools, which take precedence. Raises ``ValidationFailed`` if a required tool is missing."""
    if not selected.may_call:
        return LimitedToolbox(own, names=())
    toolbox = JoinedToolbox(ClientToolbox(selected.client_tools), own) if selected.client_tools else own
    if selected.only is not None:
        toolbox = LimitedToolbox(toolbox, names=selected.only)
    names = {schema["function"]["name"] for schema in toolbox.schemas()}
    missing = [f"there is no tool {name!r}" for name in sorted((selected.only or frozenset()) - names)]
    if missing or (selected.must_call and not names):
        problem = missing[0] if missing else "the request has no tools"
        raise errors.ValidationFailed.at("tool_choice", f"{problem}; add one to `tools`")
    return toolbox


@dataclass(frozen=True)
class ModelAnswererFactory:
    gateway: ModelGateway
    registry: ToolRegistry
    execution: ToolExecutionService
    approvals: ApprovalService
    agent_tools: ToolboxSource
    limits: ToolLoopLimits
    sessions: SessionService
    check_answer: CheckAnswer
    tools_of_agent: Callable[[str], Awaitable[Mapping[str, Tool]]]

    async def prepare(
        self,
        conversation: Conversation,
        session: ChatSession,
        turn_input: TurnInput,
        record: ParkedTurn | None = None,
    ) -> "ModelAnswerer":
        """Check the model, the tools and the edited message. An error of Ollama is raised when the turn answers.

        ``record`` is that of the parked turn to continue, if any. A full queue or a missing model does not refuse it,
        but it cannot continue while Ollama does not respond.
        """
        ticket = self.gateway.admit() if record is None else Ticket()
        if turn_input.edit_index is not None:
            edited(session, turn_input.edit_index, turn_input.text or "")
        if turn_input.model is not None and conversation.kind == "session":
            metadata = replace(session.metadata, model=turn_input.model)
            session = ChatSession(metadata, session.history, session.extra)
        if record is not None and record.source is not None:
            await self.registry.extra_source.wait_for(record.source)
        agent = None if record is None else record.agent
        is_missing = agent is not None and not await self.tools_of_agent(agent.name)
        records = RecordWriter(conversation, turn_input.without_data(), record, is_missing)
        toolbox = await self._toolbox(session, turn_input, records)
        model: ModelInfo | errors.MochiError
        try:
            model = await self.gateway.pinned(session.metadata.ollama_host).find_model(session.model)
        except (errors.OllamaUnreachable, errors.OllamaError, errors.ModelNotFound) as error:
            # A missing model ends a parked turn. If Ollama fails, the turn can continue later.
            if isinstance(error, errors.ModelNotFound) == (record is None):
                raise
            model = error.with_traceback(None)  # the traceback refers to all data of the turn
        if turn_input.images and isinstance(model, ModelInfo) and not model.has_capability("vision"):
            text = f"images: model {session.model!r} cannot see images. Choose a vision model."
            raise errors.ValidationFailed(text, model=session.model)
        warnings: Sequence[TurnWarning] = ()
        if turn_input.tools.names is None:
            enabled = session.metadata
            warnings = (await self.sessions.selection(enabled.tool_settings, enabled.agent_settings)).warnings
        return ModelAnswerer(self, turn_input.without_data(), toolbox, model, warnings, ticket, records)

    async def find_tool(self, session: ChatSession, record: ParkedTurn) -> Tool | None:
        """Return the tool that a parked turn of ``session`` calls, or None if the tool no longer exists."""
        if record.source is not None:
            await self.registry.extra_source.wait_for(record.source)
        if record.agent is not None:
            tools = await self.tools_of_agent(record.agent.name)
        else:
            tools = await self._enabled(session, record.input.tools.names)
        return tools.get(record.tool_name)

    async def _toolbox(self, session: ChatSession, turn_input: TurnInput, records: RecordWriter) -> Toolbox:
        approver, selected = SessionApprover(self.approvals, records, turn_input.interactive), turn_input.tools

        async def current_tools() -> Mapping[str, Tool]:
            return await self._enabled(await records.conversation.load(), selected.names)

        enabled = await self._enabled(session, selected.names)
        own = FunctionToolbox(enabled, self.execution, approver, current_tools)
        agents = await self.agent_tools(session, approver)
        # Agents take precedence over session tools with the same name.
        return _select(own if agents is None else JoinedToolbox(agents, own), selected)

    async def _enabled(self, session: ChatSession, tools: Sequence[str] | None) -> Mapping[str, Tool]:
        settings = session.metadata.tool_settings if tools is None else ToolSettings(tools=list(tools))
        if not (settings.tools or settings.tool_group):
            return {}
        return (await self.registry.catalogue()).selected(settings.tools, settings.tool_group)


@dataclass(eq=False)
class ModelAnswerer(Answerer):
    factory: ModelAnswererFactory
    input: TurnInput  # input of the turn, without the bytes of its images
    toolbox: Toolbox
    model: ModelInfo | errors.MochiError  # model that answers, or the error of its lookup
    warnings: Sequence[TurnWarning]  # a warning for each enabled tool, tool group and agent that cannot be used
    ticket: Ticket
    records: RecordWriter

    async def begin(self, session: ChatSession) -> ChatSession:
        if self.input.edit_index is not None:
            session = await self.factory.sessions.edit(session, self.input.edit_index, self.input.text or "")
        return session

    async def answer(self, session: ChatSession, writer: TurnWriter, publish: Publish) -> None:
        self.records.begin(writer)
        wanted = self.input.model
        if wanted is not None and qualified_name(wanted) != qualified_name(session.model):
            session = await self.factory.sessions.patch(session.session_id, {"model": wanted})
        if self.records.continued is not None:
            writer.resume(turn_messages(session, self.records.continued))
            if writer.is_complete:  # the server stopped after the last message
                return
        if isinstance(self.model, errors.MochiError):
            for call in writer.open_calls:
                decided_by, text = self.records.decided_by(call), f"This call was not run: {self.model.message}"
                outcome = self.records.known_outcome(call) or failed(call, text, decided_by=decided_by)
                await writer.add_result(call, outcome)
                publish([outcome.event()])
            raise self.model
        factory, generation, tools = self.factory, self.input.generation, self.input.tools
        gateway = factory.gateway.pinned(session.metadata.ollama_host)
        model_call = ModelCall(gateway, writer, publish, self.model, session, generation, self.ticket)
        if warnings := [*self.warnings, *model_call.warnings(self.toolbox.schemas())]:
            publish(warnings)
        if self.input.new_images:
            await writer.wait_until_stored()  # the prompt is built from the stored images
        kind = ForcedCallLoop if tools.must_call else ToolLoop
        loop = kind(model_call, writer, self.toolbox, factory.limits, publish, parallel_calls=tools.parallel)
        loop.resumed_calls, loop.known_outcome = writer.open_calls, self.records.known_outcome
        loop.check_answer = factory.check_answer
        try:
            await loop.run()
        finally:
            self.window = model_call.allocation.decision
        await save_window(model_call.allocation, session, writer.conversation.store)
