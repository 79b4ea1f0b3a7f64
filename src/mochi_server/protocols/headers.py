"""Request headers that the APIs of other providers do not have."""

from typing import Annotated

from fastapi import Header
from pydantic import Field

from mochi_server.chat.turn_input import GenerationOptions, ToolSelection, TurnInput
from mochi_server.schemas.common import IdempotencyKey, Schema
from mochi_server.sessions.types import ToolExecutionPolicy


class MochiHeaders(Schema, defer_build=False):
    """Request headers that the APIs of other providers do not have."""

    session: str | None = Field(
        None, alias="X-Mochi-Session", description="Overrides `metadata.session_id`."
    )
    tools: str | None = Field(
        None, alias="X-Mochi-Tools", description="Tools of this server, separated by commas."
    )
    policy: ToolExecutionPolicy | None = Field(
        None,
        alias="X-Mochi-Tool-Policy",
        description="Without a session: calls that need approval are denied.",
    )
    key: IdempotencyKey | None = Field(
        None,
        alias="Idempotency-Key",
        description="In a session: the same key returns the existing answer.",
    )

    @property
    def tool_names(self) -> list[str] | None:
        """Names of this server's tools for the request, or None for those of the session."""
        if self.tools is None:
            return None
        names = (part.strip() for part in self.tools.split(","))
        return [name for name in names if name]

    def turn(self, model: str, generation: GenerationOptions, tools: ToolSelection) -> TurnInput:
        """Return the turn of a completion without its messages."""
        return TurnInput(
            generation=generation,
            tools=tools,
            policy=self.policy,
            model=model,
            interactive=False,
            key=self.key,
        )


HeadersParam = Annotated[MochiHeaders, Header()]
