"""Turn and messages with which a turn begins, new or continued."""

from collections.abc import Sequence
from typing import NamedTuple

from mochi_server.chat.idempotency import run_ids
from mochi_server.chat.prompt import with_instructions
from mochi_server.chat.turn_input import TurnInput, stored_input
from mochi_server.chat.turn_messages import turn_messages
from mochi_server.sessions.caller import CALLER
from mochi_server.sessions.history import History, complete_length, last_user_index
from mochi_server.sessions.session import ChatSession, key_digest, user_message
from mochi_server.sessions.turn import Parent, StoredTurn
from mochi_server.sessions.types import Message


class TurnBeginning(NamedTuple):
    """Turn and messages with which a writer begins."""

    turn: StoredTurn
    history: History
    """Messages of the session, and the new messages."""
    added: Sequence[Message]
    """Messages of the answer that are stored already."""
    is_regeneration: bool
    """Whether the answer replaces stored messages."""

    def prompt(self, instructions: str | None) -> tuple[History, int]:
        """Return the messages for the model, and the index of the user message to answer."""
        user_index = last_user_index(self.history)
        if user_index is None:
            user_index = len(self.history)
        earlier = self.history.prefix(self.turn.first)
        earlier, turn_start = with_instructions(earlier, user_index, instructions)
        return earlier.extended(self.added), turn_start


def beginning_of_new_turn(
    session: ChatSession,
    turn_input: TurnInput,
    run_id: str,
    *,
    survives: bool,
    parent: Parent | None,
) -> TurnBeginning:
    """Return the beginning of a new turn. Nothing of it is stored.

    ``survives`` states whether it continues after a crash, and ``parent`` is the call that has
    started it.
    """
    history = session.history.extended(_new_messages(turn_input, session))
    first = turn_input.answer_index(history)
    added: Sequence[Message] = ()
    is_regeneration = False
    if turn_input.change == "continue":
        added = history[first : complete_length(history)]
    else:
        is_regeneration = first < len(history)
    turn = StoredTurn(
        run_ids(session, turn_input, run_id),
        first=first,
        input=stored_input(turn_input, replaces=is_regeneration) if survives else None,
        replacement=[] if survives and is_regeneration else None,
        parent=parent,
        sender=CALLER.get().key,
        key_digest=_key_digest(turn_input, session),
    )
    return TurnBeginning(turn, history, added, is_regeneration)


def beginning_of_continued_turn(
    session: ChatSession, turn_input: TurnInput, turn: StoredTurn
) -> TurnBeginning:
    """Return the beginning of a stored turn that continues."""
    messages = turn_messages(session, turn)
    is_regeneration = turn_input.change == "regenerate"
    return TurnBeginning(turn, session.history, messages, is_regeneration)


def _new_messages(turn_input: TurnInput, session: ChatSession) -> list[Message]:
    messages: list[Message] = list(turn_input.results)
    text = turn_input.new_message
    if text is not None:
        digest = _key_digest(turn_input, session)
        message = user_message(text, turn_input.images, turn_input.attachments, key_digest=digest)
        messages.append(message)
    return messages


def _key_digest(turn_input: TurnInput, session: ChatSession) -> str | None:
    if turn_input.key is None:
        return None
    return key_digest(session.session_id, turn_input.key)
