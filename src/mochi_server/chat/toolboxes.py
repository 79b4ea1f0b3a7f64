"""Which tools a turn has: those its session enables, under the session's policy.

Whatever else a session may call (agents) comes from sources that are given; nobody here knows what they are.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from mochi_server.chat.confirmation import ConfirmationBroker, SessionApprover
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import ToolSettings
from mochi_server.tools.discovery import Tool
from mochi_server.tools.execution import ToolExecutionService
from mochi_server.tools.library import ToolLibrary
from mochi_server.tools.toolbox import ConfirmingToolbox, FunctionToolbox, JoinedToolbox, Toolbox


class ToolboxSource(Protocol):
    """Whoever has more for a model to call."""

    async def of(self, session: ChatSession, approver: SessionApprover) -> Toolbox | None:
        """What a session may call; None when there is nothing. ``approver`` is asked where approval is needed."""
        ...


class Toolboxes:
    """Makes the toolbox of a turn. Names of the sources' tools are reserved while these are offered."""

    def __init__(
        self,
        library: ToolLibrary,
        execution: ToolExecutionService,
        broker: ConfirmationBroker,
        store: SessionStore,
        sources: Sequence[ToolboxSource] = (),
    ) -> None:
        self._library = library
        self._execution = execution
        self._broker = broker
        self._store = store
        self._sources = sources

    async def of(self, session: ChatSession, *, interactive: bool, tools: Sequence[str] | None = None) -> Toolbox:
        """The tools of a session, or of these names. Without ``interactive`` nobody can be asked about calls."""
        enabled = EnabledTools(self._library, self._store, session.session_id)
        if tools is not None:
            functions = FunctionToolbox(await enabled.select(tools, None), self._execution)
        else:
            found = await enabled.of(session.metadata.tool_settings)
            functions = FunctionToolbox(found, self._execution, enabled.current)
        approver = SessionApprover(self._broker, session.session_id, interactive, self._store)
        own = ConfirmingToolbox(functions, approver)
        others = [box for source in self._sources if (box := await source.of(session, approver)) is not None]
        return JoinedToolbox(*others, own) if others else own


class EnabledTools:
    """The tools that a session enables. They are selected anew when its settings have changed."""

    def __init__(self, library: ToolLibrary, store: SessionStore, session_id: str) -> None:
        self._library = library
        self._store = store
        self._session_id = session_id
        self._selected: tuple[list[str], str | None] | None = None
        self._tools: Mapping[str, Tool] = {}

    async def current(self) -> Mapping[str, Tool]:
        """The tools by the settings that are stored now."""
        return await self.of((await self._store.load(self._session_id)).metadata.tool_settings)

    async def of(self, settings: ToolSettings) -> Mapping[str, Tool]:
        """The tools by these settings."""
        if self._selected != (settings.tools, settings.tool_group):
            self._tools = await self.select(settings.tools, settings.tool_group)
            self._selected = (settings.tools, settings.tool_group)
        return self._tools

    async def select(self, names: Sequence[str], group: str | None) -> Mapping[str, Tool]:
        """The tools of these names and of this group."""
        return (await self._library.catalogue()).selected(names, group) if names or group else {}
