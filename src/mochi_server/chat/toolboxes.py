"""Which tools a turn has: those its session enables, under the session's policy."""

from mochi_server.chat.confirmation import ConfirmationBroker, SessionApprover
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import ToolSettings
from mochi_server.tools.execution import ToolExecutionService
from mochi_server.tools.library import ToolLibrary
from mochi_server.tools.toolbox import ConfirmingToolbox, FunctionToolbox, Toolbox

APPROVED = "approved_tools"
"""Key of the tool settings that holds what was approved of for the rest of the session."""


class Toolboxes:
    """Makes the toolbox of a turn."""

    def __init__(
        self,
        library: ToolLibrary,
        execution: ToolExecutionService,
        broker: ConfirmationBroker,
        store: SessionStore,
    ) -> None:
        self._library = library
        self._execution = execution
        self._broker = broker
        self._store = store

    async def of(self, session: ChatSession, *, interactive: bool) -> Toolbox:
        """The tools of a session. Without ``interactive`` nobody can be asked about calls."""
        settings = session.metadata.tool_settings
        enabled = settings.tools or settings.tool_group
        tools = (await self._library.catalogue()).selected(settings.tools, settings.tool_group) if enabled else {}
        approver = SessionApprover(
            self._broker,
            session.session_id,
            interactive,
            set((settings.model_extra or {}).get(APPROVED, ())),
            lambda names: self._remember(session.session_id, names),
        )
        return ConfirmingToolbox(FunctionToolbox(tools, self._execution), settings.execution_policy, approver)

    async def _remember(self, session_id: str, names: list[str]) -> None:
        settings = (await self._store.load(session_id)).metadata.tool_settings
        changed = ToolSettings.model_validate(settings.model_dump() | {APPROVED: names})
        await self._store.patch(session_id, {"tool_settings": changed})
