"""What is new in the messages that a client sent, compared with the messages of its session.

Clients of most protocols send the whole conversation with each request. ``to_turn`` works out what
is new. The first rule whose action and messages fit applies. Messages are equal if their texts are
equal.

Action ``add``:

1. Any messages: add the last message.

Action ``regenerate``:

2. One user message, or as many as stored, and the last one equals the last stored one: generate
   the last answer again.
3. More user messages than stored, or one that differs: error, not at this position.

Action ``edit``:

4. The user messages before the last one are not the stored ones: error, not at this position.

Actions ``regenerate`` and ``edit``:

5. The last user message has other images or files than the stored one: error, they cannot be
   changed.
6. Other messages: edit the user message at that position.

Action ``compare``:

7. After the last assistant message, the result of a tool call that is not stored: error, unknown
   call.

Actions ``compare`` and ``compare_all``:

8. No user message after the last assistant message, but results of pending calls, or a result of a
   stored call while the stored messages end with a result: store new results, and continue.
9. Only ``compare_all``: the user messages equal the stored ones, and the last one also in its
    images and files. The last message is that one, or equals the latest stored answer while no call
    is pending: generate the last answer again.
10. Only ``compare_all``: the user messages equal the stored ones, the last message is a result, the
    latest turn has results, and no call is pending: generate the answer again, or continue after a
    tool result, with no call required.
11. No user message after the last assistant message: error, nothing is new.
12. Without a key: the last user message equals the stored one, also in its images and files, and
    that has no complete answer: as in rule 10.
13. Other messages: store the results, and add the user message.

A new message must not be blank. Only results of pending calls are stored. They may precede the last
assistant message, because some clients send one assistant message for each call, and its result
after it. With ``compare_all``, unknown results are ignored, because the IDs of calls that the
server ran are not stored. The rules skip system messages, which the turn adds to the system prompt.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from mochi_server.chat.idempotency import keyed_indexes
from mochi_server.chat.turn_input import TurnInput
from mochi_server.protocols.sent_messages import SentMessages, names_of_calls
from mochi_server.sessions.history import (
    History,
    first_answer_index,
    follows_result,
    last_user_index,
)
from mochi_server.sessions.session import ChatSession, key_digest, last_answer
from mochi_server.sessions.types import Image, Message, Role, ToolMessage, blobs_in, blobs_of


def to_turn(session: ChatSession, sent: SentMessages, turn: TurnInput) -> TurnInput:
    """Return ``turn`` with what is new in the messages, by the rules above.

    ``turn`` has the options of the request.

    Raises:
        ValidationFailed: The messages contain nothing new, or do not fit the session.
    """
    instructions = [turn.instructions or ""]
    instructions += [m["content"] for m in sent.messages if m["role"] == "system"]
    text = "\n\n".join(each for each in instructions if each)
    turn = replace(turn, instructions=text or None)
    if sent.action == "add":
        return _with_user_message(turn, sent, sent.last_index)
    turn = replace(turn, revision=session.revision)
    if sent.action in ("regenerate", "edit"):
        return _answering_again(session, sent, turn)
    return _compared(session, sent, turn)


def repeats(sent: SentMessages, turn: TurnInput, earlier: TurnInput) -> bool:
    """Return whether a request is the same as the earlier request of the turn ``earlier``, which
    has the same key.

    Raises ``ValidationFailed`` for a blank user message.
    """
    index = sent.last_user_index
    asked = turn if index is None else _with_user_message(turn, sent, index)
    if not earlier.is_same_request(asked):
        return False
    contents = {m.get("tool_call_id"): m["content"] for m in sent.messages if m["role"] == "tool"}
    for result in earlier.results:
        if contents.get(result.get("tool_call_id")) != result["content"]:
            return False
    return True


def _compared(session: ChatSession, sent: SentMessages, turn: TurnInput) -> TurnInput:
    """Apply rules 7 to 13."""
    turn = _with_new_results(session, sent, turn)
    history = session.history
    index = sent.last_user_index
    if index is None:
        repeats_result = _has_stored_result(session, sent) and follows_result(history)
        if turn.results or repeats_result:
            return replace(turn, change="continue")
        if _ends_with_stored_answer(session, sent):
            return replace(turn, change="regenerate")
        if _ends_with_result(session, sent):
            return _with_answer_again(history, turn)
        raise sent.error(
            "the last message must be a user message or the result of a pending tool call"
        )
    if sent.action == "compare_all" and sent.last_index == index and _are_stored(sent, history):
        return replace(turn, change="regenerate")
    if turn.key is not None or not _is_unanswered(session, sent.with_references[index]):
        return _with_user_message(turn, sent, index)
    return _with_answer_again(history, turn)


def _with_answer_again(history: History, turn: TurnInput) -> TurnInput:
    if follows_result(history):  # the model has already called a tool
        return replace(turn, change="continue", tools=replace(turn.tools, must_call=False))
    return replace(turn, change="regenerate")


def _ends_with_stored_answer(session: ChatSession, sent: SentMessages) -> bool:
    """Return whether the user messages of ``compare_all`` are stored, the last message is the
    latest answer, and no call is pending.
    """
    last = sent.messages[sent.last_index]
    if sent.action != "compare_all" or last["role"] != "assistant":
        return False
    answer = last_answer(session.history)
    if answer is None or answer["content"].strip() != last["content"].strip():
        return False  # another client has regenerated the answer
    return not _pending_calls(session) and _are_stored(sent, session.history)


def _ends_with_result(session: ChatSession, sent: SentMessages) -> bool:
    """Return whether all messages of the user in ``compare_all`` are stored, the last message is a
    result, the latest turn has results, and no call is pending.

    A client knows the calls that the server ran by other IDs than the session.
    """
    if sent.action != "compare_all" or sent.messages[sent.last_index]["role"] != "tool":
        return False
    history = session.history
    roles = [message["role"] for message in history[first_answer_index(history) :]]
    if "tool" not in roles:
        return False
    return not _pending_calls(session) and _user_texts(sent.messages) == _user_texts(history)


def _has_stored_result(session: ChatSession, sent: SentMessages) -> bool:
    """Return whether the messages contain the result of a call of the session."""
    stored_calls = names_of_calls(session.history)
    for message in sent.messages:
        if message["role"] == "tool" and message.get("tool_call_id") in stored_calls:
            return True
    return False


def _answering_again(session: ChatSession, sent: SentMessages, turn: TurnInput) -> TurnInput:
    """Apply rules 2 to 6."""
    asked = _user_indexes(sent.messages)
    stored = _user_indexes(session.history)
    last = asked[-1]
    text = sent.messages[last]["content"]
    if sent.action == "regenerate" and stored and len(asked) in (1, len(stored)):
        newest = session.history[stored[-1]]
        if newest["content"] == text:
            return replace(turn, change="regenerate")
    for number, index in enumerate(asked):
        is_edited = index == last and sent.action == "edit"
        if number < len(stored):
            earlier = session.history[stored[number]]
            if is_edited or earlier["content"] == sent.messages[index]["content"]:
                continue
        raise sent.error("the session does not have this user message at this position", index)
    edit_index = stored[len(asked) - 1]
    blobs = blobs_of(sent.with_references[last])
    if blobs and blobs != blobs_of(session.history[edit_index]):
        raise sent.error("the images and files of a stored message cannot be changed", last)
    return replace(turn, change="edit", edit_index=edit_index, text=text)


def _with_user_message(turn: TurnInput, sent: SentMessages, index: int) -> TurnInput:
    content = sent.messages[index]["content"]
    if not content.strip():
        raise sent.error("the user's message must not be blank", index)
    return replace(
        turn,
        text=content,
        images=sent.images.get(index, ()),
        attachments=sent.attachments.get(index, ()),
    )


def _user_indexes(messages: Sequence[Message]) -> list[int]:
    return [index for index, message in enumerate(messages) if message["role"] == "user"]


def _user_texts(messages: Sequence[Message]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "user"]


def _are_stored(sent: SentMessages, history: History) -> bool:
    """Return whether the sent user messages are those of the session.

    Only the last one has its images and files in ``sent``.
    """
    texts = _user_texts(sent.messages)
    if not texts or texts != _user_texts(history):
        return False
    newest = _user_indexes(sent.messages)[-1]
    stored = _user_indexes(history)[-1]
    return blobs_of(sent.with_references[newest]) == blobs_of(history[stored])


def _is_unanswered(session: ChatSession, message: Message) -> bool:
    """Return whether ``message`` equals the session's last user message, and that message has no
    complete answer.
    """
    index = last_user_index(session.history)
    if index is None:
        return False
    stored = session.history[index]
    if stored["content"] != message["content"] or blobs_of(stored) != blobs_of(message):
        return False
    last = session.history[-1]
    if last["role"] == "assistant":
        return bool(last.get("interrupted"))
    return last["role"] != "system"


def _with_new_results(session: ChatSession, sent: SentMessages, turn: TurnInput) -> TurnInput:
    results = _new_results(session, sent, turn.key)
    used_blobs = blobs_in(results)
    result_images: dict[str, Image] = {}
    for image in chain.from_iterable(sent.images.values()):
        if image.sha256 in used_blobs:
            result_images[image.sha256] = image
    return replace(turn, results=tuple(results), result_images=tuple(result_images.values()))


def _new_results(session: ChatSession, sent: SentMessages, key: str | None) -> list[ToolMessage]:
    """Return the results of pending tool calls, with the tools' names, and results that were stored
    with the key.

    Raises ``ValidationFailed`` for a result of an unknown call, except with ``compare_all``.
    """
    names = names_of_calls(session.history)
    pending = _pending_calls(session)
    for index in keyed_indexes(session, key):
        stored = session.history[index]
        if stored["role"] == "tool":
            pending.add(stored.get("tool_call_id", ""))
    messages = sent.with_references
    answer_index = _last_index(messages, "assistant", len(messages))
    answered_index = _last_index(messages, "user", answer_index)
    results: list[ToolMessage] = []
    # Calls of several answers may have the same ID. The last result is that of the pending call.
    for index in range(len(messages) - 1, answered_index, -1):
        message = messages[index]
        if message["role"] != "tool":
            continue
        call_id = message.get("tool_call_id", "")
        is_after_answer = index > answer_index
        if is_after_answer and call_id not in names and sent.action != "compare_all":
            raise sent.error(f"the session has no tool call with the ID {call_id!r}")
        if call_id in pending:
            pending.remove(call_id)
            result: ToolMessage = {"success": True, **message, "tool_name": names[call_id]}
            if key:
                result["key_digest"] = key_digest(session.session_id, key)
            results.append(result)
    results.reverse()
    return results


def _last_index(messages: Sequence[Message], role: Role, end: int) -> int:
    """Return the index of the last message of a role before index ``end``, or -1."""
    for index in range(end - 1, -1, -1):
        if messages[index]["role"] == role:
            return index
    return -1


def _pending_calls(session: ChatSession) -> set[str]:
    """Return the IDs of the tool calls in the session's last answer that have no result yet."""
    answered: set[str] = set()
    for message in reversed(session.history):
        if message["role"] != "tool":
            return names_of_calls([message]).keys() - answered
        answered.add(message.get("tool_call_id", ""))
    return set()
