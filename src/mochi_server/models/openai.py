"""Request schemas of OpenAI's API, as far as this server supports the API.

Unknown fields are ignored. A known but unsupported field is rejected if it would change the answer.
"""

from typing import Annotated, Any, Literal

import orjson
from fastapi import Header
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from mochi_server.chat.images import read_images
from mochi_server.chat.turn import GenerationOptions
from mochi_server.constants import MAX_IMAGES
from mochi_server.errors import SessionNotFound, ValidationFailed
from mochi_server.models.common import Body
from mochi_server.models.openai_messages import AnyMessage, ImagePart, Items, UserMessage
from mochi_server.openai.errors import invalid_parameter
from mochi_server.openai.request_mapping import CompletionInput
from mochi_server.sessions.images import Image
from mochi_server.sessions.types import ToolExecutionPolicy

_THINK: dict[str | None, bool | str] = {"none": False, "minimal": "low", "xhigh": "max"}
"""Ollama's ``think`` values for OpenAI's reasoning levels. Levels that are not listed have the same name in Ollama."""


def allow(*values: Any) -> AfterValidator:
    """Return a validator that accepts only ``values`` and null."""
    allowed = f"must be {orjson.dumps(values[0]).decode()}, or left out" if values else "must be left out"

    def check(value: Any) -> Any:
        if value is not None and value not in values:
            raise ValueError(f"{allowed}: this server supports no other value")
        return value

    return AfterValidator(check)


_Unsupported = Annotated[Any, allow(), Field(description="Not supported.")]


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


HeadersParam = Annotated[MochiHeaders, Header()]


class FunctionTool(Body):
    """A function of the client that the model may call. ``parameters`` is a JSON schema."""

    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ClientTool(Body):
    """A tool that the client runs."""

    type: Literal["function"]
    function: FunctionTool

    def schema_for_ollama(self) -> dict[str, Any]:
        parameters = {"type": "object", "properties": {}} | (self.function.parameters or {})
        function = {"name": self.function.name, "description": self.function.description or ""}
        return {"type": "function", "function": function | {"parameters": parameters}}


class NamedFunction(Body):
    """Name of a function."""

    name: str


class NamedTool(Body):
    """The tool that the model should call. No other tool is offered."""

    type: Literal["function"]
    function: NamedFunction


class JsonSchema(Body):
    """Schema of the answer."""

    name: str = "answer"
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")


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


class Metadata(Body):
    """``session_id`` is the session of the turn. Other keys have no effect."""

    model_config = ConfigDict(extra="allow")

    session_id: str | None = None


class SamplingFields(Body):
    """Fields that control the sampling of an answer, and the session. Several kinds of requests have these fields."""

    metadata: Metadata | None = Field(None, description="`session_id` is the session of the turn.")
    temperature: float | None = Field(None, ge=0, le=2, description="Sampling temperature.")
    top_p: float | None = Field(None, ge=0, le=1, description="Nucleus sampling: cumulative probability of candidates.")
    frequency_penalty: float | None = Field(None, ge=-2, le=2, description="Penalty for frequent tokens.")
    presence_penalty: float | None = Field(None, ge=-2, le=2, description="Penalty for tokens that already occurred.")
    seed: int | None = Field(None, ge=-(2**63), lt=2**63, description="The same seed and request give the same answer.")
    stop: str | Items[str] | None = Field(None, description="Stop sequences. The answer ends before them.")

    def shared_fields(self) -> dict[str, Any]:
        """Return the fields of this class that are set."""
        return self.model_dump(include=set(SamplingFields.model_fields), exclude_none=True)


class CompletionRequest(SamplingFields):
    """A conversation to answer. A null field counts as absent. Unknown fields are ignored."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"model": "qwen3:14b", "messages": [{"role": "user", "content": "Hello!"}]}]}
    )

    model: str = Field(min_length=1, description="Model of Ollama, or `agent:NAME`.")
    messages: Items[AnyMessage] = Field(min_length=1, description="The conversation; in a session, its new messages.")
    stream: bool | None = Field(None, description="Stream the answer in chunks.")
    stream_options: StreamOptions | None = Field(None, description="`include_usage` adds a chunk with token counts.")
    tools: Items[ClientTool] | None = Field(None, description="Tools that the client runs.")
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = Field(
        None, description="`required` is not enforced; it works like `auto`."
    )
    response_format: Annotated[PlainFormat | SchemaFormat, Field(discriminator="type")] | None = Field(
        None, description="Text, any JSON object, or JSON that matches a schema."
    )
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = Field(
        None, description="Level of reasoning of a model that can think."
    )
    max_tokens: int | None = Field(None, ge=1, description="Maximum tokens of the answer, with reasoning.")
    max_completion_tokens: int | None = Field(None, ge=1, description="Overrides `max_tokens`.")
    n: Annotated[int | None, allow(1)] = Field(None, description="Only 1 is supported.")
    logprobs: Annotated[bool | None, allow(False)] = Field(None, description="Only `false` is supported.")
    top_logprobs: Annotated[int | None, allow(0)] = Field(None, description="Only 0 is supported.")
    logit_bias: Annotated[dict[str, Any] | None, allow({})] = Field(None, description="Only `{}` is supported.")
    modalities: Annotated[list[str] | None, allow(["text"])] = Field(None, description="Only `text` is supported.")
    audio: _Unsupported = None
    functions: _Unsupported = Field(None, description="Not supported. Use `tools`.")
    function_call: _Unsupported = None
    web_search_options: _Unsupported = None

    async def to_input(self, headers: MochiHeaders) -> CompletionInput:
        """Return the input of the completion.

        Raises:
            ValidationFailed: The images or ``tool_choice`` are invalid.
            SessionNotFound: The session ID is empty.
        """
        session_id = self.metadata.session_id if headers.session is None and self.metadata else headers.session
        if session_id == "":
            raise SessionNotFound("")
        tools = None if headers.tools is None else [name for part in headers.tools.split(",") if (name := part.strip())]
        names: dict[str, str] = {}
        return CompletionInput(
            model=self.model,
            messages=[message.to_stored(names) for message in self.messages],
            images=await self._images(),
            generation=GenerationOptions(
                think=_THINK.get(self.reasoning_effort, self.reasoning_effort),
                options=self._options() or None,
                format=self._format(),
            ),
            client_tools=self._client_tools(),
            may_call=self.tool_choice != "none",
            tools=tools,
            policy=headers.policy,
            session_id=session_id,
        )

    async def _images(self) -> dict[int, tuple[Image, ...]]:
        images = {}
        for index, message in enumerate(self.messages):
            param = f"messages[{index}].content"
            parts = message.content if isinstance(message, UserMessage) else ()
            urls = [part.image_url.url for part in parts if isinstance(part, ImagePart)]
            if not urls:
                continue
            if len(urls) > MAX_IMAGES:
                raise invalid_parameter(param, f"the message has {len(urls)} images, and the limit is {MAX_IMAGES}")
            try:
                images[index] = await read_images(urls)
            except ValidationFailed as error:
                raise invalid_parameter(param, error.message) from error
        return images

    def _options(self) -> dict[str, Any]:
        unchanged = {"temperature", "top_p", "frequency_penalty", "presence_penalty", "seed"}
        options = self.model_dump(include=unchanged, exclude_none=True)
        if limit := self.max_completion_tokens or self.max_tokens:
            options["num_predict"] = limit
        if stop := [self.stop] if isinstance(self.stop, str) else self.stop:
            options["stop"] = stop
        return options

    def _format(self) -> str | dict[str, Any] | None:
        if isinstance(self.response_format, SchemaFormat):
            return self.response_format.json_schema.json_schema or "json"
        return "json" if self.response_format and self.response_format.type == "json_object" else None

    def _client_tools(self) -> list[dict[str, Any]]:
        tools = self.tools or []
        if isinstance(self.tool_choice, NamedTool):
            name = self.tool_choice.function.name
            tools = [tool for tool in tools if tool.function.name == name]
            if not tools:
                raise invalid_parameter("tool_choice", f"the tool {name!r} is not in `tools`")
        return [tool.schema_for_ollama() for tool in tools]
