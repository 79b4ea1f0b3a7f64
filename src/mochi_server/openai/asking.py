"""What a client of OpenAI's API asks for, and what that is to the engine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from mochi_server.chat.prompt_messages import last_user_index
from mochi_server.chat.turn import GenerationOptions, TurnRequest
from mochi_server.openai.errors import invalid
from mochi_server.sessions.images import Image, images_of
from mochi_server.sessions.session import ChatSession, new_id, now
from mochi_server.sessions.types import Message, SessionCreationOptions, ToolExecutionPolicy, ToolSettings
from mochi_server.tools.toolbox import ClientToolbox, ClosedToolbox, JoinedToolbox, Toolbox


@dataclass(frozen=True, slots=True)
class Ask:
    """A request. ``messages`` are as they would be stored; None leaves a thing to the session or to the model."""

    model: str
    messages: list[Message]
    images: Mapping[int, tuple[Image, ...]] = field(default_factory=dict)
    """Of messages, by their position."""
    generation: GenerationOptions = field(default_factory=GenerationOptions)
    client_tools: Sequence[dict[str, Any]] = ()
    """As Ollama takes them."""
    may_call: bool = True
    """Whether any tool may be called, the client's or ours."""
    tools: Sequence[str] | None = None
    """Names of tools of this server."""
    policy: ToolExecutionPolicy | None = None
    session_id: str | None = None

    @property
    def instructions(self) -> str | None:
        """What the system messages say."""
        return "\n\n".join(m["content"] for m in self.messages if m["role"] == "system") or None

    @property
    def shown(self) -> list[Message]:
        """The messages, naming their images."""
        return [_showing(message, self.images.get(index, ())) for index, message in enumerate(self.messages)]

    @property
    def news(self) -> list[Message]:
        """The messages behind the last answer: what a session cannot have yet."""
        last = next((i for i, m in reversed(list(enumerate(self.messages))) if m["role"] == "assistant"), -1)
        return self.messages[last + 1 :]


def session_of(ask: Ask) -> ChatSession:
    """An empty session for a conversation that is not stored. Nobody is asked, so what changes things is not run."""
    settings = ToolSettings(
        tools=list(ask.tools or ()), execution_policy=ask.policy or ToolExecutionPolicy.CONFIRM_DESTRUCTIVE
    )
    return ChatSession.create(SessionCreationOptions(ask.model, tool_settings=settings))


def turn_of(ask: Ask) -> TurnRequest:
    """The turn that answers the whole of a request."""
    wrap = partial(_offered, ask.client_tools, ask.may_call)  # the whole request would be remembered with the turn
    names = frozenset(tool["function"]["name"] for tool in ask.client_tools) if ask.may_call else frozenset()
    return TurnRequest(
        generation=ask.generation, interactive=False, continues=True, client_tools=names, wrap_toolbox=wrap
    )


def turn_in(session: ChatSession, ask: Ask) -> TurnRequest:
    """The turn that a request is in a session, whose history counts and not the request's.

    What is new is the last user message behind the last answer, and results of calls that the session waits for. A
    message that the session has got already and not answered is answered, and not said twice: clients ask again by
    themselves when they have waited too long. What its tools have done is not done again.
    """
    turn = replace(
        turn_of(ask),
        results=_results(session, ask.news),
        instructions=ask.instructions,
        tools=ask.tools,
        revision=session.revision,
    )
    first = len(ask.messages) - len(ask.news)
    position = next((i for i in reversed(range(first, len(ask.messages))) if ask.messages[i]["role"] == "user"), None)
    if position is None:
        if not turn.results and (not session.history or session.history[-1]["role"] != "tool"):
            raise invalid("messages", "the last of them must be the user's, or results that the session waits for")
        return turn
    said, images = ask.shown[position], ask.images.get(position, ())
    if not said["content"].strip():
        raise invalid("messages", "the user's message must not be blank")
    if _is_owed_an_answer(session, said):
        return turn if session.history[-1]["role"] == "tool" else replace(turn, continues=False)
    return replace(turn, message=said["content"], images=images, continues=False)


def _offered(client_tools: Sequence[dict[str, Any]], may_call: bool, own: Toolbox) -> Toolbox:
    """The tools of a turn: the client's go before ours of the same names."""
    if not may_call:
        return ClosedToolbox()
    return JoinedToolbox(ClientToolbox(client_tools), own) if client_tools else own


def _showing(message: Message, images: Sequence[Image]) -> Message:
    return {**message, "images": [image.reference for image in images]} if images else message


def _is_owed_an_answer(session: ChatSession, said: Message) -> bool:
    """Whether this very message is the session's last, and was not answered, or not to the end."""
    position = last_user_index(session.history)
    if position is None:
        return False
    asked, last = session.history[position], session.history[-1]
    if (asked["content"], images_of(asked)) != (said["content"], images_of(said)):
        return False
    return last["role"] in ("user", "tool") or bool(last.get("interrupted"))


def _results(session: ChatSession, news: Sequence[Message]) -> list[Message]:
    """The results that a session waits for, as it stores them. Raises ``ValidationFailed`` for those of no call."""
    names = {call.get("id"): call["function"]["name"] for m in session.history for call in m.get("tool_calls") or ()}
    waiting = _open_calls(session)
    results: list[Message] = []
    for message in news:
        if message["role"] != "tool":
            continue
        call_id = message.get("tool_call_id", "")
        if call_id not in names:
            raise invalid("messages", f"no call of the session has the id {call_id!r}")
        if call_id in waiting:
            waiting.discard(call_id)
            results.append(_result(message, names[call_id]))
    return results


def _open_calls(session: ChatSession) -> set[str]:
    """Ids of the calls that the session ends with, and that have no result."""
    called: set[str] = set()
    for message in reversed(session.history):
        if message["role"] == "tool":
            called.add(message.get("tool_call_id", ""))
        else:
            return {call.get("id", "") for call in message.get("tool_calls") or ()} - called
    return set()


def _result(message: Message, name: str) -> Message:
    return {**message, "tool_name": name, "message_id": new_id(), "timestamp": now(), "success": True}
