"""A run, drained: for clients that want one answer and not a stream."""

from dataclasses import dataclass
from typing import Any

from mochi_server.chat.run import Run
from mochi_server.sessions.types import Message
from mochi_server.tools.toolbox import ToolOutcome


@dataclass(frozen=True, slots=True)
class ChatOutcome:
    """What came of a turn. ``message`` is the answer as stored; None when it was stopped before it said anything."""

    session_id: str
    message: Message | None
    tool_calls: list[ToolOutcome]
    context_window: dict[str, Any]


async def collect(run: Run) -> ChatOutcome:
    """Wait for a run's end. Raises the error that ended it, if one did."""
    async for _ in run.listen():
        pass
    turn = run.turn
    if turn.failure is not None:
        raise turn.failure
    return ChatOutcome(run.session_id, turn.answer, turn.outcomes, turn.window_object)
