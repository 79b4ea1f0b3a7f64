"""Request schemas of chat completions and text completions."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from mochi_server.models.common import Body, Text
from mochi_server.protocols.openai_chat.messages import AnyMessage
from mochi_server.protocols.schemas import (
    AnswerRequest,
    FunctionTool,
    NamedFunction,
    PlainFormat,
    TokenLimit,
    Unsupported,
    allow,
)
from mochi_server.sessions.generation_settings import FiniteObject
from mochi_server.util.validation import Items

_MAX_TOP_LOGPROBS = 20
MaxTokens = Annotated[
    TokenLimit | None, Field(description="Maximum tokens of the answer, with reasoning. -1 sets no limit.")
]


class ClientTool(Body):
    """A tool that the client runs."""

    type: Literal["function"]
    function: FunctionTool


class NamedTool(Body):
    """The tool that the model should call. The server does not offer any other tool to the model."""

    type: Literal["function"]
    function: NamedFunction


class JsonSchema(Body):
    """Schema of the answer."""

    name: str = "answer"
    json_schema: FiniteObject | None = Field(None, alias="schema")


class SchemaFormat(Body):
    """Response format: JSON that matches a schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchema

    def to_ollama(self) -> str | dict[str, Any]:
        return self.json_schema.json_schema or "json"


class StreamOptions(Body):
    """Options of a stream. If ``include_usage`` is true, a last chunk has the token counts."""

    include_usage: bool | None = None


class CompletionRequest(AnswerRequest):
    """A conversation to answer. A null field counts as absent. Unknown fields are ignored."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"model": "qwen3:14b", "messages": [{"role": "user", "content": "Hello!"}]}]}
    )

    messages: Items[AnyMessage] = Field(min_length=1, description="The conversation; in a session, its new messages.")
    stream_options: StreamOptions | None = Field(None, description="`include_usage` adds a chunk with token counts.")
    tools: Items[ClientTool] | None = Field(None, description="Tools that the client runs.")
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = Field(
        None, description="`required` and the name of a tool are enforced for the first answer of the turn."
    )
    parallel_tool_calls: bool | None = Field(
        None, description="If `false`, each answer calls one tool at most. The server drops further calls."
    )
    response_format: Annotated[PlainFormat | SchemaFormat, Field(discriminator="type")] | None = Field(
        None, description="Text, any JSON object, or JSON that matches a schema."
    )
    max_tokens: MaxTokens = None
    max_completion_tokens: TokenLimit | None = Field(None, description="Overrides `max_tokens`.")
    logprobs: bool | None = Field(None, description="Return the log probabilities of the tokens of the answer.")
    top_logprobs: int | None = Field(
        None, ge=0, le=_MAX_TOP_LOGPROBS, description="Number of alternatives for each token. It requires `logprobs`."
    )
    format: Annotated[Any, allow(reason="use `response_format`")] = Field(
        None, description="Not supported. Use `response_format`."
    )
    modalities: Annotated[Items[str] | None, allow(["text"])] = Field(None, description="Only `text` is supported.")
    audio: Unsupported = None
    functions: Unsupported = Field(None, description="Not supported. Use `tools`.")
    function_call: Unsupported = None
    web_search_options: Unsupported = None


class TextCompletionRequest(AnswerRequest):
    """A prompt to complete. The model receives it as a user message. Unknown fields are ignored."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "qwen3:14b", "prompt": "Once upon a time"}]})

    prompt: Text | Annotated[Items[Text], Field(min_length=1, max_length=1)] = Field(
        description="The prompt, or a list of one prompt."
    )
    stream_options: StreamOptions | None = Field(None, description="`include_usage` adds a chunk with token counts.")
    max_tokens: MaxTokens = None
    best_of: Annotated[int | None, allow(1)] = Field(None, description="Only 1 is supported.")
    echo: Annotated[bool | None, allow(False)] = Field(None, description="Only `false` is supported.")
    suffix: Annotated[str | None, allow("")] = Field(None, description="Only an empty text is supported.")
    logprobs: Annotated[Any, allow()] = Field(None, description="Not supported.")
    response_format: Unsupported = None
    tools: Annotated[Any, allow([])] = Field(None, description="Only an empty list is supported.")
    max_completion_tokens: Annotated[Any, allow(reason="use `max_tokens`")] = Field(
        None, description="Not supported. Use `max_tokens`."
    )
