"""Input items of OpenAI's Responses API."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, TypeAdapter, model_validator

from mochi_server.models.common import Body, Text
from mochi_server.protocols.schemas import DataUrl, RefusalPart, TextOr
from mochi_server.util.validation import Items


class InputText(Body):
    """Part of a message or of a tool result that contains text."""

    type: Literal["input_text", "output_text", "text"]
    text: Text


class InputImage(Body):
    """An image as a data URL, for models with `vision`."""

    type: Literal["input_image"]
    image_url: DataUrl


Part = InputText | RefusalPart | InputImage


class InputMessage(Body):
    """A message from the user or the model, or instructions for the model."""

    type: Literal["message"] | None = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: TextOr[Items[Annotated[Part, Field(discriminator="type")]]]

    @model_validator(mode="after")
    def _has_parts_of_its_role(self) -> "InputMessage":
        allowed = {"user": InputImage, "assistant": RefusalPart}.get(self.role, InputText)
        for part in self.content if not isinstance(self.content, str) else ():
            if not isinstance(part, InputText | allowed):
                raise ValueError(f"a message of the role `{self.role}` must not contain `{part.type}`")
        return self


class FunctionCall(Body):
    """A tool call of the model. ``arguments`` is JSON text."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str


class FunctionCallOutput(Body):
    """The result of a tool call."""

    type: Literal["function_call_output"]
    call_id: str
    output: TextOr[Items[Annotated[InputText | InputImage, Field(discriminator="type")]]]


class ReasoningText(Body):
    """Reasoning of the model."""

    text: Text


class ReasoningItem(Body):
    """Reasoning of the model before its answer."""

    type: Literal["reasoning"]
    summary: Items[ReasoningText] = Field(default_factory=list)
    content: Items[ReasoningText] | None = None


class ItemReference(Body):
    """The ID of an item that the server sent in an earlier response."""

    type: Literal["item_reference"] | None = None
    id: str


def _item_type(item: Any) -> Any:
    if not isinstance(item, dict):
        return getattr(item, "type", None)
    return item.get("type") or ("message" if "role" in item else "item_reference")


_ITEM_TYPES = "message", "function_call", "function_call_output", "reasoning", "item_reference"
InputItem = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[FunctionCall, Tag("function_call")]
    | Annotated[FunctionCallOutput, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")]
    | Annotated[ItemReference, Tag("item_reference")],
    Discriminator(
        _item_type,
        custom_error_type="unsupported_item",
        custom_error_message=f"The type of an item must be one of {', '.join(_ITEM_TYPES)}",
    ),
]
ITEM: TypeAdapter[Any] = TypeAdapter(InputItem)
