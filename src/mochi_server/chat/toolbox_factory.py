"""Factory for a turn's toolbox, which contains the session's enabled tools and tools from other sources."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from mochi_server.chat.approvals import ConfirmationBroker, SessionApprover
from mochi_server.chat.conversation import Conversation
from mochi_server.chat.storage_retry import StorageRetry
from mochi_server.chat.turn_input import ToolSelection, TurnInput
from mochi_server.errors import ValidationFailed
from mochi_server.sessions.session import ChatSession
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

ToolboxSource = Callable[[ChatSession, SessionApprover], Awaitable[Toolbox | None]]
"""Function that returns a toolbox with additional tools, or None. Those tools request approval from the approver."""


@dataclass
class ToolboxFactory:
    """Factory of toolboxes. Tools of ``sources`` take precedence over session tools with the same name."""

    registry: ToolRegistry
    execution: ToolExecutionService
    broker: ConfirmationBroker
    sources: Sequence[ToolboxSource] = ()
    retry: StorageRetry = field(default_factory=StorageRetry)

    async def create(self, conversation: Conversation, session: ChatSession, turn_input: TurnInput) -> Toolbox:
        """Create the toolbox of a turn: the selected tools of the server, the agents and the tools of the client.

        Raises ``ValidationFailed`` if the turn must call a tool that does not exist.
        """
        selected = turn_input.tools
        approver = SessionApprover(
            self.broker, session.session_id, turn_input.interactive, conversation.store, self.retry
        )
        own = FunctionToolbox(
            await self._enabled(session, selected.names),
            self.execution,
            approver,
            partial(self._current, approver, selected.names),
        )
        others = [box for source in self.sources if (box := await source(session, approver)) is not None]
        return _select(JoinedToolbox(*others, own) if others else own, selected)

    async def _current(self, approver: SessionApprover, tools: Sequence[str] | None) -> Mapping[str, Tool]:
        return await self._enabled(await approver.load_session(), tools)

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
        raise ValidationFailed.at("tool_choice", f"{missing}; add one to `tools`")
    return toolbox
