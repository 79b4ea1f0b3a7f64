"""Webhooks about turns. They contain no text of conversations."""

import orjson

from mochi_server.sessions.change import Notice
from mochi_server.sessions.turn import StoredTurn
from mochi_server.util.clock import now


def notices_of(session_id: str, turn: StoredTurn) -> list[Notice]:
    """Return the webhook that reports the state of a turn, if any.

    A turn that a client ends is not reported.
    """
    subject = turn.run_id
    if turn.waiting is not None:
        kind = "run.waiting_for_approval"
        subject = turn.waiting.confirmation_id
    elif turn.state == "completed":
        kind = "run.completed"
    elif turn.state == "failed" or (turn.state == "cancelled" and turn.error is not None):
        kind = "run.failed"
    else:
        return []
    data = {"session_id": session_id, "run_id": turn.run_id}
    body = orjson.dumps({"type": kind, "timestamp": now(), "data": data}).decode()
    return [Notice(f"msg_{subject}", session_id, body, is_request=turn.waiting is not None)]
