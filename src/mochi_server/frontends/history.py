"""Comparison of the messages of a client with the history of its session."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from mochi_server.chat.turn import TurnRequest
from mochi_server.errors import ValidationFailed
from mochi_server.frontends.runs import TurnPlan
from mochi_server.sessions.images import images_of
from mochi_server.sessions.session import ChatSession


@dataclass(frozen=True, slots=True)
class UserMessages:
    """The user messages of a request, which end with the message to answer.

    ``positions`` are the positions of the user messages among all messages of the request.
    """

    texts: Sequence[str]
    positions: Sequence[int]
    intent: Literal["add", "edit", "regenerate"]

    def plan(self, turn: TurnRequest, session: ChatSession) -> TurnPlan:
        """Return the turn that answers the last message. ``turn`` contains the message and its images.

        A request to edit a message or to answer it again must contain the earlier user messages of the session. To
        answer the last message of the session again, that message is enough. Raise ``ValidationFailed`` with the
        position of the first user message that the session does not contain.
        """
        if self.intent == "add":
            return TurnPlan(turn)
        again = replace(turn, message=None, images=())
        stored = [(index, m) for index, m in enumerate(session.history) if m["role"] == "user"]
        is_last = bool(stored) and len(self.texts) in (1, len(stored)) and stored[-1][1]["content"] == self.texts[-1]
        if self.intent == "regenerate" and is_last:
            return TurnPlan(again)
        for number, position in enumerate(self.positions):
            is_edited = self.intent == "edit" and number == len(self.positions) - 1
            if number >= len(stored) or not (is_edited or stored[number][1]["content"] == self.texts[number]):
                raise position_error(position, "the session does not have this user message at this position")
        index, message = stored[len(self.texts) - 1]
        if turn.images and [image.sha256 for image in turn.images] != images_of(message):
            raise position_error(self.positions[-1], "the images of a stored message cannot be changed")
        return TurnPlan(again, (index, self.texts[-1]))


def position_error(position: int, problem: str, *path: str | int) -> ValidationFailed:
    """Return the error for an invalid message. ``position`` is its position among the messages of the request."""
    location = ["messages", position, *path]
    error = {"loc": ["body", *location], "msg": problem, "type": "value_error"}
    return ValidationFailed(f"{'.'.join(map(str, location))}: {problem}", errors=[error])
