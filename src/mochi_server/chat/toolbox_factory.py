"""Factory for a turn's toolbox, which contains the session's enabled tools and tools from other sources."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from mochi_server.chat.approvals import ConfirmationBroker, SessionApprover
from mochi_server.chat.storage_retry import StorageRetry
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import ToolSettings
from mochi_server.tools.discovery import Tool
from mochi_server.tools.execution import ToolExecutionService
from mochi_server.tools.registry import ToolRegistry
from mochi_server.tools.toolbox import ConfirmingToolbox, FunctionToolbox, JoinedToolbox, Toolbox

ToolboxSource = Callable[[ChatSession, SessionApprover], Awaitable[Toolbox | None]]
"""Function that returns a toolbox with additional tools, or None. Those tools request approval from the approver."""


@dataclass
class ToolboxFactory:
    """Factory of toolboxes. Tools of ``sources`` take precedence over session tools with the same name."""

    registry: ToolRegistry
    execution: ToolExecutionService
    broker: ConfirmationBroker
    store: SessionStore
    sources: Sequence[ToolboxSource] = ()
    retry: StorageRetry = field(default_factory=StorageRetry)

    async def create(self, session: ChatSession, *, interactive: bool, tools: Sequence[str] | None = None) -> Toolbox:
        """Create the toolbox for a turn. ``tools`` names the tools to use instead of the session's enabled tools.

        If ``interactive`` is false, clients cannot approve tool calls.
        """
        enabled = EnabledTools(self.registry, self.store, session.session_id, self.retry)
        if tools is not None:
            functions = FunctionToolbox(await enabled.select(tools, None), self.execution)
        else:
            enabled_tools = await enabled.of(session.metadata.tool_settings)
            functions = FunctionToolbox(enabled_tools, self.execution, enabled.current)
        approver = SessionApprover(self.broker, session.session_id, interactive, self.store, self.retry)
        own = ConfirmingToolbox(functions, approver)
        others = [box for source in self.sources if (box := await source(session, approver)) is not None]
        return JoinedToolbox(*others, own) if others else own


@dataclass
class EnabledTools:
    """Enabled tools of a session, updated when its tool settings change."""

    registry: ToolRegistry
    store: SessionStore
    session_id: str
    retry: StorageRetry
    _selected: tuple[list[str], str | None] | None = None
    _tools: Mapping[str, Tool] = field(default_factory=dict)

    async def current(self) -> Mapping[str, Tool]:
        """Load the session's tool settings and return the enabled tools by name."""
        session = await self.retry.run(lambda: self.store.load(self.session_id))
        return await self.of(session.metadata.tool_settings)

    async def of(self, settings: ToolSettings) -> Mapping[str, Tool]:
        if self._selected != (settings.tools, settings.tool_group):
            self._tools = await self.select(settings.tools, settings.tool_group)
            self._selected = (settings.tools, settings.tool_group)
        return self._tools

    async def select(self, names: Sequence[str], group: str | None) -> Mapping[str, Tool]:
        return (await self.registry.catalogue()).selected(names, group) if names or group else {}
