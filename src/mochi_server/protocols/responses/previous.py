"""Responses and items of earlier requests to which a request refers."""

import re
from collections.abc import Sequence

from mochi_server.errors import ValidationFailed
from mochi_server.protocols.responses.items import (
    ITEM,
    ITEMS,
    InputItem,
    InputMessage,
    ItemReference,
)
from mochi_server.services.recent_responses import RecentResponses
from mochi_server.sessions.session import ChatSession, ends_turn
from mochi_server.sessions.turn import first_answer_of_turn

_UNKNOWN = (
    "is not in the server's memory; name a session in X-Mochi-Session, or send the whole "
    "conversation"
)
_UNUSABLE = {
    "failed": "has failed; repeat its request",
    "in_progress": "has not ended; wait for its end",
}
"""Reason why a response in memory cannot be continued, by its status."""


def check_previous(previous: str | None, session: ChatSession) -> None:
    """Raise ``ValidationFailed`` unless ``previous`` is None or the ID of the session's latest
    response.

    Of the ID, only the session and the place of the turn are compared. A turn without a complete
    answer does not count, so that a client can repeat its request after a failure.
    """
    if previous is None:
        return
    match = re.fullmatch(rf"resp_{session.session_id}_([0-9]{{1,9}})(?:_(.*))?", previous)
    if match is None or not _is_latest(session, int(match[1]), match[2] or ""):
        raise ValidationFailed.at(
            "previous_response_id",
            f"{previous!r} is not the latest response of the session {session.session_id!r}; "
            "send the ID of that",
        )


def _is_latest(session: ChatSession, start: int, turn_id: str) -> bool:
    """Return whether no later turn has a complete answer.

    ``start`` was the index of the first message of the turn. A change of the system prompt moves
    the messages, so the index only counts if the turn has no answer.
    """
    first_answer = first_answer_of_turn(session.history, turn_id)
    if first_answer is not None:
        start = first_answer
    if start > len(session.history):
        return False
    has_answer = False
    is_later_turn = False
    client_tool_calls: set[str] = set()
    for message in session.history[start:]:
        if message["role"] == "assistant":
            if is_later_turn and ends_turn(message):
                return False
            has_answer = True
            client_tool_calls.update(message.get("client_tool_calls") or ())
            continue
        starts_turn = message["role"] == "user"
        if message["role"] == "tool":
            starts_turn = message.get("tool_call_id") in client_tool_calls
        if has_answer and starts_turn:
            is_later_turn = True
    return True


def conversation(
    known: RecentResponses,
    sent: str | Sequence[InputItem],
    previous: str | None,
    *,
    is_session: bool,
) -> list[InputItem]:
    """Return the items of the response ``previous`` and before it, and the sent items.

    References are replaced by their items. For a session, which stores the earlier items, return
    only the sent items, with any unknown references. Otherwise, an unknown ID raises
    ``ValidationFailed``, and so does that of a failed or running response.
    """
    if isinstance(sent, str):
        sent = [InputMessage(role="user", content=sent)]
    resolved = [
        _resolved(known, item, index, is_session=is_session) for index, item in enumerate(sent)
    ]
    if previous is None or is_session:
        return resolved
    earlier = known.conversation(previous)
    if earlier is None:
        response = known.get(previous) or {}
        problem = _UNUSABLE.get(response.get("status", ""), _UNKNOWN)
        raise ValidationFailed.at("previous_response_id", f"{previous!r} {problem}")
    return [*ITEMS.validate_python(earlier), *resolved]


def _resolved(
    known: RecentResponses, item: InputItem, index: int, *, is_session: bool
) -> InputItem:
    """Return the item that a reference names, or an item that is no reference unchanged.

    Some clients send references by default, as the AI SDK does.
    """
    if not isinstance(item, ItemReference):
        return item
    referenced = known.items.get(item.id)
    if referenced is not None:
        found: InputItem = ITEM.validate_json(referenced)
        return found
    if is_session:  # the session has the item, which is from the model
        return item
    raise ValidationFailed.at(
        f"input[{index}].id",
        f"the item {item.id!r} is not in the server's memory; send the item itself, or set `store` "
        "to false in the client",
    )
