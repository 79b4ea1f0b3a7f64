"""State of OpenAI's Responses API: the IDs of responses, and the output items that clients refer to by ID."""

import re
from collections import OrderedDict
from collections.abc import Iterable
from secrets import token_hex
from typing import Any

import orjson

from mochi_server.errors import ValidationFailed
from mochi_server.sessions.session import ChatSession

_MAX_BYTES = 32 * 1024 * 1024


def response_id(session_id: str | None, position: int, run_id: str) -> str:
    """Return the ID of a response.

    In a session, the ID contains the index of the first message of the turn. A repeated request with the same
    idempotency key has the same ``run_id``, and therefore gets the same ID.
    """
    return f"resp_{token_hex(12)}" if session_id is None else f"resp_{session_id}_{position}_{run_id}"


def check_previous_response(previous: str | None, session: ChatSession) -> None:
    """Raise ``ValidationFailed`` unless ``previous`` is None or the ID of the session's latest response.

    A turn without a complete answer does not count, so that a client can repeat its request after a failure.
    """
    if previous is None:
        return
    match = re.fullmatch(rf"resp_{session.session_id}_([0-9]{{1,9}})(_.*)?", previous)
    if match is None or int(match[1]) > len(session.history) or not _is_one_turn(session, int(match[1])):
        problem = f"{previous!r} is not the latest response of the session {session.session_id!r}; send the ID of that"
        raise ValidationFailed.at("previous_response_id", problem)


def _is_one_turn(session: ChatSession, start: int) -> bool:
    """Return whether the messages from index ``start`` to the last complete answer belong to one turn."""
    is_answered, client_tool_calls = False, set[str]()
    for message in session.history[start : _answered_end(session)]:
        if message["role"] == "assistant":
            is_answered = True
            client_tool_calls.update(message.get("client_tool_calls") or ())
        elif (message["role"] == "user" and is_answered) or message.get("tool_call_id") in client_tool_calls:
            return False
    return True


def _answered_end(session: ChatSession) -> int:
    """Return the index after the last turn with a complete answer, or 0 if there is none."""
    end, client_tool_calls = 0, set[str]()
    for index, message in enumerate(session.history):
        calls_of_client = message.get("client_tool_calls") or ()
        if message["role"] == "assistant":
            # Calls that the client runs end the turn. After other calls, the turn continues.
            if not message.get("interrupted") and (calls_of_client or not message.get("tool_calls")):
                end, client_tool_calls = index + 1, set(calls_of_client)
        elif index == end and message["role"] == "tool" and message.get("tool_call_id") not in client_tool_calls:
            end += 1  # a call of the same answer that the server ran
    return end


class ResponseItems:
    """Output items of recent responses. If the items exceed ``max_bytes``, the oldest are dropped.

    Some clients send the ID of an item instead of the item, as the AI SDK does by default.
    """

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        self._items: OrderedDict[str, bytes] = OrderedDict()

    def add(self, items: Iterable[dict[str, Any]]) -> None:
        for item in items:
            self._items[item["id"]] = encoded = orjson.dumps(item)
            self._size += len(encoded)
        while self._size > self._max_bytes:
            self._size -= len(self._items.popitem(last=False)[1])

    def get(self, item_id: str) -> dict[str, Any] | None:
        """Return an item, or None if it is unknown."""
        encoded = self._items.get(item_id)
        return None if encoded is None else orjson.loads(encoded)
