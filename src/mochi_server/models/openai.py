"""Schemas of requests of OpenAI's API, as far as this server speaks it.

Fields that it does not know are left alone, those of OpenAI's that would change the answer and cannot be honoured are
refused.
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
from mochi_server.models.openai_messages import AnyMessage, ImagePart, Some, UserMessage
from mochi_server.openai.asking import Ask
from mochi_server.openai.errors import invalid
from mochi_server.sessions.images import Image
from mochi_server.sessions.types import ToolExecutionPolicy

_THINK: dict[str | None, bool | str] = {"none": False, "minimal": "low", "xhigh": "max"}
"""Levels of reasoning that Ollama has under other names."""


def _only(*values: Any) -> AfterValidator:
    """A field that this server takes with these values alone, besides null."""
    allowed = f"must be {orjson.dumps(values[0]).decode()}, or left out" if values else "must be left out"

    def check(value: Any) -> Any:
        if value is not None and value not in values:
            raise ValueError(f"{allowed}: this server supports nothing else")
        return value

    return AfterValidator(check)


_Unsupported = Annotated[Any, _only(), Field(description="Not supported.")]


class MochiHeaders(BaseModel):
    """What this server is told beside OpenAI's request."""

    session: str | None = Field(
        None, alias="X-Mochi-Session", description="The session whose turn this is; goes before `metadata.session_id`."
    )
    tools: str | None = Field(
        None, alias="X-Mochi-Tools", description="Names of tools of this server that the model may call, with commas."
    )
    policy: ToolExecutionPolicy | None = Field(
        None,
        alias="X-Mochi-Tool-Policy",
        description="Without a session: which calls run. Others are denied, for nobody can be asked.",
    )


HeadersParam = Annotated[MochiHeaders, Header()]


class FunctionTool(Body):
    """A function of the client's that the model may call; ``parameters`` is a JSON schema."""

    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ClientTool(Body):
    """A tool that the client carries out."""

    type: Literal["function"]
    function: FunctionTool

    def schema_for_ollama(self) -> dict[str, Any]:
        parameters = {"type": "object", "properties": {}} | (self.function.parameters or {})
        function = {"name": self.function.name, "description": self.function.description or ""}
        return {"type": "function", "function": function | {"parameters": parameters}}


class NamedFunction(Body):
    """A function by name."""

    name: str


class NamedTool(Body):
    """The one tool that the model should call: it is offered no other."""

    type: Literal["function"]
    function: NamedFunction


class JsonSchema(Body):
    """What the answer must look like."""

    name: str = "answer"
    json_schema: dict[str, Any] | None = Field(default=None, alias="schema")


class PlainFormat(Body):
    """Text, or any JSON object."""

    type: Literal["text", "json_object"]


class SchemaFormat(Body):
    """JSON of a schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


class StreamOptions(Body):
    """``include_usage``: a last chunk tells the tokens."""

    include_usage: bool | None = None


class Metadata(Body):
    """``session_id``: the session whose turn this is. The rest is the client's own."""

    session_id: str | None = None


class CompletionRequest(Body):
    """A conversation to be answered. Null is the same as leaving a field out; unknown fields are left alone."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"model": "qwen3:14b", "messages": [{"role": "user", "content": "Hello!"}]}]}
    )

    model: str = Field(min_length=1, description="A model of Ollama, or `agent:NAME`.")
    messages: Some[AnyMessage] = Field(min_length=1, description="The conversation; in a session, what is new of it.")
    stream: bool | None = Field(None, description="Whether the answer comes in chunks.")
    stream_options: StreamOptions | None = Field(
        None, description="With `include_usage`, a last chunk tells the tokens."
    )
    metadata: Metadata | None = Field(None, description="`session_id` names the session whose turn this is.")
    tools: Some[ClientTool] | None = Field(None, description="Tools that the client carries out.")
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = Field(
        None, description="`required` cannot be enforced, and is as `auto`."
    )
    response_format: Annotated[PlainFormat | SchemaFormat, Field(discriminator="type")] | None = Field(
        None, description="Text, any JSON, or JSON by a schema."
    )
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = Field(
        None, description="Whether, or how much, a model that can think does so."
    )
    max_tokens: int | None = Field(None, ge=1, description="Of the answer, what the model thinks included.")
    max_completion_tokens: int | None = Field(None, ge=1, description="Goes before `max_tokens`.")
    temperature: float | None = Field(
        None, ge=0, le=2, description="How far the model strays from the likeliest words."
    )
    top_p: float | None = Field(
        None, ge=0, le=1, description="Words are chosen from the likeliest that make up this share."
    )
    frequency_penalty: float | None = Field(None, ge=-2, le=2, description="Against words by how often they were said.")
    presence_penalty: float | None = Field(None, ge=-2, le=2, description="Against words that were said.")
    seed: int | None = Field(None, ge=-(2**63), lt=2**63, description="The same seed and request give the same answer.")
    stop: str | Some[str] | None = Field(None, description="Texts before which the answer ends.")
    n: Annotated[int | None, _only(1)] = Field(None, description="1 alone: there is one answer to a request.")
    logprobs: Annotated[bool | None, _only(False)] = Field(None, description="False alone.")
    top_logprobs: Annotated[int | None, _only(0)] = Field(None, description="0 alone.")
    logit_bias: Annotated[dict[str, Any] | None, _only({})] = Field(None, description="Empty alone.")
    modalities: Annotated[list[str] | None, _only(["text"])] = Field(None, description="Text alone.")
    audio: _Unsupported = None
    functions: _Unsupported = Field(None, description="Not supported; `tools` is its successor.")
    function_call: _Unsupported = None
    web_search_options: _Unsupported = None

    async def ask(self, headers: MochiHeaders) -> Ask:
        """The request with its headers, as turns are made of it. Raises ``ValidationFailed``, ``SessionNotFound``."""
        session_id = self.metadata.session_id if headers.session is None and self.metadata else headers.session
        if session_id == "":
            raise SessionNotFound("")
        tools = None if headers.tools is None else [name for part in headers.tools.split(",") if (name := part.strip())]
        names: dict[str, str] = {}
        return Ask(
            model=self.model,
            messages=[message.stored(names) for message in self.messages],
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
                raise invalid(param, f"a message may hold {MAX_IMAGES} images, and this one holds {len(urls)}")
            try:
                images[index] = await read_images(urls)
            except ValidationFailed as error:
                raise invalid(param, error.message) from error
        return images

    def _options(self) -> dict[str, Any]:
        same = {"temperature", "top_p", "frequency_penalty", "presence_penalty", "seed"}
        options = self.model_dump(include=same, exclude_none=True)
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
                raise invalid("tool_choice", f"there is no tool {name!r} in the request")
        return [tool.schema_for_ollama() for tool in tools]
