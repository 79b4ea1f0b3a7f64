"""Schemas of OpenAI's Responses API (`/v1/responses`)."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Discriminator, Field, Tag, TypeAdapter, model_validator

from mochi_server.models.common import Body, Text
from mochi_server.protocols import schemas
from mochi_server.util.validation import Items


class InputText(Body):
    """Part of a message or of a tool result that contains text."""

    type: Literal["input_text", "output_text", "text"]
    text: Text


class InputImage(Body):
    """An image as a data URL, for models with `vision`."""

    type: Literal["input_image"]
    image_url: schemas.DataUrl


Part = InputText | schemas.RefusalPart | InputImage


class InputMessage(Body):
    """A message from the user or the model, or instructions for the model."""

    type: Literal["message"] | None = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: schemas.TextOr[Items[Annotated[Part, Field(discriminator="type")]]]

    @model_validator(mode="after")
    def _has_parts_of_its_role(self) -> "InputMessage":
        allowed = {"user": InputImage, "assistant": schemas.RefusalPart}.get(self.role, InputText)
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
    output: schemas.TextOr[Items[Annotated[InputText | InputImage, Field(discriminator="type")]]]


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


_LOGPROBS = "message.output_text.logprobs"
_OtherLimit = Annotated[Any, schemas.allow(reason="use `max_output_tokens`"), Field(description="Not supported.")]


def _without_logprobs(include: list[str] | None) -> list[str] | None:
    if include and _LOGPROBS in include:
        raise ValueError(f"`{_LOGPROBS}` is not supported; leave it out")
    return include


class _Typed(Body):
    type: Literal["function"]


class ResponseFunction(schemas.FunctionTool, _Typed):
    """A function of the client that the model may call. ``parameters`` is a JSON schema."""


class NamedResponseFunction(schemas.NamedFunction):
    """The function that the model should call. The server does not offer any other function to the model."""

    type: Literal["function"]


class TextOptions(Body):
    """Options for the text of the answer."""

    format: Annotated[schemas.PlainFormat | schemas.SchemaText, Field(discriminator="type")] | None = None


class ResponseRequest(
    schemas.AnswerRequest, json_schema_extra={"examples": [{"model": "qwen3:14b", "input": "Hello!"}]}
):
    """Input to answer. A null field counts as absent. Unknown fields are ignored."""

    input: schemas.TextOr[Annotated[Items[InputItem], Field(min_length=1)]] = Field(description="A message, or items.")
    instructions: Text | None = Field(None, description="System message of this request.")
    previous_response_id: str | None = Field(None, description="Only in a session: the ID of its latest response.")
    store: bool | None = Field(None, description="If `false`, later requests cannot refer to the output items.")
    tools: Items[ResponseFunction] | None = Field(None, description="Functions that the client runs.")
    tool_choice: Literal["none", "auto", "required"] | NamedResponseFunction | None = Field(
        None, description=schemas.TOOL_CHOICE
    )
    parallel_tool_calls: bool | None = Field(None, description=schemas.PARALLEL)
    text: TextOptions | None = Field(None, description="`format`: text, any JSON object, or JSON that fits a schema.")
    max_output_tokens: schemas.TokenLimit | None = Field(
        None, description="Maximum tokens of the answer, with reasoning."
    )
    include: Annotated[Items[str] | None, AfterValidator(_without_logprobs)] = Field(None, description="No effect.")
    max_tokens: _OtherLimit = None
    max_completion_tokens: _OtherLimit = None
    logprobs: Annotated[bool | None, schemas.allow(False)] = Field(None, description="Only `false` is supported.")
    top_logprobs: Annotated[int | None, schemas.allow(0)] = Field(None, description="Only 0 is supported.")
    response_format: Annotated[Any, schemas.allow(reason="use `text.format`")] = Field(
        None, description="Not supported."
    )
    background: Annotated[bool | None, schemas.allow(False)] = Field(None, description="Only `false` is supported.")
    conversation: schemas.Unsupported = Field(None, description="Not supported. Use a session.")
    prompt: schemas.Unsupported = None
    max_tool_calls: schemas.Unsupported = None

    def echo(self) -> dict[str, Any]:
        """Return the fields of the request that the response repeats."""
        unset = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        repeated = {
            *("model", "instructions", "previous_response_id", "tools", "tool_choice", "parallel_tool_calls"),
            *("temperature", "top_p", "max_output_tokens"),
        }
        fields = self.model_dump(include=repeated, by_alias=True)
        fields |= {name: value for name, value in unset.items() if fields[name] is None}
        text_format = self.text and self.text.format
        return fields | {
            "metadata": self.metadata.model_dump(exclude_none=True) if self.metadata else {},
            "text": {"format": text_format.model_dump(by_alias=True) if text_format else {"type": "text"}},
            "reasoning": {"effort": self.reasoning.effort if self.reasoning else None, "summary": None},
        }


class InputTokensDetails(BaseModel):
    """Numbers of cached tokens in the input. They are always 0, because Ollama does not count cached tokens."""

    cached_tokens: int
    cache_write_tokens: int


class OutputTokensDetails(BaseModel):
    """Number of reasoning tokens in the output. It is always 0, because Ollama does not count them separately."""

    reasoning_tokens: int


class ResponseUsage(BaseModel):
    """Ollama's token counts, summed over all requests of the turn."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ModelResponse(BaseModel):
    """A response. ``output`` has `reasoning`, `message` and `function_call`. Fields of the request are repeated."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    error: dict[str, Any] | None
    incomplete_details: dict[str, Any] | None
    model: str
    output: list[dict[str, Any]]
    usage: ResponseUsage | None
    store: bool
    mochi: schemas.MochiExtension | None = None
