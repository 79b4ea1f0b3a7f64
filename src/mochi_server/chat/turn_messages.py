"""Messages of stored turns."""

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mochi_server.sessions.history import complete_length
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.turn import Approval, StoredTurn
from mochi_server.sessions.types import Image, Message


def turn_messages(session: ChatSession, turn: StoredTurn) -> list[Message]:
    """Return the messages that a turn has added to its session, without the user message.

    The partial answer after which a turn continues is not one of them.
    """
    if turn.replacement is not None:
        return list(turn.replacement)  # type: ignore[arg-type]  # messages are dictionaries
    end = len(session.history)
    if turn.survives:
        end = complete_length(session.history)
    return list(session.history[turn.first : end])


def with_replacement(
    turn: StoredTurn, messages: Sequence[Message], images: Sequence[Image]
) -> StoredTurn:
    """Return a turn with the messages of its regenerated answer and the images of their results."""
    copies: list[dict[str, Any]] = [{**message} for message in messages]
    encoded = tuple(b64encode(image.data).decode() for image in images)
    return replace(turn, replacement=copies, replacement_images=encoded)


def replacement_images(turn: StoredTurn) -> list[Image]:
    """Return the images of a regenerated answer. Raises ``ValueError`` if one is damaged."""
    return [Image.of(b64decode(each)) for each in turn.replacement_images]


def turn_of_agent(
    agent_session: ChatSession, session_id: str, approval: Approval
) -> StoredTurn | None:
    """Return the turn of an agent that the turn of a session has called, or None if it has ended.

    It contains the request for the ``approval`` of its call, which the calling turn has stored.
    """
    turn = agent_session.metadata.turn
    if turn is None or turn.has_ended or turn.parent is None:
        return None
    if turn.parent.session_id != session_id:
        return None
    return replace(turn, approval=replace(approval, agent=None))
