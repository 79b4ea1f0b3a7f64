"""Schemas of forks, exports and imports."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, RootModel, model_validator

from mochi_server.models.common import StrictBody, integral
from mochi_server.models.events import REFERENCE
from mochi_server.models.sessions import SessionList
from mochi_server.services.import_export import OpenWebUIBareChat, OpenWebUIChat, SessionFile

ExportFormat = Literal["json", "markdown"]


class SessionFork(StrictBody):
    """The last message to copy to the fork, by index or ID. The default is the last message of the session."""

    model_config = ConfigDict(
        json_schema_extra={
            "not": {
                "properties": {"message_index": {"type": "integer"}, "message_id": {"type": "string"}},
                "required": ["message_index", "message_id"],
            }
        }
    )

    message_index: Annotated[int, BeforeValidator(integral)] | None = Field(
        default=None, description="Index of the last message to copy, starting at 0."
    )
    message_id: str | None = Field(default=None, description="ID of the last message to copy.")

    @model_validator(mode="after")
    def _has_one_position(self) -> "SessionFork":
        if self.message_index is not None and self.message_id is not None:
            raise ValueError("send message_index or message_id, not both")
        return self


class SessionImport(
    RootModel[
        SessionFile
        | OpenWebUIChat
        | OpenWebUIBareChat
        | Annotated[list[SessionFile | OpenWebUIChat | OpenWebUIBareChat], Field(min_length=1)]
    ]
):
    """One or more exported sessions of this server, or chats of Open WebUI in their newer or older format."""

    @classmethod
    def schemas(cls) -> dict[str, Any]:
        """Return the schemas for the OpenAPI document, by name."""
        schema = cls.model_json_schema(ref_template=REFERENCE + "{model}")
        return {**schema.pop("$defs"), cls.__name__: schema}


class SessionsImported(SessionList):
    """The imported sessions, in the order of the imported file."""
