"""Settings of a session as requests carry them. Stored settings may hold unknown keys, requests may not."""

from pydantic import ConfigDict, Field

from mochi_server.models.common import StrictBody
from mochi_server.sessions.types import AgentSettings, Names, ToolSettings

_LAX = ConfigDict(strict=False)  # so that the names of policies are accepted


class ToolSettingsRequest(ToolSettings, StrictBody):
    """Which tools the model may call, and which calls need approval."""

    model_config = _LAX

    approved_tools: Names | None = Field(None, description="Tools whose calls were approved for the session.")

    def stored(self) -> ToolSettings:
        """Return the settings as sessions store them: without `approved_tools` if the request has none."""
        return ToolSettings.model_validate(self.model_dump(exclude_unset=True))


class AgentSettingsRequest(AgentSettings, StrictBody):
    """Which agents the model may call."""

    model_config = _LAX

    def stored(self) -> AgentSettings:
        """Return the settings as sessions store them."""
        return AgentSettings.model_validate(self.model_dump(exclude_unset=True))
