"""Requests of AG-UI, and their conversion to turns."""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

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
    new_result,
)
from mochi_server.protocols.tool_choice import FunctionTool, ollama_tools
from mochi_server.schemas.common import Body, UnstoredBody
from mochi_server.services.attachments import DEFAULT_NAME, EncodedFile, read_attachments
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
_CONTEXT = {
    "properties": {"description": {"type": "string"}, "value": {"type": "string"}},
    "required": ["description", "value"],
}
_TOOL = {
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "description": {"type": "string"},
        "parameters": {"type": ["object", "null"]},
        "metadata": {"type": ["object", "null"]},
    },
    "required": ["name", "description"],
}
_DECISION = {
    "properties": {
        "interruptId": {"type": "string"},
        "status": {"enum": ["resolved", "cancelled"]},
        "metadata": {"type": ["object", "null"]},
    },
    "required": ["interruptId", "status"],
}


class AgUiRequest(UnstoredBody, extra="allow", json_schema_extra={"examples": [_EXAMPLE]}):
    """`RunAgentInput` of AG-UI.

    Only the last user message after the last answer, and the results of pending calls, are new.
    With `resume`, the messages are ignored. Unknown fields are ignored.

    `forwardedProps` can contain `think`, `options`, `format`, `keep_alive` and `on_disconnect`.
    """

    thread_id: str = Field(
        alias="threadId", description="ID of the client's conversation. The events repeat it."
    )
    run_id: str = Field(alias="runId", description="ID of the client's run. The events repeat it.")
    messages: Items[dict[str, Any]] = Field(
        description="Messages of the conversation, oldest first."
    )
    tools: Items[Annotated[dict[str, Any], Field(json_schema_extra=_TOOL)]] | None = Field(
        None, description="Tools that the client runs."
    )
    context: Items[Annotated[dict[str, Any], Field(json_schema_extra=_CONTEXT)]] | None = Field(
        None, description="Texts that are added to the instructions."
    )
    resume: Items[Annotated[dict[str, Any], Field(json_schema_extra=_DECISION)]] | None = Field(
        None, description="Decisions for tool calls."
    )
    forwarded_props: Any = Field(None, alias="forwardedProps", description="Options of the turn.")

    def to_input(self) -> "RunAgentInput":
        """Return the request as AG-UI's ``RunAgentInput``.

        Raise ``RequestValidationError`` if a field is invalid.
        """
        body = self.model_dump(by_alias=True, exclude_unset=True)
        body["messages"] = [_without_binary_parts(message) for message in self.messages]
        return validated(_input_model(), body)


def _without_binary_parts(message: dict[str, Any]) -> dict[str, Any]:
    """Return the message with its parts of the type `binary`, of AG-UI before 1.0, converted."""
    if not isinstance(message.get("content"), list):
        return message
    parts = []
    for part in message["content"]:
        match part:
            case {"type": "binary", "mimeType": str(media_type)}:
                parts.append(_media_part(media_type, part))
            case _:
                parts.append(part)
    return {**message, "content": parts}


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


def _media_part(media_type: str, binary: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a part of the type `binary` to a part of AG-UI 1.0."""
    source = {"type": "url", "value": binary.get("url"), "mimeType": media_type}
    if binary.get("data") is not None:
        source = {"type": "data", "value": binary["data"], "mimeType": media_type}
    return {
        "type": "image" if media_type.startswith("image/") else "document",
        "source": source,
        "metadata": {"filename": binary.get("filename")},
    }


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
    """Return the decisions for tool calls by confirmation ID, if the request contains any.

    Raises ``RequestValidationError``.
    """
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

    Raises ``ValidationFailed`` for an invalid message, and ``RequestValidationError`` for invalid
    options or tools.
    """
    options = FrontendOptions()
    if isinstance(run.forwarded_props, dict):
        options = validated(FrontendOptions, run.forwarded_props, "forwardedProps")
    sent = await _messages(run)
    tools = []
    for number, tool in enumerate(run.tools or ()):
        tools.append(validated(FunctionTool, dict(tool), "tools", number))
    context = [f"{each.description}: {each.value}" for each in run.context or ()]
    turn = TurnInput(
        generation=options.generation,
        tools=ToolSelection(client_tools=ollama_tools(tools)),
        instructions="\n\n".join(context) or None,
        on_disconnect=options.on_disconnect or "cancel",
    )
    return turn, sent


async def _messages(run: "RunAgentInput") -> SentMessages:
    positions = []  # of the messages that the model receives
    last = 0  # position of the last message that is no instruction
    last_user: int | None = None
    for position, message in enumerate(run.messages):
        if message.role in ("activity", "reasoning"):
            continue
        positions.append(position)
        if message.role not in ("system", "developer"):
            last = position
        if message.role == "user":
            last_user = position
    # An assistant message can ask for a new answer.
    if not run.messages or run.messages[last].role not in ("user", "tool", "assistant"):
        problem = "the last message must be a user message or the result of a pending tool call"
        raise ValidationFailed.at(("messages", last), problem)
    messages = [_stored(run.messages[position]) for position in positions]
    images = {}
    attachments = {}
    if last_user is not None and run.messages[last].role != "tool":
        index = positions.index(last_user)
        urls, files = _files(run.messages[last_user].content, last_user)
        images[index] = await decode_images(urls, ("messages", last_user))
        attachments[index] = await read_attachments(files)
        check_text(messages[index]["content"], last_user)
    # An error of the conversation has the position of the last message.
    positions_in_errors = [last] * len(messages)
    return SentMessages(
        messages, images, "compare_all", positions_in_errors, attachments=attachments
    )


def _stored(message: Any) -> Message:
    text = joined_text(message.content)
    if message.role != "tool":
        return new_message("system" if message.role == "developer" else message.role, text)
    different_texts = dict.fromkeys([text, message.error])
    result = new_result("\n".join(each for each in different_texts if each))
    result["tool_call_id"] = message.tool_call_id
    if message.error:
        result["success"] = False
    return result


def _files(content: Any, position: int) -> tuple[dict[Location, str], dict[Location, EncodedFile]]:
    """Return the data of the images, and the other files, by their paths in the request."""
    images: dict[Location, str] = {}
    files: dict[Location, EncodedFile] = {}
    if isinstance(content, str):
        return images, files
    for number, part in enumerate(content):
        if part.type == "text":
            continue
        location: Location = ("messages", position, "content", number)
        source = part.source
        if source.type != "data" and not source.value.startswith("data:"):
            problem = "must be base64 or a data URL; this server does not download files"
            raise ValidationFailed.at(location, problem)
        if part.type == "image":
            images[location] = source.value
        else:
            files[location] = EncodedFile(_name(part.metadata), source.value, source.mime_type)
    return images, files


def _name(metadata: Any) -> str:
    """Return the name of a file in its metadata."""
    match metadata:
        case {"filename": str(name)}:
            return name
    return DEFAULT_NAME
