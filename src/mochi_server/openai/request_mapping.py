"""Requests of clients of the OpenAI API, and the turns that they become."""

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
    """A request. ``messages`` are as a session stores them. None means the default of the session or of the model."""

    model: str
    messages: list[Message]
    images: Mapping[int, tuple[Image, ...]] = field(default_factory=dict)
    """Of messages, by their position."""
    generation: GenerationOptions = field(default_factory=GenerationOptions)
    client_tools: Sequence[dict[str, Any]] = ()
    """As Ollama takes them."""
    may_call: bool = True
    """Whether any tool may be called."""
    tools: Sequence[str] | None = None
    """Names of tools of this server."""
    policy: ToolExecutionPolicy | None = None
    session_id: str | None = None

    @property
    def messages_with_images(self) -> list[Message]:
        """The messages with references to their images."""
        return [
            {**message, "images": [image.reference for image in self.images[index]]}
            if self.images.get(index)
            else message
            for index, message in enumerate(self.messages)
        ]

    @property
    def new_messages(self) -> list[Message]:
        """The messages after the last answer, which a session cannot have yet."""
        last = next((i for i, m in reversed(list(enumerate(self.messages))) if m["role"] == "assistant"), -1)
        return self.messages[last + 1 :]


def to_turn_request(request: CompletionInput) -> TurnRequest:
    """The turn that answers the whole of a request."""
    wrap = partial(
        _wrap_client_tools, request.client_tools, request.may_call
    )  # the whole request would be remembered with the turn
    names = frozenset(tool["function"]["name"] for tool in request.client_tools) if request.may_call else frozenset()
    return TurnRequest(
        generation=request.generation, interactive=False, continues=True, client_tools=names, wrap_toolbox=wrap
    )


def to_session_turn_request(session: ChatSession, request: CompletionInput) -> TurnRequest:
    """Create the turn for a request in a session. The history of the session counts, not that of the request.

    New are the last user message after the last answer, and results of calls without a result. If the session already
    has that message and no complete answer to it, the turn answers it and does not add it again: clients repeat
    requests after a timeout. Its tool calls are not repeated either.
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
            raise invalid_parameter(
                "messages", "the last of them must be the user's, or results that the session waits for"
            )
        return turn
    message, images = request.messages_with_images[position], request.images.get(position, ())
    if not message["content"].strip():
        raise invalid_parameter("messages", "the user's message must not be blank")
    if _is_unanswered(session, message):
        return turn if session.history[-1]["role"] == "tool" else replace(turn, continues=False)
    return replace(turn, message=message["content"], images=images, continues=False)


def _wrap_client_tools(client_tools: Sequence[dict[str, Any]], may_call: bool, own: Toolbox) -> Toolbox:
    """Return the tools of a turn. Those of the client take precedence."""
    if not may_call:
        return ClosedToolbox()
    return JoinedToolbox(ClientToolbox(client_tools), own) if client_tools else own


def _is_unanswered(session: ChatSession, message: Message) -> bool:
    """Return whether a message is the last user message of the session and has no complete answer."""
    position = last_user_index(session.history)
    if position is None:
        return False
    stored, last = session.history[position], session.history[-1]
    if (stored["content"], images_of(stored)) != (message["content"], images_of(message)):
        return False
    return last["role"] in ("user", "tool") or bool(last.get("interrupted"))


def _results(session: ChatSession, news: Sequence[Message]) -> list[Message]:
    """Return the results that a session waits for, as it stores them. Raises ``ValidationFailed`` for other results."""
    names = {call.get("id"): call["function"]["name"] for m in session.history for call in m.get("tool_calls") or ()}
    waiting = _open_calls(session)
    results: list[Message] = []
    for message in news:
        if message["role"] != "tool":
            continue
        call_id = message.get("tool_call_id", "")
        if call_id not in names:
            raise invalid_parameter("messages", f"no call of the session has the id {call_id!r}")
        if call_id in waiting:
            waiting.discard(call_id)
            name = names[call_id]
            results.append({**message, "tool_name": name, "message_id": new_id(), "timestamp": now(), "success": True})
    return results


def _open_calls(session: ChatSession) -> set[str]:
    """Return the IDs of the calls at the end of the session that have no result."""
    called: set[str] = set()
    for message in reversed(session.history):
        if message["role"] == "tool":
            called.add(message.get("tool_call_id", ""))
        else:
            return {call.get("id", "") for call in message.get("tool_calls") or ()} - called
    return set()
