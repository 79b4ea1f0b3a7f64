"""Request and response schemas of OpenAI's Responses API (`/v1/responses`)."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field

from mochi_server.models.common import Body, Text, ToolParameters
from mochi_server.protocols.messages import tool_schema
from mochi_server.protocols.responses.items import InputItem
from mochi_server.protocols.schemas import (
    AnswerRequest,
    MochiExtension,
    NamedFunction,
    PlainFormat,
    SchemaText,
    TextOr,
    TokenLimit,
    Unsupported,
    allow,
)
from mochi_server.util.validation import Items

_LOGPROBS = "message.output_text.logprobs"
_OtherLimit = Annotated[
    Any, allow(reason="use `max_output_tokens`"), Field(description="Not supported. Use `max_output_tokens`.")
]


def _without_logprobs(include: list[str] | None) -> list[str] | None:
    if include and _LOGPROBS in include:
        raise ValueError(f"`{_LOGPROBS}` is not supported; leave it out")
    return include


class ResponseFunction(Body):
    """A function of the client that the model may call. ``parameters`` is a JSON schema."""

    type: Literal["function"]
    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    parameters: ToolParameters | None = None

    def to_ollama(self) -> dict[str, Any]:
        return tool_schema(self.name, self.description, self.parameters)


class NamedResponseFunction(NamedFunction):
    """The function that the model should call. The server does not offer any other function to the model."""

    type: Literal["function"]


class TextOptions(Body):
    """Options for the text of the answer."""

    format: Annotated[PlainFormat | SchemaText, Field(discriminator="type")] | None = None


class ResponseRequest(AnswerRequest, json_schema_extra={"examples": [{"model": "qwen3:14b", "input": "Hello!"}]}):
    """Input to answer. A null field counts as absent. Unknown fields are ignored."""

    input: TextOr[Annotated[Items[InputItem], Field(min_length=1)]] = Field(
        description="A message of the user, or the items of the conversation; in a session, its new items."
    )
    instructions: Text | None = Field(None, description="System message of this request.")
    previous_response_id: str | None = Field(None, description="Only in a session: the ID of its latest response.")
    store: bool | None = Field(
        None, description="If `false`, later requests cannot refer to the output items of the response by ID."
    )
    tools: Items[ResponseFunction] | None = Field(None, description="Functions that the client runs.")
    tool_choice: Literal["none", "auto", "required"] | NamedResponseFunction | None = Field(
        None, description="Whether the model may or must call a tool, or the function to call."
    )
    parallel_tool_calls: bool | None = Field(
        None, description="If `false`, each answer calls one tool at most. The server drops further calls."
    )
    text: TextOptions | None = Field(None, description="`format`: text, any JSON object, or JSON that fits a schema.")
    max_output_tokens: TokenLimit | None = Field(None, description="Maximum tokens of the answer, with reasoning.")
    include: Annotated[Items[str] | None, AfterValidator(_without_logprobs)] = Field(
        None, description=f"Has no effect. `{_LOGPROBS}` is not supported."
    )
    max_tokens: _OtherLimit = None
    max_completion_tokens: _OtherLimit = None
    logprobs: Annotated[bool | None, allow(False)] = Field(None, description="Only `false` is supported.")
    top_logprobs: Annotated[int | None, allow(0)] = Field(None, description="Only 0 is supported.")
    response_format: Annotated[Any, allow(reason="use `text.format`")] = Field(
        None, description="Not supported. Use `text.format`."
    )
    background: Annotated[bool | None, allow(False)] = Field(None, description="Only `false` is supported.")
    conversation: Unsupported = Field(None, description="Not supported. Use a session.")
    prompt: Unsupported = None
    max_tool_calls: Unsupported = None

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
    """A response. ``output`` has items of the types `reasoning`, `message` and `function_call`.

    The response also repeats the fields of the request that influenced it.
    """

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
    mochi: MochiExtension | None = None
