"""Which tools a turn has: those its session enables, under the session's policy.

Whatever else a session may call (agents) comes from sources that are given; nobody here knows what they are.
"""

from collections.abc import Sequence
from typing import Protocol

from mochi_server.chat.confirmation import ConfirmationBroker, SessionApprover
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import APPROVED, ToolSettings
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
        settings = session.metadata.tool_settings
        if tools is not None:
            settings = settings.model_copy(update={"tools": list(tools), "tool_group": None})
        enabled = settings.tools or settings.tool_group
        found = (await self._library.catalogue()).selected(settings.tools, settings.tool_group) if enabled else {}
        approver = SessionApprover(
            self._broker,
            session.session_id,
            interactive,
            set(settings.approved),
            lambda names: self._remember(session.session_id, names),
        )
        own = ConfirmingToolbox(FunctionToolbox(found, self._execution), settings.execution_policy, approver)
        others = [box for source in self._sources if (box := await source.of(session, approver)) is not None]
        return JoinedToolbox(*others, own) if others else own

    async def _remember(self, session_id: str, names: list[str]) -> None:
        settings = (await self._store.load(session_id)).metadata.tool_settings
        changed = ToolSettings.model_validate(settings.model_dump() | {APPROVED: names})
        await self._store.patch(session_id, {"tool_settings": changed})
