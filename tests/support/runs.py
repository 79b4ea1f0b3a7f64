"""Runs without a task, whose events a test publishes itself."""

from typing import Any

from mochi_server.chat.conversation import Conversations
from mochi_server.chat.run import Run
from mochi_server.chat.turn_input import TurnInput
from mochi_server.storage.memory import MemorySessionStore


def run_of(
    turn_input: TurnInput = TurnInput(),  # noqa: B008 - frozen
    session_id: str = "0123456789",
    **fields: Any,
) -> Run:
    """Return a run of a session that no store contains."""
    return Run(
        Conversations(MemorySessionStore(), MemorySessionStore()).stored(session_id),
        turn_input,
        **fields,
    )
