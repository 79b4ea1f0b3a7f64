"""Control of a live turn by other tasks: a decision on its waiting call, or the end of its task."""

import asyncio
import math
from dataclasses import dataclass, field

from mochi_server import errors
from mochi_server.sessions.turn import Approval, Decision, StoredTurn, TurnState
from mochi_server.tools.toolbox import BoundCall, FindTool


class TurnSuspended(Exception):
    """Signal that ends the task of a turn that waits for approval.

    The stored turn continues later.
    """


@dataclass(eq=False)
class ApprovalRequest:
    """Request for the client's decision on a call of a live turn."""

    approval: Approval
    bound: BoundCall  # the call to run; the client's decision may replace its arguments
    find: FindTool  # returns the tool that has a name now
    decision: "asyncio.Future[Decision]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """Decision of the client.

    The future is cancelled if the timeout passes first, and has the error ``TurnSuspended`` if the
    turn is suspended.
    """
    is_stored: bool = False  # whether the request is stored, so that clients find it
    decision_settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the decision is stored or has a failure, or the turn has ended."""
    failure: errors.MochiError | None = None
    """Why the decision was not stored."""

    @property
    def confirmation_id(self) -> str:
        return self.approval.confirmation_id

    async def is_stale(self) -> bool:
        """Return whether another tool has the name of the requested tool now.

        A tool that is gone is not stale: its call fails.
        """
        tool, requested = await self.find(self.bound.call.name), self.bound.tool
        if tool is None or tool is requested:
            return False
        return tool.identity != requested.identity


class TurnControl:
    """State by which other tasks control a live turn: the call that waits for a decision, and the
    reasons to end the task.
    """

    def __init__(self) -> None:
        self.request: ApprovalRequest | None = None
        """Request for the decision that the turn waits for."""
        self.is_suspending = False
        """Whether ``suspend`` has ended the wait of the task, which cannot be cancelled then.

        False again after the end of the task.
        """
        self.ends_for_shutdown = False
        """Whether a shutdown ends the task.

        A turn that survives a crash continues at the next server.
        """
        self.is_stopped = False
        """Whether a client has stopped the turn."""
        self.task_was_cancelled = False
        """Whether the task was cancelled, also if its turn had ended before."""
        self.abort_error: errors.MochiError | None = None
        """Error to report if the server cancels the turn, else None."""
        self.decided_at = -math.inf
        """Time of the latest decision, on the clock of the event loop."""

    def leaves_to_next_server(self, turn: StoredTurn) -> bool:
        """Return whether a cancelled turn continues at the next server."""
        return self.ends_for_shutdown and not self.is_stopped and turn.survives

    def state_after(self, failure: errors.MochiError | None, *, cancelled: bool) -> TurnState:
        """Return the final state of the turn."""
        if cancelled:
            return "stopped" if self.is_stopped else "cancelled"
        return "failed" if failure else "completed"

    def suspend(self) -> bool:
        """Suspend the turn if a call waits for a decision.

        Return whether the task suspends the turn, because of this call or an earlier one.
        """
        if self.request is not None and not self.request.decision.done():
            self.is_suspending = True
            self.request.decision.set_exception(TurnSuspended())
            self.request = None
        return self.is_suspending
