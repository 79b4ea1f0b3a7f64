"""Mapping of completion requests in OpenAI's format to turn requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from mochi_server.chat.prompt_messages import last_user_index
from mochi_server.chat.turn import GenerationOptions, TurnRequest
from mochi_server.openai.errors import invalid_parameter
from mochi_server.sessions.images import Image, images_of
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import Message, ToolExecutionPolicy
from mochi_server.tools.toolbox import ClientToolbox, ClosedToolbox, JoinedToolbox, Toolbox
from mochi_server.util.clock import new_id, now


@dataclass(frozen=True, slots=True)
class CompletionInput:
    """Completion request with messages in the stored format. If an option is None, the session's default applies."""

    model: str
    messages: list[Message]
    images: Mapping[int, tuple[Image, ...]] = field(default_factory=dict)
    """Mapping of the index of a message to the images of this message."""
    generation: GenerationOptions = field(default_factory=GenerationOptions)
    client_tools: Sequence[dict[str, Any]] = ()
    """Tools that the client runs, in Ollama's format."""
    may_call: bool = True
    tools: Sequence[str] | None = None
    """Names of server tools."""
    policy: ToolExecutionPolicy | None = None
    session_id: str | None = None
    previous_response: str | None = None
    """ID of the response that the request follows, from the Responses API."""

    @property
    def messages_with_images(self) -> list[Message]:
        """Messages of the request. Each image in a message is a reference: its SHA-256 and its media type."""
        return [
            {**message, "images": [image.reference for image in self.images[index]]}
            if self.images.get(index)
            else message
            for index, message in enumerate(self.messages)
        ]

    @property
    def new_messages(self) -> list[Message]:
        """Messages after the last assistant message of the request. Only these messages can be new to the session."""
        last = next((i for i, m in reversed(list(enumerate(self.messages))) if m["role"] == "assistant"), -1)
        return self.messages[last + 1 :]


def to_turn_request(request: CompletionInput) -> TurnRequest:
    """Convert a completion request without a session to a turn request."""
    # Not a closure over the request, which would stay in memory with the turn.
    wrap = partial(_wrap_client_tools, request.client_tools, request.may_call)
    names = frozenset(tool["function"]["name"] for tool in request.client_tools) if request.may_call else frozenset()
    return TurnRequest(
        generation=request.generation, interactive=False, continues=True, client_tools=names, wrap_toolbox=wrap
    )


def to_session_turn_request(session: ChatSession, request: CompletionInput) -> TurnRequest:
    """Convert a completion request in a session to a turn request. The model receives the session's history.

    The turn stores the user message that follows the last assistant message of the request. The turn also stores the
    results of pending tool calls. A client may repeat a request after a timeout. If the session already ends with the
    same user message and has no complete answer to it, the turn does not store the message again.
    """
    turn = replace(
        to_turn_request(request),
        results=_results(session, request.new_messages),
        instructions="\n\n".join(m["content"] for m in request.messages if m["role"] == "system") or None,
        tools=request.tools,
        revision=session.revision,
    )
    first = len(request.messages) - len(request.new_messages)
    position = next(
        (i for i in reversed(range(first, len(request.messages))) if request.messages[i]["role"] == "user"), None
    )
    if position is None:
        if not turn.results and (not session.history or session.history[-1]["role"] != "tool"):
            problem = "the last message must be a user message or the result of a pending tool call"
            raise invalid_parameter("messages", problem)
        return turn
    message, images = request.messages_with_images[position], request.images.get(position, ())
    if not message["content"].strip():
        raise invalid_parameter("messages", "the user's message must not be blank")
    if _is_unanswered(session, message):
        return turn if session.history[-1]["role"] == "tool" else replace(turn, continues=False)
    return replace(turn, message=message["content"], images=images, continues=False)


def _wrap_client_tools(client_tools: Sequence[dict[str, Any]], may_call: bool, own: Toolbox) -> Toolbox:
    """Return the toolbox of a turn: the client tools and the server tools (``own``).

    Client tools take precedence over server tools with the same name. If ``may_call`` is false, the toolbox is empty.
    """
    if not may_call:
        return ClosedToolbox()
    return JoinedToolbox(ClientToolbox(client_tools), own) if client_tools else own


def _is_unanswered(session: ChatSession, message: Message) -> bool:
    """Return whether ``message`` equals the session's last user message, and that message has no complete answer."""
    position = last_user_index(session.history)
    if position is None:
        return False
    stored, last = session.history[position], session.history[-1]
    if (stored["content"], images_of(stored)) != (message["content"], images_of(message)):
        return False
    return last["role"] in ("user", "tool") or bool(last.get("interrupted"))


def _results(session: ChatSession, messages: Sequence[Message]) -> list[Message]:
    """Convert the tool messages in ``messages`` that answer pending tool calls of the session to the stored format.

    Raise ``ValidationFailed`` if the session has no tool call with the ID in a tool message.
    """
    names = {call.get("id"): call["function"]["name"] for m in session.history for call in m.get("tool_calls") or ()}
    pending = _pending_calls(session)
    results: list[Message] = []
    for message in messages:
        if message["role"] != "tool":
            continue
        call_id = message.get("tool_call_id", "")
        if call_id not in names:
            raise invalid_parameter("messages", f"the session has no tool call with the ID {call_id!r}")
        if call_id in pending:
            pending.discard(call_id)
            name = names[call_id]
            results.append({**message, "tool_name": name, "message_id": new_id(), "timestamp": now(), "success": True})
    return results


def _pending_calls(session: ChatSession) -> set[str]:
    """Return the IDs of the tool calls in the session's last answer that have no result yet."""
    answered: set[str] = set()
    for message in reversed(session.history):
        if message["role"] == "tool":
            answered.add(message.get("tool_call_id", ""))
        else:
            return {call.get("id", "") for call in message.get("tool_calls") or ()} - answered
    return set()
