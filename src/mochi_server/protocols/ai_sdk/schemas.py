"""Request schema of the AI SDK's `useChat`."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from mochi_server.models.common import Body
from mochi_server.protocols.schemas import FrontendOptions
from mochi_server.util.validation import Items


class UiMessage(Body):
    """A message of the AI SDK. The server uses parts of the types `text` and `file`, and responses to approvals."""

    id: str = Field("", description="ID of the message in the client.")
    role: Literal["system", "user", "assistant"]
    parts: Items[dict[str, Any]]


class AiSdkRequest(FrontendOptions):
    """Request that `useChat` sends. Only the last message is new. The session already has the earlier messages. To set
    options of the turn, such as `think`, use the `body` option of the AI SDK. Unknown fields are ignored.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"messages": [{"role": "user", "parts": [{"type": "text", "text": "Hello!"}]}]}]
        }
    )

    messages: Items[UiMessage] = Field(min_length=1, description="Messages of the chat, oldest first.")
    trigger: Literal["submit-message", "regenerate-message"] = Field(
        "submit-message", description="Whether to answer a new message or the last user message again."
    )
    message_id: str | None = Field(
        None, alias="messageId", description="Message to replace, if it is the last user message."
    )
