"""Factory for a turn's toolbox, which contains the session's enabled tools and tools from other sources."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

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
        approver = SessionApprover(self.broker, session.session_id, interactive, self.store, self.retry)
        functions = FunctionToolbox(
            await self._enabled(session, tools), self.execution, partial(self._current, approver, tools)
        )
        own = ConfirmingToolbox(functions, approver)
        others = [box for source in self.sources if (box := await source(session, approver)) is not None]
        return JoinedToolbox(*others, own) if others else own

    async def _current(self, approver: SessionApprover, tools: Sequence[str] | None) -> Mapping[str, Tool]:
        return await self._enabled(await approver.load_session(), tools)

    async def _enabled(self, session: ChatSession, tools: Sequence[str] | None) -> Mapping[str, Tool]:
        settings = session.metadata.tool_settings if tools is None else ToolSettings(tools=list(tools))
        if not (settings.tools or settings.tool_group):
            return {}
        return (await self.registry.catalogue()).selected(settings.tools, settings.tool_group)
