"""Preparation of turns: the checks of a request, which write nothing, and the tools that the model
may call.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from mochi_server import errors
from mochi_server.chat.approvals import ApprovalService, SessionApprover
from mochi_server.chat.prompt import Prompt
from mochi_server.chat.run import Run
from mochi_server.chat.steps import TurnRules
from mochi_server.chat.turn import PreparedTurn
from mochi_server.chat.turn_input import ToolSelection, TurnInput, restored_input
from mochi_server.chat.writer import TurnWriter
from mochi_server.constants import MIN_ANSWER_TOKENS
from mochi_server.errors import MochiError
from mochi_server.events import TurnWarning
from mochi_server.inference.gateway import ModelGateway
from mochi_server.inference.session_window import turn_allocation
from mochi_server.ollama.types import ModelInfo
from mochi_server.services.sessions import SessionService, check_vision
from mochi_server.sessions.session import ChatSession, edited, has_stale_checkpoint
from mochi_server.sessions.turn import Approval, StoredTurn
from mochi_server.sessions.types import ToolSettings
from mochi_server.tools.discovery import Tool
from mochi_server.tools.execution import ToolExecutionService
from mochi_server.tools.registry import ToolRegistry
from mochi_server.tools.toolbox import (
    ClientToolbox,
    FunctionToolbox,
    JoinedToolbox,
    LimitedToolbox,
    Toolbox,
)
from mochi_server.util.schema_checks import SchemaChecks


class AgentSource(Protocol):
    """Source of the agents that the turns of sessions can call."""

    async def toolbox(self, session: ChatSession, approver: SessionApprover) -> Toolbox | None:
        """Return the toolbox that calls the agents of a session, or None if it has none and no call
        of an agent has waited.

        The tool calls of the agents request approval from ``approver``.
        """

    async def tools_of(self, name: str) -> Mapping[str, Tool] | None:
        """Return the tools of an agent by name, or None if the agent does not exist."""
        raise NotImplementedError


class TurnPreparation:
    """Preparation of the turns of one kind."""

    async def prepare(self, run: Run, session: ChatSession, turn_input: TurnInput) -> PreparedTurn:
        """Check the request of a new turn without writing. Raises ``MochiError``."""
        raise NotImplementedError


@dataclass(frozen=True)
class ModelTurns(TurnPreparation):
    """Preparation of turns that a model answers."""

    gateway: ModelGateway
    registry: ToolRegistry
    execution: ToolExecutionService
    approvals: ApprovalService
    agents: AgentSource
    rules: TurnRules
    sessions: SessionService
    checks: SchemaChecks
    continues_background_turns: bool = True

    async def prepare(self, run: Run, session: ChatSession, turn_input: TurnInput) -> PreparedTurn:
        """Check the model, the tools, the edited message, and the images and files.

        Raises ``ModelNotFound`` and ``OllamaBusy`` too. Another error of Ollama takes the place of
        the model, and is raised when the turn answers.
        """
        ticket = self.gateway.admit()  # counts while it is referenced
        opening = None
        drops_checkpoint = False
        if turn_input.edit_index is not None:
            opening = edited(session, turn_input.edit_index, turn_input.text or "")
            unchanged = session.history.prefix(turn_input.edit_index)
            drops_checkpoint = has_stale_checkpoint(session.metadata, unchanged)
            session = session.changed(opening)
        conversation = run.conversation
        is_background = turn_input.on_disconnect == "continue" and conversation.kind == "session"
        writer = TurnWriter(
            conversation,
            session,
            turn_input,
            run.run_id,
            opening=opening,
            survives=is_background and self.continues_background_turns,
        )
        name = session.model
        if turn_input.model is not None and conversation.kind == "session":
            name = turn_input.model
        gateway, model = await self._find_model(session, name)
        if isinstance(model, errors.ModelNotFound):
            raise model
        if turn_input.images and not isinstance(model, MochiError):
            check_vision(model, name)
        prepared = await self._prepared(
            run, session, turn_input, writer, gateway=gateway, model=model
        )
        _check_choice(prepared.toolbox, turn_input.tools)
        if turn_input.attachments and not isinstance(model, MochiError):
            _check_attachments(prepared, model)
        return replace(prepared, ticket=ticket, drops_checkpoint=drops_checkpoint)

    async def prepare_continued(
        self, run: Run, session: ChatSession, turn: StoredTurn
    ) -> PreparedTurn:
        """Check a stored turn that continues. A full queue does not refuse it.

        If its model is missing, the turn fails when it continues. Raises ``OllamaUnreachable`` or
        ``OllamaError`` while Ollama does not respond, so that the turn continues later. Raises
        ``ValueError`` if the stored turn is invalid.
        """
        if turn.first > len(session.history):
            raise ValueError("first: the session has fewer messages")
        if turn.approval is not None and turn.approval.source is not None:
            await self.registry.extra_source.wait_for(turn.approval.source)
        conversation = run.conversation
        writer = TurnWriter(conversation, session, run.input, turn.run_id, continued=turn)
        # If the request named another model, the start of the turn has stored it with the session.
        gateway, model = await self._find_model(session, session.model)
        if isinstance(model, MochiError) and not isinstance(model, errors.ModelNotFound):
            raise model
        return await self._prepared(run, session, run.input, writer, gateway=gateway, model=model)

    async def find_tool(
        self, session: ChatSession, turn: StoredTurn, approval: Approval
    ) -> Tool | None:
        """Return the tool for which a stored turn requests approval, or None if the tool no longer
        exists.
        """
        if approval.source is not None:
            await self.registry.extra_source.wait_for(approval.source)
        if approval.agent is not None:
            tools = await self.agents.tools_of(approval.agent.name) or {}
        else:
            tools = await self._enabled(session, restored_input(turn.input or {}).tools.names)
        return tools.get(approval.tool_name)

    async def _find_model(
        self, session: ChatSession, name: str
    ) -> tuple[ModelGateway, ModelInfo | MochiError]:
        """Return the gateway of a session and the model ``name``, or the error of the lookup.

        If the host of the session is missing, return the gateway of all hosts and this error.
        """
        gateway = self.gateway
        try:
            gateway = await gateway.pinned(session.metadata.ollama_host)
            return gateway, await gateway.find_model(name)
        except (errors.OllamaUnreachable, errors.OllamaError, errors.ModelNotFound) as error:
            # The traceback refers to all data of the turn.
            return gateway, error.with_traceback(None)

    async def _prepared(
        self,
        run: Run,
        session: ChatSession,
        turn_input: TurnInput,
        writer: TurnWriter,
        *,
        gateway: ModelGateway,
        model: ModelInfo | MochiError,
    ) -> PreparedTurn:
        """Return the turn with its tools.

        If the request names no tools, add warnings about what the session enables in vain.
        """
        approver = SessionApprover(
            self.approvals,
            writer,
            writer,
            run.control,
            run.log,
            interactive=turn_input.interactive,
        )
        toolbox = await self._toolbox(session, turn_input.tools, approver)
        warnings: Sequence[TurnWarning] = ()
        if turn_input.tools.names is None:
            enabled = session.metadata
            selection = await self.sessions.selection(enabled.tool_settings, enabled.agent_settings)
            warnings = selection.warnings
        must_call = turn_input.tools.must_call and bool(toolbox.schemas())
        return PreparedTurn(
            turn_input.without_data(),
            session,
            writer,
            toolbox,
            model,
            gateway,
            replace(self.rules, must_call=must_call),
            warnings=warnings,
            approver=approver,
            sessions=self.sessions if writer.conversation.kind == "session" else None,
            checks=self.checks,
        )

    async def _toolbox(
        self, session: ChatSession, selected: ToolSelection, approver: SessionApprover
    ) -> Toolbox:
        """Return the selected tools of the server, the session's agents and the client's tools."""
        conversation = approver.writer.conversation

        async def current_tools() -> Mapping[str, Tool]:
            return await self._enabled(await conversation.load(), selected.names)

        enabled = await self._enabled(session, selected.names)
        own = FunctionToolbox(enabled, self.execution, approver, current_tools)
        agents = await self.agents.toolbox(session, approver)
        # Agents take precedence over session tools with the same name.
        return _select(own if agents is None else JoinedToolbox(agents, own), selected)

    async def _enabled(
        self, session: ChatSession, tools: Sequence[str] | None
    ) -> Mapping[str, Tool]:
        """Return the tools by name, or those that the session enables if ``tools`` is None."""
        settings = session.metadata.tool_settings
        if tools is not None:
            settings = ToolSettings(tools=list(tools))
        if not (settings.tools or settings.tool_group):
            return {}
        return (await self.registry.catalogue()).selected(settings.tools, settings.tool_group)


def _check_attachments(prepared: PreparedTurn, model: ModelInfo) -> None:
    """Raise ``ValidationFailed`` if the new files do not fit into the model's largest window, even
    without the earlier turns.
    """
    writer = prepared.writer
    allocation = turn_allocation(prepared.gateway, model, prepared.session, writer.history)
    prompt = Prompt(writer.messages, writer.turn_start).shortest
    tokens = allocation.estimate.tokens(prompt.size_with(prepared.toolbox.schemas()))
    largest = allocation.largest
    if largest is None or tokens + MIN_ANSWER_TOKENS <= largest:
        return
    limit = f"the largest context window of model {model.name!r}"
    advice = "Attach less, or use a model with a longer context."
    if allocation.is_manual(largest):
        limit = "the session's manual context window"
        advice = errors.MANUAL_WINDOW_ADVICE
    problem = (
        f"attachments: the message with its files has about {tokens} tokens, an answer needs "
        f"{MIN_ANSWER_TOKENS}, and {limit} has {largest}. {advice}"
    )
    raise errors.ValidationFailed(problem, window=largest, estimated_tokens=tokens)


def is_answer_checked(session: ChatSession, turn_input: TurnInput) -> bool:
    """Return whether the turn checks the format of its answer, and replaces an answer without it.

    Ollama itself ensures the format `json`, unless the request has tools.
    """
    answer_format = turn_input.generation.answer_format(session.metadata.format)
    if answer_format == "json":
        return _may_offer_tools(session, turn_input.tools)
    return answer_format is not None


def _may_offer_tools(session: ChatSession, selected: ToolSelection) -> bool:
    enabled = session.metadata.tool_settings
    agents = session.metadata.agent_settings.enabled_agents
    own: object = selected.names
    if own is None:
        own = enabled.tools or enabled.tool_group
    return selected.may_call and bool(own or agents or selected.client_tools)


def _select(own: Toolbox, selected: ToolSelection) -> Toolbox:
    """Add the client's tools, which take precedence, and remove tools that must not be called."""
    if not selected.may_call:
        return LimitedToolbox(own, names=())
    toolbox = own
    if selected.client_tools:
        toolbox = JoinedToolbox(ClientToolbox(selected.client_tools), own)
    if selected.only is not None:
        toolbox = LimitedToolbox(toolbox, names=selected.only)
    return toolbox


def _check_choice(toolbox: Toolbox, selected: ToolSelection) -> None:
    """Raise ``ValidationFailed`` if a named tool is missing, or a call is required without tools.

    Tools that the server omits count for the latter.
    """
    if not selected.may_call:
        return
    names = {schema["function"]["name"] for schema in toolbox.schemas()}
    missing = sorted((selected.only or frozenset()) - names)
    needs_tool = selected.must_call and not selected.omits_tools
    if missing:
        problem = f"there is no tool {missing[0]!r}"
    elif needs_tool and not names:
        problem = "the request has no tools"
    else:
        return
    raise errors.ValidationFailed.at("tool_choice", f"{problem}; add one to `tools`")
