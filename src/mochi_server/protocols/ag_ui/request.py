"""Conversion of requests of AG-UI to the input of a turn, or to decisions for tool calls."""

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from mochi_server.chat.images import Location
from mochi_server.chat.turn_input import ToolSelection, TurnInput
from mochi_server.errors import ValidationFailed
from mochi_server.models.common import Body
from mochi_server.protocols.ag_ui.schemas import validated
from mochi_server.protocols.conversation import SentMessages
from mochi_server.protocols.messages import check_text, decode_images, new_message, unknown_call
from mochi_server.protocols.schemas import FrontendOptions, FunctionTool
from mochi_server.sessions.types import FiniteObject, Message, Role
from mochi_server.tools.toolbox import Decision

if TYPE_CHECKING:  # the package takes 0.15 s to import, so only requests of AG-UI import it
    from ag_ui.core import ContentPart, ResumeEntry, RunAgentInput, Tool

_LAST = "the last message must be a user message or the result of a pending tool call"


class _DecisionPayload(Body):
    approved: bool
    arguments: FiniteObject | None = Field(None, alias="editedArgs")
    reason: str | None = None
    remember: Literal["once", "session"] = "once"


def parse_decisions(run: "RunAgentInput") -> dict[str, Decision]:
    """Return the decisions for tool calls by confirmation ID, if the request contains any."""
    return dict(_decision(number, entry) for number, entry in enumerate(run.resume or ()))


async def parse(run: "RunAgentInput") -> tuple[TurnInput, SentMessages]:
    """Return the options of a request and its messages. Raises ``ValidationFailed`` for an invalid message."""
    options = FrontendOptions()
    if isinstance(run.forwarded_props, dict):
        options = validated(FrontendOptions, run.forwarded_props, "forwardedProps")
    positions = [n for n, m in enumerate(run.messages) if m.role not in ("activity", "reasoning")]
    last = positions[-1] if positions else 0
    if not positions or run.messages[last].role not in ("user", "tool"):
        raise ValidationFailed.at(("messages", last), _LAST)
    _check_results(run, positions)
    messages = [_stored(run.messages[position]) for position in positions]
    images = {}
    if messages[-1]["role"] == "user":
        urls = _image_urls(run.messages[last].content, last)
        images = {len(messages) - 1: await decode_images(urls, ("messages", last))}
        check_text(messages[-1]["content"], last)
    turn = TurnInput(
        generation=options.generation,
        tools=ToolSelection(client_tools=[_tool(number, tool) for number, tool in enumerate(run.tools or ())]),
        instructions="\n\n".join(f"{each.description}: {each.value}" for each in run.context or ()) or None,
        on_disconnect=options.on_disconnect,
    )
    # An error of the conversation has the position of the last message.
    return turn, SentMessages(messages, images, "compare_all", [last] * len(messages))


def _check_results(run: "RunAgentInput", positions: list[int]) -> None:
    """Raise ``ValidationFailed`` if the request has the result of a tool call without an earlier tool call."""
    called: set[str] = set()
    for position in positions:
        message: Any = run.messages[position]
        if message.role == "assistant":
            called |= {call.id for call in message.tool_calls or ()}
        elif message.role == "tool" and message.tool_call_id not in called:
            raise ValidationFailed.at(("messages", position, "toolCallId"), unknown_call(message.tool_call_id))


def _decision(number: int, entry: "ResumeEntry") -> tuple[str, Decision]:
    if entry.status == "cancelled":
        return entry.interrupt_id, Decision(approved=False)
    payload = {"approved": entry.payload} if isinstance(entry.payload, bool) else entry.payload
    decision = validated(_DecisionPayload, payload if isinstance(payload, dict) else {}, "resume", number, "payload")
    return entry.interrupt_id, Decision(**dict(decision))


def _tool(number: int, tool: "Tool") -> dict[str, Any]:
    return validated(FunctionTool, dict(tool), "tools", number).to_ollama()


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


def _image_urls(content: Any, position: int) -> dict[Location, str]:
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
