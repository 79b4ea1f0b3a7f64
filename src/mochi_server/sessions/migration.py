"""Reading of the stored turn, also from turn logs, files before format 1.4 and damaged files."""

import logging
from collections.abc import Mapping
from typing import Any

from mochi_server.errors import ServerLost
from mochi_server.sessions.turn import StoredTurn

_EARLIER_FIELDS = ("pending_approval", "last_run")
"""Metadata fields of files before format 1.4 that ``turn`` replaces."""

logger = logging.getLogger(__name__)
_logged: set[tuple[str, str]] = set()  # unreadable turns that were logged, by session and problem


def read_turn(metadata: Mapping[str, Any]) -> StoredTurn | None:
    """Return the turn in the metadata of a session, or in the fields of a line of its turn log.

    Return None without a turn. An unreadable turn is logged once. It counts as failed, or as
    missing if its run IDs are unreadable, too.
    """
    stored = metadata.get("turn")
    if stored is None:
        stored = _earlier_turn(metadata.get("pending_approval"), metadata.get("last_run"))
    if stored is None:
        return None
    try:
        return StoredTurn.from_dict(stored)
    except ValueError as error:
        _log_once(str(metadata.get("session_id")), str(error))
    run_ids = stored.get("run_ids") if isinstance(stored, dict) else None
    if isinstance(run_ids, list) and run_ids and all(isinstance(run_id, str) for run_id in run_ids):
        return StoredTurn(
            run_ids,
            "failed",
            error={"code": ServerLost.code, "message": "The turn was interrupted."},
        )
    return None


def is_turn_field(name: str) -> bool:
    """Return whether a metadata field of any format belongs to the turn."""
    return name == "turn" or name in _EARLIER_FIELDS


def _log_once(session_id: str, problem: str) -> None:
    if (session_id, problem) not in _logged:
        _logged.add((session_id, problem))
        logger.warning(
            "stored turn cannot be read session_id=%s: %s. It ends as interrupted.",
            session_id,
            problem,
        )


def _earlier_turn(record: Any, last_run: Any) -> dict[str, Any] | None:
    """Convert the fields of files before format 1.4: the record of a turn that requested an
    approval, and the state of the last run.

    In the session of an agent, a record with only the ID of the user's session becomes a turn that
    runs.

    Return None without a turn. For an unreadable record without a last run, return an object that
    ``StoredTurn`` rejects.
    """
    if isinstance(record, dict) and "confirmation_id" in record:
        return _turn_of_record(record)
    if isinstance(record, dict) and isinstance(record.get("session_id"), str):
        user_session = record["session_id"]
        return {
            "run_ids": [user_session],
            "parent": {"session_id": user_session, "turn_id": "", "call_id": ""},
            "input": {},
        }
    if not isinstance(last_run, dict) or not isinstance(last_run.get("run_id"), str):
        return None if record is None else {"run_ids": []}
    state = "failed" if record is not None else last_run.get("state")
    return {"run_ids": _run_ids(last_run), "state": state, "answer_id": last_run.get("answer_id")}


def _run_ids(stored: dict[str, Any]) -> list[Any]:
    """Return the IDs of the earlier runs, if any, and of the latest run."""
    earlier = stored.get("earlier")
    ids = earlier if isinstance(earlier, list) else []
    return [*ids, stored.get("run_id")]


def _turn_of_record(record: dict[str, Any]) -> dict[str, Any]:
    """Convert the record of a turn that waits for a decision, or runs after it.

    The call that has ``started`` is ``/<index>``, ``<session of an agent>/<index>``, or its ID.
    """
    agent = record.get("agent")
    if isinstance(agent, dict):
        agent = {name: value for name, value in agent.items() if name != "parent_call_id"}
        agent["call_id"] = record["agent"].get("parent_call_id")
    shared = (
        "confirmation_id",
        "tool_name",
        "arguments",
        "call_index",
        "fingerprint",
        "source",
        "expires_at",
        "decision",
    )
    approval = {name: record[name] for name in shared if name in record} | {"agent": agent}
    turn = {
        "run_ids": _run_ids(record),
        "state": "waiting_for_approval" if record.get("decision") is None else "running",
        "first": record.get("position", 0),
        "input": record.get("input"),
        "approval": approval,
        "replacement": record.get("replacement"),
        "events": record.get("events", 0),
    }
    started = record.get("started")
    is_in_agent = isinstance(started, str) and "/" in started and not started.startswith("/")
    if started is not None:
        turn["started_call"] = started
    if is_in_agent and isinstance(agent, dict):
        turn["started_call"] = agent["call_id"]
    return turn
