"""Requests of the Responses API, and their conversion to turns."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from mochi_server.chat.turn_input import TurnInput
from mochi_server.errors import ValidationFailed
from mochi_server.protocols.answer_request import AnswerRequest
from mochi_server.protocols.headers import MochiHeaders
from mochi_server.protocols.responses.items import InputItem, to_messages
from mochi_server.protocols.responses.previous import check_previous
from mochi_server.protocols.responses.tools import (
    Functions,
    ResponseTool,
    omitted_types,
    without_other_tools,
)
from mochi_server.protocols.schemas import (
    PlainFormat,
    SchemaTextFormat,
    TextOr,
    TokenLimit,
    Unsupported,
    allow,
)
from mochi_server.protocols.sent_messages import SentMessages
from mochi_server.protocols.tool_choice import (
    PARALLEL,
    TOOL_CHOICE,
    AllowedFunctions,
    NamedFunction,
    WordOr,
    ollama_tools,
    tool_selection,
)
from mochi_server.schemas.common import Body, Text
from mochi_server.util.validation import Items

_LOGPROBS = "message.output_text.logprobs"
_OtherLimit = Annotated[
    Any, allow(reason="use `max_output_tokens`"), Field(description="Not supported.")
]


def _without_logprobs(include: list[str] | None) -> list[str] | None:
    if include and _LOGPROBS in include:
        raise ValueError(f"`{_LOGPROBS}` is not supported; leave it out")
    return include


class NamedResponseFunction(NamedFunction):
    """The function that the model must call.

    The server does not offer any other function to the model.
    """

    type: Literal["function", "custom"]


def _without_other_tools(choice: Any, info: ValidationInfo) -> Any:
    tools = info.data.get("tools")
    return without_other_tools(choice, tools or ())


_Choice = WordOr[Annotated[NamedResponseFunction | AllowedFunctions, Field(discriminator="type")]]


class TextOptions(Body):
    """Options for the text of the answer."""

    format: Annotated[PlainFormat | SchemaTextFormat, Field(discriminator="type")] | None = None


_REPEATED = {
    "model",
    "instructions",
    "previous_response_id",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "temperature",
    "top_p",
    "max_output_tokens",
}
"""Fields of the request that its response repeats."""
_DEFAULTS: dict[str, Any] = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
"""Values of repeated fields that are not set."""


class ResponseRequest(
    AnswerRequest,
    json_schema_extra={"examples": [{"model": "qwen3:14b", "input": "Hello!"}]},
):
    """Input to answer. A null field counts as absent. Unknown fields are ignored."""

    input: TextOr[Annotated[Items[InputItem], Field(min_length=1)]] = Field(
        description="A message, or items."
    )
    instructions: Text | None = Field(None, description="System message of this request.")
    previous_response_id: str | None = Field(
        None,
        description="Response to continue. In a session, the latest one; else one of the last "
        "hour.",
    )
    store: bool | None = Field(
        None, description="If `false`, later requests cannot refer to the output items."
    )
    tools: Items[ResponseTool] | None = Field(
        None, description="Functions and custom tools that the client runs, and namespaces."
    )
    tool_choice: Annotated[_Choice | None, BeforeValidator(_without_other_tools)] = Field(
        None, description=TOOL_CHOICE
    )
    parallel_tool_calls: bool | None = Field(None, description=PARALLEL)
    text: TextOptions | None = Field(
        None, description="`format`: text, any JSON object, or JSON that fits a schema."
    )
    max_output_tokens: TokenLimit | None = Field(
        None, description="Maximum tokens of the answer, with reasoning."
    )
    include: Annotated[Items[str] | None, AfterValidator(_without_logprobs)] = Field(
        None, description=f"No effect. `{_LOGPROBS}` is not supported."
    )
    max_tokens: _OtherLimit = None
    max_completion_tokens: _OtherLimit = None
    logprobs: Annotated[bool | None, allow(False)] = Field(
        None, description="Only `false` is supported."
    )
    top_logprobs: Annotated[int | None, allow(0)] = Field(None, description="Only 0 is supported.")
    response_format: Annotated[Any, allow(reason="use `text.format`")] = Field(
        None, description="Not supported."
    )
    background: bool | None = Field(
        None, description="Return the response at once. Get or cancel it by its ID later."
    )
    conversation: Unsupported = Field(None, description="Not supported. Use a session.")
    prompt: Unsupported = None
    max_tool_calls: Unsupported = None

    @property
    def text_format(self) -> PlainFormat | SchemaTextFormat | None:
        """Format of the answer, or None if the request sets none. A session then uses its own."""
        return self.text.format if self.text else None

    def repeated_fields(self) -> dict[str, Any]:
        """Return the fields of the request that the response repeats."""
        fields = self.model_dump(include=_REPEATED, by_alias=True)
        for name, value in _DEFAULTS.items():
            if fields[name] is None:
                fields[name] = value
        metadata = self.metadata.model_dump(exclude_none=True) if self.metadata else {}
        answer_format = {"type": "text"}
        if self.text_format:
            answer_format = self.text_format.model_dump(by_alias=True)
        effort = self.reasoning.effort if self.reasoning else None
        return fields | {
            "metadata": metadata,
            "text": {"format": answer_format},
            "reasoning": {"effort": effort, "summary": None},
        }


async def parse(
    request: ResponseRequest,
    headers: MochiHeaders,
    items: Sequence[InputItem],
    functions: Functions,
) -> tuple[TurnInput, SentMessages]:
    """Return the options of a request and the messages of the conversation ``items``.

    Raises ``ValidationFailed``.
    """
    if request.background and request.store is False:
        raise ValidationFailed.at(
            "store", "a response in the background must be stored; leave out this field"
        )
    tools = []
    names = {}
    for name, offered in functions.items():
        tools.append(offered.function.model_copy(update={"name": name}))
        names[offered.namespace, offered.function.name] = name
    selection = tool_selection(
        headers.tool_names,
        ollama_tools(tools),
        request.tool_choice,
        parallel=request.parallel_tool_calls,
        omits_tools=bool(omitted_types(request.tools or ())),
    )
    turn = request.turn(
        headers,
        selection,
        limit=request.max_output_tokens,
        answer_format=request.text_format.to_ollama() if request.text_format else None,
    )
    if request.background:  # in a session, clients of the native API can approve its tool calls
        is_session = request.session_id(headers) is not None
        turn = replace(turn, on_disconnect="continue", interactive=is_session)
    sent_items = 1 if isinstance(request.input, str) else len(request.input)
    earlier = len(items) - sent_items
    sent = await to_messages(request.instructions, items, names, earlier=earlier)
    return turn, replace(sent, check=partial(check_previous, request.previous_response_id))
