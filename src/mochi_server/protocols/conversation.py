"""Comparison of the messages that a client sent with the messages that its session has stored.

Clients of most protocols send the whole conversation with each request. ``to_turn`` works out what
is new. The first rule that fits applies. Messages are equal if their texts are equal. ``*`` stands
for ``compare`` and ``compare_all``.

==  ===========  =======================================================
============================================ #   Action       Messages of the request
Turn, or error ==  ===========  =======================================================
============================================ 1   add          any
add the last message 2   regenerate   one user message, or as many as stored; the last
generate the last answer again
                 equals the stored last one
3   regenerate   more user messages than stored, or one that differs      error: not at this
position 4   edit         the same, except for the last user message               error: not at
this position 5   both         the last user message has other images than stored       error:
images cannot be changed 6   both         other
edit the user message at that position 7   compare      the result of a tool call that is not stored
error: unknown call 8   ``*``        no user message after the last assistant message, but    store
the results, and continue
                 results of pending calls, or the stored last result
9   ``*``        no user message after the last assistant message         error: nothing is new
10  compare_all  the user messages equal the stored ones                  generate the last answer
again 11  ``*``        no key; the last user message equals the stored one,     generate the answer
again, or continue after
                 also in its images, and that has no complete answer      a tool result, with no
                 call required
12  ``*``        other                                                    store the results, and add
the user message ==  ===========  =======================================================
============================================

A new message must not be blank. Only results of pending calls are stored. With ``compare_all``,
unknown results are ignored, because the IDs of calls that the server ran are not stored. The rules
skip system messages, which the turn adds to the system prompt.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import orjson

from mochi_server.chat.idempotency import keyed_indexes
from mochi_server.chat.turn_input import TurnInput
from mochi_server.constants import MAX_ARGUMENT_LEVELS, MAX_IMAGES, MAX_MESSAGE_CHARS
from mochi_server.errors import ValidationFailed
from mochi_server.sessions.history import follows_result, last_user_index
from mochi_server.sessions.images import Location, read_images
from mochi_server.sessions.serialization import is_nested_deeper
from mochi_server.sessions.session import ChatSession, key_digest
from mochi_server.sessions.types import Image, Message, Role, ToolCall, images_in, images_of
from mochi_server.util.clock import new_id, now

Action = Literal["add", "regenerate", "edit", "compare", "compare_all"]
"""What the client asks for.

``compare`` and ``compare_all``: the server works it out from the messages.
"""


@dataclass(frozen=True, slots=True)
class SentMessages:
    """Messages of a request in the stored format, oldest first. There is at least one."""

    messages: Sequence[Message]
    images: Mapping[int, tuple[Image, ...]] = field(default_factory=dict)
    """Images of each message that has any, by its index."""
    action: Action = "compare"
    positions: Sequence[int] | None = None
    """Position in the request of each message, for errors.

    If it is None, errors contain only the field's name.
    """
    check: Callable[[ChatSession], None] = lambda _: None
    """Function that raises ``ValidationFailed`` if a new request does not fit the session."""

    @property
    def with_images(self) -> list[Message]:
        """Messages of the request.

        Each image in a message is a reference: its SHA-256 and its media type.
        """
        messages = list(self.messages)
        for index, images in self.images.items():
            if images:
                messages[index] = {
                    **messages[index],
                    "images": [image.reference for image in images],
                }
        return messages

    @property
    def last_index(self) -> int:
        """Index of the last message, except system messages at the end.

        A client may send instructions there.
        """
        for index in range(len(self.messages) - 1, 0, -1):
            if self.messages[index]["role"] != "system":
                return index
        return 0

    @property
    def last_user_index(self) -> int | None:
        """Index of the last user message, or None if there is none or an assistant message follows
        it.
        """
        for index, message in reversed(list(enumerate(self.messages))):
            if message["role"] in ("user", "assistant"):
                return index if message["role"] == "user" else None
        return None

    @property
    def new_images(self) -> tuple[Image, ...]:
        """Images of the new user message, if there is one."""
        position = self.last_user_index
        return () if position is None else self.images.get(position, ())

    def error(self, problem: str, index: int = -1) -> ValidationFailed:
        """Return the error for the message at ``index``."""
        location = "messages" if self.positions is None else ("messages", self.positions[index])
        return ValidationFailed.at(location, problem)


def to_turn(session: ChatSession, sent: SentMessages, turn: TurnInput) -> TurnInput:
    """Return ``turn`` with what is new in the messages, by the rules above.

    ``turn`` has the options of the request.

    Raises:
        ValidationFailed: The messages contain nothing new, or do not fit the session.
    """
    system = [turn.instructions, *(m["content"] for m in sent.messages if m["role"] == "system")]
    turn = replace(turn, instructions="\n\n".join(filter(None, system)) or None)
    if sent.action == "add":
        return _with_user_message(turn, sent, sent.last_index)
    turn = replace(turn, revision=session.revision)
    if sent.action in ("regenerate", "edit"):
        return _answering_again(session, sent, turn)
    return _compared(session, sent, turn)


def repeats(sent: SentMessages, turn: TurnInput, earlier: TurnInput) -> bool:
    """Return whether a request is the same as the earlier request of the turn ``earlier``, which
    has the same key.
    """
    position = sent.last_user_index
    asked = turn if position is None else _with_user_message(turn, sent, position)
    contents = {m.get("tool_call_id"): m["content"] for m in sent.messages if m["role"] == "tool"}
    has_results = all(
        contents.get(result.get("tool_call_id")) == result["content"] for result in earlier.results
    )
    return earlier.is_same_request(asked) and has_results


def _compared(session: ChatSession, sent: SentMessages, turn: TurnInput) -> TurnInput:
    """Apply rules 7 to 12."""
    turn, history = _with_results(session, sent, turn), session.history
    position = sent.last_user_index
    if position is None:
        names = _tool_names(session)
        is_known = any(
            m["role"] == "tool" and m.get("tool_call_id") in names for m in sent.messages
        )
        if not turn.results and not (is_known and follows_result(history)):
            raise sent.error(
                "the last message must be a user message or the result of a pending tool call"
            )
        return replace(turn, change="continue")
    is_last = sent.last_index == position
    if (
        sent.action == "compare_all"
        and is_last
        and _user_texts(sent.messages) == _user_texts(history)
    ):
        return replace(turn, change="regenerate")
    if turn.key is None and _is_unanswered(session, sent.with_images[position]):
        if follows_result(history):  # the model has already called a tool
            return replace(turn, change="continue", tools=replace(turn.tools, must_call=False))
        return replace(turn, change="regenerate")
    return _with_user_message(turn, sent, position)


def _answering_again(session: ChatSession, sent: SentMessages, turn: TurnInput) -> TurnInput:
    """Apply rules 2 to 6."""
    asked = [(index, m["content"]) for index, m in enumerate(sent.messages) if m["role"] == "user"]
    stored = [(index, m) for index, m in enumerate(session.history) if m["role"] == "user"]
    last, text = asked[-1]
    if (
        sent.action == "regenerate"
        and stored
        and len(asked) in (1, len(stored))
        and stored[-1][1]["content"] == text
    ):
        return replace(turn, change="regenerate")
    for number, (index, content) in enumerate(asked):
        is_edited = index == last and sent.action == "edit"
        if number >= len(stored) or not (is_edited or stored[number][1]["content"] == content):
            raise sent.error("the session does not have this user message at this position", index)
    edit_index, message = stored[len(asked) - 1]
    images = sent.images.get(last)
    if images and [image.sha256 for image in images] != images_of(message):
        raise sent.error("the images of a stored message cannot be changed", last)
    return replace(turn, change="edit", edit_index=edit_index, text=text)


def _with_user_message(turn: TurnInput, sent: SentMessages, position: int) -> TurnInput:
    content = sent.messages[position]["content"]
    if not content.strip():
        raise sent.error("the user's message must not be blank", position)
    return replace(turn, text=content, images=sent.images.get(position, ()))


def _user_texts(messages: Sequence[Message]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "user"]


def _is_unanswered(session: ChatSession, message: Message) -> bool:
    """Return whether ``message`` equals the session's last user message, and that message has no
    complete answer.
    """
    position = last_user_index(session.history)
    if position is None:
        return False
    stored, last = session.history[position], session.history[-1]
    is_equal = (stored["content"], images_of(stored)) == (message["content"], images_of(message))
    return is_equal and (last["role"] in ("user", "tool") or bool(last.get("interrupted")))


def _with_results(session: ChatSession, sent: SentMessages, turn: TurnInput) -> TurnInput:
    results = _results(session, sent, turn.key)
    names = images_in(results)
    images = (image for of_message in sent.images.values() for image in of_message)
    stored = {image.sha256: image for image in images if image.sha256 in names}
    return replace(turn, results=tuple(results), result_images=tuple(stored.values()))


def _results(session: ChatSession, sent: SentMessages, key: str | None) -> list[Message]:
    """Return the results of pending tool calls, with the tools' names, and results that were stored
    with the key.
    """
    messages, digest = sent.with_images, key and key_digest(session.session_id, key)
    last_answer = max(
        (index for index, m in enumerate(messages) if m["role"] == "assistant"), default=-1
    )
    names = _tool_names(session)
    stored = [session.history[index] for index in keyed_indexes(session, key)]
    pending = _pending_calls(session) | {message.get("tool_call_id", "") for message in stored}
    results: list[Message] = []
    for message in messages[last_answer + 1 :]:
        if message["role"] != "tool":
            continue
        call_id = message.get("tool_call_id", "")
        if call_id not in names and sent.action != "compare_all":
            raise sent.error(f"the session has no tool call with the ID {call_id!r}")
        if call_id in pending:
            pending.remove(call_id)
            result: Message = {"success": True, **message, "tool_name": names[call_id]}
            results.append({**result, "key_digest": digest} if digest else result)
    return results


def _tool_names(session: ChatSession) -> dict[str, str]:
    calls = [call for message in session.history for call in message.get("tool_calls") or ()]
    return {call.get("id", ""): call["function"]["name"] for call in calls}


def _pending_calls(session: ChatSession) -> set[str]:
    """Return the IDs of the tool calls in the session's last answer that have no result yet."""
    answered: set[str] = set()
    for message in reversed(session.history):
        if message["role"] != "tool":
            return {call.get("id", "") for call in message.get("tool_calls") or ()} - answered
        answered.add(message.get("tool_call_id", ""))
    return set()


def new_message(role: Role, content: str) -> Message:
    return {"role": role, "content": content, "message_id": new_id(), "timestamp": now()}


def tool_call(index: int, call_id: str, name: str, arguments: str | dict[str, Any]) -> ToolCall:
    """Return the tool call at position ``index`` of a message.

    ``arguments`` is an object or its JSON text.
    """
    parsed: Any = None
    with suppress(orjson.JSONDecodeError):
        parsed = orjson.loads(arguments or "{}") if isinstance(arguments, str) else arguments
    if not isinstance(parsed, dict) or is_nested_deeper(parsed, MAX_ARGUMENT_LEVELS):
        problem = f"are not a JSON object, or nested deeper than {MAX_ARGUMENT_LEVELS} levels"
        raise ValidationFailed.at("messages", f"the arguments of call {call_id!r} {problem}")
    return {"id": call_id, "function": {"index": index, "name": name, "arguments": parsed}}


def add_tool_names(messages: Iterable[Message]) -> None:
    """Add the names of the tools to the results of tool calls that earlier messages contain."""
    names: dict[str, str] = {}
    for message in messages:
        names |= {call["id"]: call["function"]["name"] for call in message.get("tool_calls") or ()}
        if message["role"] == "tool" and (name := names.get(message["tool_call_id"])):
            message["tool_name"] = name


async def decode_images(urls: Mapping[Location, str], message: Location) -> tuple[Image, ...]:
    """Decode the images of the message at the path ``message``.

    ``urls`` maps their paths to data URLs.
    """
    if len(urls) > MAX_IMAGES:
        raise ValidationFailed.at(
            message, f"the message has {len(urls)} images, and the limit is {MAX_IMAGES}"
        )
    return await read_images(urls)


def check_text(text: str, position: int) -> None:
    """Raise ``ValidationFailed`` if the text of the user message at index ``position`` is blank or
    too long.
    """
    if not text.strip():
        raise ValidationFailed.at(("messages", position), "the user message has no text")
    if len(text) > MAX_MESSAGE_CHARS:
        raise ValidationFailed.at(
            ("messages", position), f"the text has more than {MAX_MESSAGE_CHARS} characters"
        )
