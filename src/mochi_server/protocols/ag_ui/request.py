"""Requests of AG-UI, and their conversion to turns."""

from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError

from mochi_server.chat.turn_input import ToolSelection, TurnInput
from mochi_server.errors import ValidationFailed
from mochi_server.protocols.frontends import FrontendOptions
from mochi_server.protocols.schemas import joined_text
from mochi_server.protocols.sent_messages import (
    SentMessages,
    check_text,
    decode_images,
    new_message,
)
from mochi_server.protocols.tool_choice import FunctionTool
from mochi_server.schemas.common import Body
from mochi_server.sessions.images import Location
from mochi_server.sessions.turn import Decision
from mochi_server.sessions.types import FiniteObject, Message
from mochi_server.util.validation import Items

if TYPE_CHECKING:  # the package takes 0.15 s to import, so only requests of AG-UI import it
    from ag_ui.core import RunAgentInput

_Model = TypeVar("_Model", bound=BaseModel)
_EXAMPLE = {
    "threadId": "t",
    "runId": "r",
    "messages": [{"id": "m", "role": "user", "content": "Hello!"}],
}


class AgUiRequest(Body, extra="allow", json_schema_extra={"examples": [_EXAMPLE]}):
    """`RunAgentInput` of AG-UI.

    Only the messages after the last answer are new. Unknown fields are ignored.

    `forwardedProps` can contain `think`, `options`, `format`, `keep_alive` and `on_disconnect`.
    """

    thread_id: str = Field(
        alias="threadId", description="ID of the client's conversation. The events repeat it."
    )
    run_id: str = Field(alias="runId", description="ID of the client's run. The events repeat it.")
    messages: Items[dict[str, Any]] = Field(
        description="Messages of the conversation, oldest first."
    )
    tools: Items[dict[str, Any]] | None = Field(None, description="Tools that the client runs.")
    context: Items[dict[str, Any]] | None = Field(
        None, description="Texts that are added to the instructions."
    )
    resume: Items[dict[str, Any]] | None = Field(None, description="Decisions for tool calls.")
    forwarded_props: Any = Field(None, alias="forwardedProps", description="Options of the turn.")

    def to_input(self) -> "RunAgentInput":
        """Return the request as AG-UI's ``RunAgentInput``.

        Raise ``RequestValidationError`` if a field is invalid.
        """
        return validated(_input_model(), self.model_dump(by_alias=True, exclude_unset=True))


@cache
def _input_model() -> "type[RunAgentInput]":
    """Return AG-UI's ``RunAgentInput`` with lists that report only their first invalid item."""
    from ag_ui.core import Context, Message, ResumeEntry, RunAgentInput, Tool  # noqa: PLC0415 - see above

    class Input(RunAgentInput):
        messages: Items[Message]
        tools: Items[Tool] | None = None
        context: Items[Context] | None = None
        resume: Items[ResumeEntry] | None = None

    return Input


def validated(model: type[_Model], value: Any, *location: str | int) -> _Model:
    """Validate the part of the request body at ``location``.

    Raise ``RequestValidationError`` if it is invalid.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problems = []
        for problem in error.errors():
            problems.append({**problem, "loc": ("body", *location, *problem["loc"])})
        body: Any = value
        for step in reversed(location):
            body = {step: body}
        raise RequestValidationError(problems, body=body) from error


class _DecisionPayload(Body):
    approved: bool
    arguments: FiniteObject | None = Field(None, alias="editedArgs")
    reason: str | None = None
    remember: Literal["once", "session"] = "once"


def parse_decisions(run: "RunAgentInput") -> dict[str, Decision]:
    """Return the decisions for tool calls by confirmation ID, if the request contains any."""
    decisions = {}
    for number, entry in enumerate(run.resume or ()):
        payload = entry.payload
        if entry.status == "cancelled":
            payload = False
        if isinstance(payload, bool):
            payload = {"approved": payload}
        elif not isinstance(payload, dict):
            payload = {}
        decision = validated(_DecisionPayload, payload, "resume", number, "payload")
        decisions[entry.interrupt_id] = Decision(**dict(decision))
    return decisions


async def parse(run: "RunAgentInput") -> tuple[TurnInput, SentMessages]:
    """Return the options of a request and its messages.

    Raises ``ValidationFailed`` for an invalid message.
    """
    options = FrontendOptions()
    if isinstance(run.forwarded_props, dict):
        options = validated(FrontendOptions, run.forwarded_props, "forwardedProps")
    sent = await _messages(run)
    tools = []
    for number, tool in enumerate(run.tools or ()):
        tools.append(validated(FunctionTool, dict(tool), "tools", number).to_ollama())
    context = [f"{each.description}: {each.value}" for each in run.context or ()]
    turn = TurnInput(
        generation=options.generation,
        tools=ToolSelection(client_tools=tools),
        instructions="\n\n".join(context) or None,
        on_disconnect=options.on_disconnect,
    )
    return turn, sent


async def _messages(run: "RunAgentInput") -> SentMessages:
    positions = []  # of the messages that the model receives
    last = 0
    for position, message in enumerate(run.messages):
        if message.role not in ("activity", "reasoning"):
            positions.append(position)
            if message.role not in ("system", "developer"):
                last = position
    if not run.messages or run.messages[last].role not in ("user", "tool"):
        problem = "the last message must be a user message or the result of a pending tool call"
        raise ValidationFailed.at(("messages", last), problem)
    messages = [_stored(run.messages[position]) for position in positions]
    images = {}
    index = positions.index(last)
    if messages[index]["role"] == "user":
        urls = _image_urls(run.messages[last].content, last)
        images[index] = await decode_images(urls, ("messages", last))
        check_text(messages[index]["content"], last)
    # An error of the conversation has the position of the last message.
    return SentMessages(messages, images, "compare_all", [last] * len(messages))


def _stored(message: Any) -> Message:
    text = joined_text(message.content)
    if message.role != "tool":
        return new_message("system" if message.role == "developer" else message.role, text)
    texts = dict.fromkeys([text, message.error])
    result = new_message("tool", "\n".join(each for each in texts if each))
    result["tool_call_id"] = message.tool_call_id
    if message.error:
        result["success"] = False
    return result


def _image_urls(content: Any, position: int) -> dict[Location, str]:
    """Return the URLs of the images by their paths in the request."""
    urls: dict[Location, str] = {}
    if isinstance(content, str):
        return urls
    for number, part in enumerate(content):
        if part.type == "text":
            continue
        location: Location = ("messages", position, "content", number)
        url = _image_url(part)
        if not url:
            problem = "must be an image, as base64 or as a data URL; this server accepts no other "
            raise ValidationFailed.at(location, problem + "files")
        urls[location] = url
    return urls


def _image_url(part: Any) -> str:
    """Return the data of an image, or empty text for other files and other URLs."""
    if part.type != "image":
        return ""
    match part.source.type:
        case "data":
            return str(part.source.value)
        case "url" if part.source.value.startswith("data:image/"):
            return str(part.source.value)
    return ""
