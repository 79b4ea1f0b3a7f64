"""Requests of Anthropic's Messages API, and their conversion to turns."""

from typing import Any, Literal

from pydantic import Field, model_validator

from mochi_server.chat.turn_input import GenerationOptions, TurnInput
from mochi_server.constants import ANSWER_TOKENS
from mochi_server.errors import ValidationFailed
from mochi_server.protocols.answer_request import Effort, think_value
from mochi_server.protocols.anthropic.blocks import AnyMessage, to_messages
from mochi_server.protocols.anthropic.errors import ThreadUnsupported
from mochi_server.protocols.headers import MochiHeaders
from mochi_server.protocols.schemas import SchemaTextFormat, TextOr, TextPart, TokenLimit
from mochi_server.protocols.sent_messages import SentMessages
from mochi_server.protocols.tool_choice import (
    FunctionTool,
    NamedFunction,
    ollama_tools,
    tool_selection,
)
from mochi_server.schemas.common import Body, ToolParameters, UnstoredBody
from mochi_server.util.validation import Items

_CUSTOM = (None, "custom")
"""Types of the tools that the client defines.

The server omits all other tools, because Anthropic defines them.
"""


class Tool(FunctionTool):
    """A tool that the client runs. The server omits tools that Anthropic defines."""

    type: str | None = None
    parameters: ToolParameters | None = Field(None, alias="input_schema")

    @model_validator(mode="before")
    @classmethod
    def _name_from_type(cls, data: Any) -> Any:
        """Name a tool that Anthropic defines by its type if it has no name."""
        if not isinstance(data, dict) or data.get("type") in _CUSTOM:
            return data
        return {"name": data["type"], **data}


class ToolChoice(Body):
    """Whether the model may or must call a tool. `tool` requires a call of the tool ``name``."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None

    def choice(self) -> str | NamedFunction:
        """Return the choice in the form that all protocols share.

        Raises ``ValidationFailed`` if the name of the tool is missing.
        """
        match self.type:
            case "any":
                return "required"
            case "tool":
                if self.name is None:
                    raise ValidationFailed.at(("tool_choice", "name"), "Field required")
                return NamedFunction(name=self.name)
        return self.type


class Thinking(Body):
    """Whether the model thinks. The server ignores `budget_tokens`."""

    type: Literal["enabled", "adaptive", "disabled"]


class OutputConfig(Body):
    """Options of the answer. ``effort`` is the level of thinking, if the model thinks."""

    effort: Effort | None = None
    format: SchemaTextFormat | None = None


class ConversationRequest(UnstoredBody):
    """Base of the requests with a conversation."""

    model: str = Field(min_length=1, description="Model of Ollama, or `agent:NAME`.")
    messages: Items[AnyMessage] = Field(
        min_length=1, description="The conversation; in a session, its new messages."
    )
    system: TextOr[Items[TextPart]] | None = Field(None, description="Instructions for the model.")
    tools: Items[Tool] | None = Field(None, description="Tools that the client runs.")
    tool_choice: ToolChoice | None = Field(
        None, description="It is enforced for the first answer of the turn."
    )
    thinking: Thinking | None = Field(
        None, description="Without this field, the session's default applies."
    )
    output_config: OutputConfig | None = Field(
        None, description="Level of thinking, and format of the answer."
    )
    thread: Any = Field(None, description="Not supported. The client sends whole conversations.")


class CountRequest(ConversationRequest):
    """A conversation.

    A null field counts as absent. Unknown fields, such as `cache_control`, are ignored.
    """


_EXAMPLE = {
    "model": "qwen3:14b",
    "max_tokens": 1024,
    "messages": [{"role": "user", "content": "Hello!"}],
}


class MessageRequest(ConversationRequest, json_schema_extra={"examples": [_EXAMPLE]}):
    """A conversation to answer. A null field counts as absent. Unknown fields are ignored."""

    max_tokens: TokenLimit = Field(
        description="Maximum tokens of the answer, with thinking. -1 sets no limit."
    )
    stream: bool | None = Field(None, description="Stream the answer.")
    temperature: float | None = Field(None, ge=0, le=1, description="Sampling temperature.")
    top_p: float | None = Field(
        None, ge=0, le=1, description="Nucleus sampling: cumulative probability of candidates."
    )
    top_k: int | None = Field(None, ge=0, description="Number of candidates for the next token.")
    stop_sequences: Items[str] | None = Field(
        None, description="Stop sequences. The answer ends before them."
    )


_OPTIONS = {
    "max_tokens": "num_predict",
    "stop_sequences": "stop",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
}
"""Mapping of fields of the request to Ollama's options."""


async def parse(
    request: ConversationRequest, headers: MochiHeaders
) -> tuple[TurnInput, SentMessages]:
    """Return the options of a request and its messages.

    A choice of an omitted tool counts as `auto`.

    Raises ``ValidationFailed`` for an invalid message or choice of a tool, and
    ``ThreadUnsupported``.
    """
    if request.thread is not None:
        raise ThreadUnsupported
    wanted = request.tool_choice or ToolChoice(type="auto")
    custom = [tool for tool in request.tools or () if tool.type in _CUSTOM]
    omitted = omitted_names(request)
    choice = wanted.choice()
    if wanted.type == "tool" and wanted.name in omitted:
        choice = "auto"
    selection = tool_selection(
        headers.tool_names,
        ollama_tools(custom),
        choice,
        parallel=not wanted.disable_parallel_tool_use,
        takes_text=False,
        omits_tools=bool(omitted),
    )
    sent = await to_messages(request.system, request.messages)
    for index, message in enumerate(sent.messages):
        # In a session, the call can be stored.
        if message["role"] == "tool" and "tool_name" not in message and headers.session is None:
            problem = f"no earlier message has a tool call with the ID {message['tool_call_id']!r}"
            raise sent.error(problem, index)
    return headers.turn(request.model, _generation(request), selection), sent


def _generation(request: ConversationRequest) -> GenerationOptions:
    output = request.output_config or OutputConfig()
    think = None
    if request.thinking is not None:
        think = request.thinking.type != "disabled"
    fields = request.model_dump(include=set(_OPTIONS), exclude_none=True)
    options = {_OPTIONS[name]: value for name, value in fields.items()}
    return GenerationOptions(
        think,
        options,
        output.format.to_ollama() if output.format else None,
        answer_tokens=ANSWER_TOKENS,
        think_level=think_value(output.effort) if output.effort else None,
    )


def omitted_names(request: ConversationRequest) -> list[str]:
    """Return the names of the tools that Anthropic defines, which the model does not receive."""
    return [tool.name for tool in request.tools or () if tool.type not in _CUSTOM]
