"""Request schema of AG-UI."""

from dataclasses import replace
from functools import cache, partial, reduce
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from mochi_server.chat.images import Location
from mochi_server.errors import ValidationFailed
from mochi_server.frontends.runs import FrontendRequest, TurnPlan
from mochi_server.models.common import Body, decode_images
from mochi_server.models.frontends import FrontendOptions, check_text
from mochi_server.models.openai import FunctionTool
from mochi_server.openai.request_mapping import CompletionInput, new_message, to_session_turn_request, tool_schema
from mochi_server.sessions.generation_settings import FiniteObject
from mochi_server.sessions.images import Image
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import Message, Role
from mochi_server.tools.toolbox import Decision
from mochi_server.util.first_error import Items

if TYPE_CHECKING:  # the package takes 0.15 s to import, so only requests of AG-UI import it
    from ag_ui.core import ContentPart, ResumeEntry, RunAgentInput, Tool

_LAST = "the last message must be a user message or the result of a pending tool call"
_MAX_PARTS = 1000
"""Maximum number of parts or tool calls in one message."""
_Model = TypeVar("_Model", bound=BaseModel)


def _limit_lists(message: dict[str, Any]) -> dict[str, Any]:
    for name, value in message.items():
        if isinstance(value, list) and len(value) > _MAX_PARTS:
            raise ValueError(f"{name} has {len(value)} entries; at most {_MAX_PARTS} are allowed")
    return message


class AgUiRequest(Body):
    """`RunAgentInput` of AG-UI. Only the messages after the last answer are new. The session already has the
    earlier messages.

    `forwardedProps` can contain `think`, `options`, `format`, `keep_alive` and `on_disconnect`. `state` and unknown
    fields are ignored.
    """

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "Hello!"}]}
            ]
        },
    )

    thread_id: str = Field(alias="threadId", description="ID of the client's conversation. The events repeat it.")
    run_id: str = Field(alias="runId", description="ID of the client's run. The events repeat it.")
    messages: Items[Annotated[dict[str, Any], AfterValidator(_limit_lists)]] = Field(
        description="Messages of the conversation, oldest first."
    )
    tools: Items[dict[str, Any]] | None = Field(None, description="Tools that the client runs.")
    context: Items[dict[str, Any]] | None = Field(None, description="Texts that are added to the instructions.")
    resume: Items[dict[str, Any]] | None = Field(None, description="Decisions for tool calls.")
    forwarded_props: Any = Field(None, alias="forwardedProps", description="Options of the turn.")

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON schema of this class, with AG-UI's own schemas for the fields that are lists."""
        from ag_ui.core import RunAgentInput  # noqa: PLC0415 - see above

        own, protocol = handler(schema), RunAgentInput.model_json_schema()
        fields = handler.resolve_ref_schema(own)["properties"]
        for name in ("messages", "tools", "context", "resume"):
            fields[name] |= _inlined(protocol["properties"][name], protocol["$defs"])
        return own

    def to_input(self) -> "RunAgentInput":
        """Return the request as AG-UI's ``RunAgentInput``. Raise ``RequestValidationError`` if a field is invalid."""
        return _validated(_input_model(), self.model_dump(by_alias=True, exclude_unset=True))


class _DecisionPayload(Body):
    approved: bool
    arguments: FiniteObject | None = Field(None, alias="editedArgs")
    reason: str | None = None
    remember: Literal["once", "session"] = "once"


async def to_request(run: "RunAgentInput") -> FrontendRequest:
    """Convert a request to decisions for tool calls, or to a turn. Raise ``ValidationFailed`` if it is invalid."""
    if run.resume:
        return FrontendRequest(decisions=dict(_decision(number, entry) for number, entry in enumerate(run.resume)))
    conversation = _Conversation(run)
    return FrontendRequest(partial(conversation.plan, await conversation.turn()))


def _decision(number: int, entry: "ResumeEntry") -> tuple[str, Decision]:
    if entry.status == "cancelled":
        return entry.interrupt_id, Decision(approved=False)
    payload = {"approved": entry.payload} if isinstance(entry.payload, bool) else entry.payload
    decision = _validated(_DecisionPayload, payload if isinstance(payload, dict) else {}, "resume", number, "payload")
    return entry.interrupt_id, Decision(**dict(decision))


class _Conversation:
    """Converter of the messages of an AG-UI request to a turn."""

    def __init__(self, run: "RunAgentInput") -> None:
        self._run = run
        self._options = FrontendOptions()
        if isinstance(run.forwarded_props, dict):
            self._options = _validated(FrontendOptions, run.forwarded_props, "forwardedProps")
        self._positions = [n for n, m in enumerate(run.messages) if m.role not in ("activity", "reasoning")]
        if not self._positions:
            raise ValidationFailed.at(("messages", 0), _LAST)
        self._last = self._positions[-1]

    async def turn(self) -> CompletionInput:
        """Convert the messages to a completion request, which ``plan`` later converts to a turn of a session."""
        messages: list[Message] = []
        images: tuple[Image, ...] = ()
        called: set[str] = set()
        for position in self._positions:
            message = self._run.messages[position]
            if message.role == "assistant":
                called |= {call.id for call in message.tool_calls or ()}
            elif message.role == "tool" and message.tool_call_id not in called:
                problem = f"no earlier message has a tool call with the ID {message.tool_call_id!r}"
                raise ValidationFailed.at(("messages", position, "toolCallId"), problem)
            if position == self._last and message.role == "user" and (urls := _image_urls(message.content, position)):
                images = await decode_images(urls, ("messages", position))
            messages.append(_stored(message))
        if messages[-1]["role"] not in ("user", "tool"):
            raise ValidationFailed.at(("messages", self._last), _LAST)
        if messages[-1]["role"] == "user":
            check_text(messages[-1]["content"], self._last)
        messages[:0] = [new_message("system", f"{each.description}: {each.value}") for each in self._run.context or ()]
        return CompletionInput(
            model="",
            messages=messages,
            images={len(messages) - 1: images},
            generation=self._options.generation,
            client_tools=[_tool(number, tool) for number, tool in enumerate(self._run.tools or ())],
        )

    def plan(self, request: CompletionInput, session: ChatSession) -> TurnPlan:
        """Return the turn for a session. Without a new message, the turn answers the last user message again."""
        names = {call.get("id") for m in session.history for call in m.get("tool_calls") or ()}
        # The IDs of calls that the server ran are not stored.
        messages = [m for m in request.messages if m["role"] != "tool" or m.get("tool_call_id") in names]
        sent = [m["content"] for m in messages if m["role"] == "user"]
        stored = [m["content"] for m in session.history if m["role"] == "user"]
        images = {len(messages) - 1: of_message for of_message in request.images.values()}
        try:
            turn = to_session_turn_request(session, replace(request, messages=messages, images=images))
        except ValidationFailed as error:
            raise ValidationFailed.at(("messages", self._last), error.message.removeprefix("messages: ")) from error
        if messages[-1]["role"] == "user" and sent == stored:
            turn = replace(turn, message=None, images=(), continues=False)
        return TurnPlan(replace(turn, interactive=True, on_disconnect=self._options.on_disconnect))


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


def _validated(model: type[_Model], value: Any, *location: str | int) -> _Model:
    """Validate the part of the request body at ``location``. Raise ``RequestValidationError`` if it is invalid."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        problems = [{**problem, "loc": ("body", *location, *problem["loc"])} for problem in error.errors()]
        body: Any = reduce(lambda inner, step: {step: inner}, reversed(location), value)
        raise RequestValidationError(problems, body=body) from error


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """Return a JSON schema without references and descriptions. Fields with a constant value are required."""
    if isinstance(schema, list):
        return [_inlined(entry, definitions) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    dropped = {"title", "description", "default", "discriminator", "properties"}
    inlined = {key: _inlined(value, definitions) for key, value in schema.items() if key not in dropped}
    if (fields := schema.get("properties")) is not None:
        inlined["properties"] = {name: _inlined(field, definitions) for name, field in fields.items()}
        constants = [name for name, field in fields.items() if "const" in field]
        inlined["required"] = [*constants, *(name for name in schema.get("required", ()) if name not in constants)]
    return inlined


def _tool(number: int, tool: "Tool") -> dict[str, Any]:
    function = _validated(FunctionTool, dict(tool), "tools", number)
    return tool_schema(function.name, tool.description, function.parameters)


def _stored(message: Any) -> Message:
    if message.role == "tool":
        texts = dict.fromkeys(filter(None, (_text(message.content), message.error)))
        result: Message = {**new_message("tool", "\n".join(texts)), "tool_call_id": message.tool_call_id}
        return {**result, "success": False} if message.error else result
    role: Role = "system" if message.role == "developer" else message.role
    return new_message(role, _text(message.content))


def _text(content: "str | list[ContentPart] | None") -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text for part in content if part.type == "text")


def _image_urls(content: "str | list[ContentPart]", position: int) -> dict[Location, str]:
    urls: dict[Location, str] = {}
    for number, part in enumerate(content if not isinstance(content, str) else ()):
        if part.type == "text":
            continue
        location, source = ("messages", position, "content", number), part.source
        url = source.value if source.type in ("data", "url") else ""
        if part.type != "image" or (source.type == "url" and not url.startswith("data:image/")) or not url:
            problem = "must be an image, as base64 or as a data URL; this server accepts no other files"
            raise ValidationFailed.at(location, problem)
        urls[location] = url
    return urls
