"""Request schemas of OpenAI's API, as far as this server supports the API.

Unknown fields are ignored. A known but unsupported field is rejected if it would change the answer.
"""

from typing import Annotated, Any, Literal

from fastapi import Header
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from mochi_server.chat.images import Location
from mochi_server.chat.turn import GenerationOptions
from mochi_server.errors import SessionNotFound, ValidationFailed
from mochi_server.models.common import Body, IdempotencyKey, Text, ToolParameters, decode_images
from mochi_server.models.openai_messages import AnyMessage, ImagePart, ToolMessage, Unsupported, UserMessage, allow
from mochi_server.openai.errors import renaming_parameters
from mochi_server.openai.request_mapping import CompletionInput, ToolChoice, tool_schema
from mochi_server.sessions.generation_settings import FiniteObject, KeepAlive, ThinkLevel
from mochi_server.sessions.images import Image
from mochi_server.sessions.types import ToolExecutionPolicy
from mochi_server.util.first_error import Items

_THINK: dict[str | None, bool | str] = {"none": False, "minimal": "low", "xhigh": "max", "ultra": "max"}
"""Ollama's ``think`` values for OpenAI's reasoning levels. Levels that are not listed have the same name in Ollama."""
_UNCHANGED_OPTIONS = {
    *("temperature", "top_p", "frequency_penalty", "presence_penalty", "seed", "top_k", "min_p", "repeat_penalty")
}
"""Fields that have the same name in OpenAI's API and in Ollama's options."""
_MAX_TOP_LOGPROBS = 20
TEXT_PARAMETERS = {"messages": "prompt"}
"""Mapping of field names in chat completion requests to the names of the same fields in text completion requests."""


def _token_limit(value: int) -> int:
    if value < 1 and value != NO_LIMIT:
        raise ValueError(f"must be at least 1, or {NO_LIMIT} for no limit")
    return value


RejectedOption = Annotated[
    Any, allow(reason="this server sets the context window; other options have fields of their own")
]
TokenLimit = Annotated[int, AfterValidator(_token_limit)]
MaxTokens = Annotated[
    TokenLimit | None, Field(description="Maximum tokens of the answer, with reasoning. -1 sets no limit.")
]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"]
NO_LIMIT = -1
"""Value of `max_tokens` for an answer that ends only when it is complete or the context window is full."""


class MochiHeaders(BaseModel):
    """Request headers that OpenAI's API does not have."""

    session: str | None = Field(
        None, alias="X-Mochi-Session", description="Session of the turn. It overrides `metadata.session_id`."
    )
    tools: str | None = Field(
        None, alias="X-Mochi-Tools", description="Tools of this server that the model may call, separated by commas."
    )
    policy: ToolExecutionPolicy | None = Field(
        None,
        alias="X-Mochi-Tool-Policy",
        description="Without a session: policy of the tool calls. Calls that need approval are denied.",
    )
    key: IdempotencyKey | None = Field(
        None,
        alias="Idempotency-Key",
        description="In a session: a repeated request with the same key returns the existing answer.",
    )


HeadersParam = Annotated[MochiHeaders, Header()]


class FunctionTool(Body):
    """A function of the client that the model may call. ``parameters`` is a JSON schema."""

    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    parameters: ToolParameters | None = None


class ClientTool(Body):
    """A tool that the client runs."""

    type: Literal["function"]
    function: FunctionTool


class NamedFunction(Body):
    """Name of a function."""

    name: str


class NamedTool(Body):
    """The tool that the model should call. The server does not offer any other tool to the model."""

    type: Literal["function"]
    function: NamedFunction


class JsonSchema(Body):
    """Schema of the answer."""

    name: str = "answer"
    json_schema: FiniteObject | None = Field(None, alias="schema")


class PlainFormat(Body):
    """Response format: plain text, or any JSON object."""

    type: Literal["text", "json_object"]


class SchemaFormat(Body):
    """Response format: JSON that matches a schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


class StreamOptions(Body):
    """Options of a stream. If ``include_usage`` is true, a last chunk has the token counts."""

    include_usage: bool | None = None


class ReasoningOptions(Body):
    """Reasoning options of a request, for models that can think."""

    effort: Effort | None = None


class Metadata(Body, extra="allow"):
    """Metadata of a request. ``session_id`` is the ID of the session for the turn. Other keys have no effect."""

    session_id: str | None = None


class AnswerRequest(Body):
    """Base of OpenAI's requests for an answer: the model and its options, and the session in ``metadata``."""

    model: str = Field(min_length=1, description="Model of Ollama, or `agent:NAME`.")
    stream: bool | None = Field(None, description="Stream the answer.")
    metadata: Metadata | None = Field(None, description="`session_id` is the session of the turn.")
    temperature: float | None = Field(None, ge=0, le=2, description="Sampling temperature.")
    top_p: float | None = Field(None, ge=0, le=1, description="Nucleus sampling: cumulative probability of candidates.")
    frequency_penalty: float | None = Field(None, ge=-2, le=2, description="Penalty for frequent tokens.")
    presence_penalty: float | None = Field(None, ge=-2, le=2, description="Penalty for tokens that already occurred.")
    seed: int | None = Field(None, ge=-(2**63), lt=2**63, description="The same seed and request give the same answer.")
    stop: str | Items[str] | None = Field(None, description="Stop sequences. The answer ends before them.")
    top_k: int | None = Field(None, ge=0, description="Number of candidates for the next token. Not in OpenAI's API.")
    min_p: float | None = Field(None, ge=0, le=1, description="Minimum probability of candidates. Not in OpenAI's API.")
    repeat_penalty: float | None = Field(
        None, ge=0, allow_inf_nan=False, description="Penalty for repetitions. Not in OpenAI's API."
    )
    reasoning_effort: Effort | None = Field(None, description="Level of reasoning of a model that can think.")
    reasoning: ReasoningOptions | None = Field(None, description="`effort` overrides `reasoning_effort`.")
    think: ThinkLevel | None = Field(None, description="Ollama's name of `reasoning_effort`, which overrides it.")
    keep_alive: KeepAlive = None
    options: RejectedOption = Field(None, description="Not supported. Use the fields of this request.")
    num_ctx: RejectedOption = Field(None, description="Not supported. The server sets the context window.")
    n: Annotated[int | None, allow(1, reason="Ollama gives one answer to a request")] = Field(
        None, description="Only 1 is supported, because Ollama gives one answer to a request."
    )
    logit_bias: Annotated[dict[str, Any] | None, allow({})] = Field(None, description="Only `{}` is supported.")
    format: Unsupported = None

    def shared_fields(self) -> dict[str, Any]:
        """Return the fields that ``AnswerRequest`` defines, without fields that are null."""
        return self.model_dump(include=set(AnswerRequest.model_fields), exclude_none=True)

    def session_id(self, headers: MochiHeaders) -> str | None:
        return self.metadata.session_id if headers.session is None and self.metadata else headers.session


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

    async def to_input(self, headers: MochiHeaders) -> CompletionInput:
        """Return the input of the completion.

        Raises ``ValidationFailed`` for an invalid message, or ``SessionNotFound`` for an empty session ID.
        """
        if (session_id := self.session_id(headers)) == "":
            raise SessionNotFound("")
        tools = None if headers.tools is None else [name for part in headers.tools.split(",") if (name := part.strip())]
        names: dict[str, str] = {}
        functions = [tool.function for tool in self.tools or ()]
        return CompletionInput(
            model=self.model,
            messages=[message.to_stored(names) for message in self.messages],
            images=await self._images(),
            generation=GenerationOptions(
                think=self._think(),
                options=self._options() or None,
                format=self._format(),
                keep_alive=self.keep_alive,
                thinks_by_default=True,
                logprobs=self._logprobs(),
            ),
            client_tools=[tool_schema(f.name, f.description or "", f.parameters) for f in functions],
            tool_choice=self._tool_choice(),
            tools=tools,
            policy=headers.policy,
            session_id=session_id,
            key=headers.key,
        )

    async def _images(self) -> dict[int, tuple[Image, ...]]:
        images = {}
        for index, message in enumerate(self.messages):
            if not isinstance(message, UserMessage | ToolMessage) or isinstance(message.content, str):
                continue
            content: Location = ("messages", index, "content")
            parts = enumerate(message.content)
            urls = {(*content, number): part.url for number, part in parts if isinstance(part, ImagePart)}
            if urls:
                images[index] = await decode_images(urls, content)
        return images

    def _think(self) -> bool | str | None:
        effort = (self.reasoning and self.reasoning.effort) or self.reasoning_effort
        return self.think if effort is None else _THINK.get(effort, effort)

    def _logprobs(self) -> int | None:
        if self.top_logprobs and not self.logprobs:
            raise ValidationFailed.at("top_logprobs", "requires `logprobs: true`")
        return (self.top_logprobs or 0) if self.logprobs else None

    def _options(self) -> dict[str, Any]:
        options = self.model_dump(include=_UNCHANGED_OPTIONS, exclude_none=True)
        if limit := self.max_completion_tokens or self.max_tokens:
            options["num_predict"] = limit
        if stop := [self.stop] if isinstance(self.stop, str) else self.stop:
            options["stop"] = stop
        return options

    def _format(self) -> str | dict[str, Any] | None:
        if isinstance(self.response_format, SchemaFormat):
            return self.response_format.json_schema.json_schema or "json"
        if self.response_format is None:
            return None
        return "json" if self.response_format.type == "json_object" else ""

    def _tool_choice(self) -> ToolChoice:
        name = self.tool_choice.function.name if isinstance(self.tool_choice, NamedTool) else None
        return ToolChoice(
            may_call=self.tool_choice != "none",
            must_call=self.tool_choice == "required" or name is not None,
            name=name,
            is_single=self.parallel_tool_calls is False,
        )


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

    async def to_input(self, headers: MochiHeaders) -> CompletionInput:
        """Return the input of the completion. Raises the errors of ``CompletionRequest.to_input``."""
        prompt = self.prompt if isinstance(self.prompt, str) else self.prompt[0]
        with renaming_parameters(TEXT_PARAMETERS):
            fields = {"messages": [{"role": "user", "content": prompt}], "max_tokens": self.max_tokens}
            request = CompletionRequest.model_validate({**self.shared_fields(), **fields})
            return await request.to_input(headers)
