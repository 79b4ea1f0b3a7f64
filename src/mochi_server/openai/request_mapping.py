"""Mapping of completion requests in OpenAI's format to turn requests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from mochi_server.chat.idempotency import key_digest, keyed_indexes
from mochi_server.chat.prompt_messages import follows_result, last_user_index
from mochi_server.chat.turn import GenerationOptions, TurnRequest
from mochi_server.errors import ValidationFailed
from mochi_server.sessions.images import Image, images_of
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import Message, Role, ToolExecutionPolicy
from mochi_server.tools.toolbox import ClientToolbox, JoinedToolbox, LimitedToolbox, Toolbox
from mochi_server.util.clock import new_id, now


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Choice of the tools that the model may call."""

    may_call: bool = True
    must_call: bool = False
    """Whether the first answer must call a tool."""
    name: str | None = None
    """Name of the only tool to offer, or None to offer all tools."""
    is_single: bool = False
    """Whether each answer may call only one tool."""


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
    tool_choice: ToolChoice = field(default_factory=ToolChoice)
    tools: Sequence[str] | None = None
    """Names of server tools."""
    policy: ToolExecutionPolicy | None = None
    session_id: str | None = None
    key: str | None = None
    """Idempotency key. It has no effect without a session."""
    previous_response: str | None = None
    """ID of the earlier response that this request continues. Only requests of the Responses API have this ID."""

    @property
    def messages_with_images(self) -> list[Message]:
        """Messages of the request. Each image in a message is a reference: its SHA-256 and its media type."""
        messages = list(self.messages)
        for index, images in self.images.items():
            if images:
                messages[index] = {**messages[index], "images": [image.reference for image in images]}
        return messages


def new_message(role: Role, content: str) -> Message:
    return {"role": role, "content": content, "message_id": new_id(), "timestamp": now()}


def tool_schema(name: str, description: str, parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the schema of a client's tool in Ollama's format."""
    schema = {"type": "object", "properties": {}} | dict(parameters or {})
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def to_turn_request(request: CompletionInput) -> TurnRequest:
    """Convert a completion request without a session to a turn request."""
    choice = request.tool_choice
    names = frozenset(tool["function"]["name"] for tool in request.client_tools)
    return TurnRequest(
        generation=request.generation,
        interactive=False,
        continues=True,
        client_tools=frozenset(name for name in names if choice.may_call and choice.name in (None, name)),
        # Not a closure over the request, which would stay in memory with the turn.
        wrap_toolbox=partial(_wrap_client_tools, request.client_tools, choice),
        must_call=choice.must_call,
        parallel_calls=not choice.is_single,
        model=request.model or None,
    )


def to_session_turn_request(session: ChatSession, request: CompletionInput) -> TurnRequest:
    """Convert a completion request in a session to a turn request. The model receives the session's history.

    The turn stores the user message that follows the last assistant message of the request, and the results of pending
    tool calls. If the session already ends with the same user message and has no complete answer to it, because the
    client repeats a request after a timeout, the turn does not store the message again.
    """
    if any(images and request.messages[index]["role"] == "tool" for index, images in request.images.items()):
        problem = "in a session, the results of tool calls must not contain images; send the image in a user message"
        raise ValidationFailed.at("messages", problem)
    turn = replace(
        to_turn_request(request),
        results=_results(session, request),
        instructions="\n\n".join(m["content"] for m in request.messages if m["role"] == "system") or None,
        tools=request.tools,
        revision=session.revision,
    )
    position = _user_message_index(request)
    if position is None:
        repeats_result = follows_result(session.history) and any(m["role"] == "tool" for m in request.messages)
        if not (turn.results or repeats_result):
            problem = "the last message must be a user message or the result of a pending tool call"
            raise ValidationFailed.at("messages", problem)
        return turn
    if request.key is None and _is_unanswered(session, request.messages_with_images[position]):
        if follows_result(session.history):  # the model has already called a tool
            return replace(turn, must_call=False)
        return replace(turn, continues=False)
    return _with_user_message(turn, request, position)


def to_keyed_turn_request(request: CompletionInput) -> TurnRequest:
    """Convert a completion request to a turn request, for a comparison with an earlier one with the same key."""
    turn, position = to_turn_request(request), _user_message_index(request)
    return turn if position is None else _with_user_message(turn, request, position)


def contains_results(request: CompletionInput, results: Sequence[Message]) -> bool:
    """Return whether a completion request contains all of ``results``, which are results of tool calls."""
    contents = {m.get("tool_call_id"): m["content"] for m in request.messages if m["role"] == "tool"}
    return all(contents.get(result.get("tool_call_id")) == result["content"] for result in results)


def _user_message_index(request: CompletionInput) -> int | None:
    """Return the index of the last user message, or None if there is none or an assistant message follows it."""
    for index, message in reversed(list(enumerate(request.messages))):
        if message["role"] in ("user", "assistant"):
            return index if message["role"] == "user" else None
    return None


def _with_user_message(turn: TurnRequest, request: CompletionInput, position: int) -> TurnRequest:
    content = request.messages[position]["content"]
    if not content.strip():
        raise ValidationFailed.at("messages", "the user's message must not be blank")
    return replace(turn, message=content, images=request.images.get(position, ()), continues=False)


def _wrap_client_tools(client_tools: Sequence[dict[str, Any]], choice: ToolChoice, own: Toolbox) -> Toolbox:
    """Return the client tools and the tools of ``own``, limited by ``choice``. Client tools take precedence."""
    if not choice.may_call:
        return LimitedToolbox(own, names=())
    toolbox = JoinedToolbox(ClientToolbox(client_tools), own) if client_tools else own
    if choice.name is not None:
        toolbox = LimitedToolbox(toolbox, names=[choice.name])
    if choice.must_call and not toolbox.schemas():
        missing = f"there is no tool {choice.name!r}" if choice.name is not None else "the request has no tools"
        raise ValidationFailed.at("tool_choice", f"{missing}; add one to `tools`")
    return toolbox


def _is_unanswered(session: ChatSession, message: Message) -> bool:
    """Return whether ``message`` equals the session's last user message, and that message has no complete answer."""
    position = last_user_index(session.history)
    if position is None:
        return False
    stored, last = session.history[position], session.history[-1]
    if (stored["content"], images_of(stored)) != (message["content"], images_of(message)):
        return False
    return last["role"] in ("user", "tool") or bool(last.get("interrupted"))


def _results(session: ChatSession, request: CompletionInput) -> list[Message]:
    """Return the tool messages that answer pending tool calls of the session, with the tools' names.

    Results that the session has stored with the idempotency key of the request are included.
    """
    messages, digest = request.messages, request.key and key_digest(session.session_id, request.key)
    last_answer = max((index for index, m in enumerate(messages) if m["role"] == "assistant"), default=-1)
    names = {call.get("id"): call["function"]["name"] for m in session.history for call in m.get("tool_calls") or ()}
    stored = [session.history[index] for index in keyed_indexes(session, request.key)]
    pending = _pending_calls(session) | {message.get("tool_call_id", "") for message in stored}
    results: list[Message] = []
    for message in messages[last_answer + 1 :]:
        if message["role"] != "tool":
            continue
        call_id = message.get("tool_call_id", "")
        if call_id not in names:
            raise ValidationFailed.at("messages", f"the session has no tool call with the ID {call_id!r}")
        if call_id in pending:
            pending.remove(call_id)
            result: Message = {"success": True, **message, "tool_name": names[call_id]}
            results.append({**result, "key_digest": digest} if digest else result)
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
