"""The stored turn: the latest turn of a session as pure data.

A turn is stored with its session by each step, so that any server can continue it. The history has
its messages. What the turn does next follows from both. Each transition of a turn is a method that
returns a new value.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

# pydantic needs it before Python 3.12
from typing_extensions import TypedDict

from mochi_server.errors import ServerLost
from mochi_server.sessions.types import Message

TurnState = Literal[
    "running", "waiting_for_approval", "completed", "failed", "stopped", "cancelled"
]
"""State of a turn. A client can stop it. A disconnect, a shutdown or another server can cancel it.

A turn that is stored as ``running`` without a server that runs it was interrupted by a crash.
"""


class _ReplacementMessage(TypedDict):
    """The fields that a turn reads of each message of its replacement."""

    role: Literal["assistant", "tool"]
    content: str
    message_id: str
    timestamp: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision on a tool call.

    ``arguments`` replace the arguments of the model. The model receives ``reason`` with the result
    of the call, whether it was approved or denied.
    """

    approved: bool
    arguments: dict[str, Any] | None = None
    reason: str | None = None
    remember: Literal["once", "session"] = "once"


@dataclass(frozen=True, slots=True)
class AgentCall:
    """Agent whose tool call waits in a turn.

    ``call_id`` is the ID of the call that started the agent.
    """

    name: str
    session_id: str
    call_id: str


@dataclass(frozen=True, slots=True)
class Approval:
    """Latest request of a turn for the approval of a call, and the decision on it.

    The call itself is in the history. ``tool_name`` and ``arguments`` are what the user sees.
    """

    confirmation_id: str
    tool_name: str
    arguments: dict[str, Any]
    call_index: int
    fingerprint: str
    """Hash of the tool's name, schema, source and mark."""
    source: str | None = None
    """MCP server and name of the tool, or None for a tool of the tools directory."""
    expires_at: float | None = None
    """Unix time in seconds from which the turn continues without a decision, or None for no
    timeout.
    """
    agent: AgentCall | None = None
    """Agent that makes the call, or None for a call of the turn itself."""
    decision: Decision | None = None
    stale_ids: tuple[str, ...] = ()
    """Confirmation IDs of earlier requests for the call, after which its tool has changed."""
    earlier_ids: tuple[str, ...] = ()
    """Confirmation IDs of all earlier requests of the turn. Files of earlier versions have none."""

    @property
    def ids(self) -> tuple[str, ...]:
        """Confirmation IDs of all requests of the turn until now."""
        return (*self.earlier_ids, self.confirmation_id)

    @property
    def is_waiting(self) -> bool:
        """Whether clients can decide."""
        if self.decision is not None:
            return False
        return self.expires_at is None or self.expires_at > time.time()

    @property
    def agent_name(self) -> str | None:
        return None if self.agent is None else self.agent.name

    def entry(self) -> dict[str, Any]:
        """Return the request as an entry of ``GET …/confirmations``."""
        return {
            "confirmation_id": self.confirmation_id,
            "tool_name": self.tool_name,
            "arguments": self.arguments,
            "call_index": self.call_index,
            "agent_name": self.agent_name,
            "state": "waiting",
        }


@dataclass(frozen=True, slots=True)
class Parent:
    """Call that started the turn of an agent."""

    session_id: str
    turn_id: str
    call_id: str


@dataclass(frozen=True)
class StoredTurn:
    """Latest turn of a session. While it runs, it has what another server needs to continue it."""

    run_ids: list[str]
    """IDs of the runs of the turn, the first run first.

    A turn that continues after a wait or a crash is a new run.
    """
    state: TurnState = "running"
    first: Annotated[int, Field(ge=0)] = 0
    """Number of messages in the session before the first answer of the turn."""
    answer_id: str | None = None
    """ID of the message of the answer when the turn has ended."""
    error: dict[str, str] | None = None
    """Code and message of the error that ended the turn."""
    input: dict[str, Any] | None = None
    """Request of the turn without its messages, or None if the turn does not continue after a
    crash.
    """
    approval: Approval | None = None
    started_call: str | None = None
    """ID of the latest call that may have begun, unless its tool only reads."""
    started_index: int | None = None
    """Position of this call among the calls of the turn.

    A model may give several calls the same ID.
    """
    replacement: list[dict[str, Any]] | None = None
    """Messages of a regenerated answer.

    The history has the old answer until the new one is complete.
    """
    replacement_images: tuple[str, ...] = ()
    """Images of the results in ``replacement``, in base64.

    They are stored as blobs when the history refers to them.
    """
    parent: Parent | None = None
    events: int = 0
    """Number of events that clients had received when the turn began to wait."""
    starts: int = 1
    """How often a server has started the turn. A wait for a decision is no new start."""
    sender: str = ""
    """Name of the API key that has sent the turn, which also limits the turn when it continues.

    It is "" if there was none, and in files of earlier versions.
    """
    key_digest: str | None = None
    """Hash of the idempotency key of the request, or None if it had none, and in files of earlier
    versions.
    """

    @classmethod
    def from_dict(cls, stored: object) -> "StoredTurn":
        """Return a turn from its JSON object.

        Raises ``ValueError`` with the field if it is invalid.
        """
        try:
            turn = _adapter().validate_python(stored)
        except ValidationError as error:
            raise ValueError(_problem(error)) from error
        if not turn.run_ids:
            raise ValueError("run_ids: the turn has no run")
        if turn.state == "waiting_for_approval" and turn.input is None:
            raise ValueError("input: a turn that waits needs its request")
        if turn.replacement:
            _check_replacement(turn.replacement)
        return turn

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of the turn.

        The first field is ``due``, if it is a finite time, because an index of PostgreSQL reads it.
        """
        values: dict[str, Any] = _adapter().dump_python(self, mode="json", exclude_defaults=True)
        values["state"] = self.state
        if self.due in (None, math.inf):
            return values
        return {"due": self.due, **values}

    @property
    def turn_id(self) -> str:
        """ID of the first run of the turn."""
        return self.run_ids[0]

    @property
    def run_id(self) -> str:
        """ID of the latest run of the turn."""
        return self.run_ids[-1]

    @property
    def has_ended(self) -> bool:
        return self.state not in ("running", "waiting_for_approval")

    @property
    def was_lost(self) -> bool:
        """Whether the server of the turn died, so that it is unknown which of its requests were
        decided.

        It is also true while a server runs a turn that has requested no approval. It is false for a
        turn that runs after a request, which has the IDs of all requests.
        """
        is_interrupted = self.state == "running" and self.approval is None
        return is_interrupted or (
            self.error is not None and self.error.get("code") == ServerLost.code
        )

    @property
    def survives(self) -> bool:
        """Whether the turn continues after a crash.

        Crash recovery adds no results to its open calls.
        """
        return not self.has_ended and self.input is not None

    @property
    def due(self) -> float | None:
        """Unix time in seconds from which a server continues or ends the turn without a client.

        It is None for a turn that has ended and for a turn of an agent, which continues with that
        of its parent. It is infinite for a wait without a timeout. It is 0 while a server runs the
        turn: only after its death can another server lock the session.
        """
        if self.has_ended or self.parent is not None:
            return None
        if self.state == "running" or self.approval is None:
            return 0
        return math.inf if self.approval.expires_at is None else self.approval.expires_at

    @property
    def waiting(self) -> Approval | None:
        """Request on which clients can decide, or None."""
        is_waiting = (
            self.state == "waiting_for_approval"
            and self.approval is not None
            and self.approval.is_waiting
        )
        return self.approval if is_waiting else None

    @property
    def agent_call(self) -> AgentCall | None:
        """Agent that makes the call of the latest request for approval, or None."""
        return None if self.approval is None else self.approval.agent

    def has_begun(self, call_id: str, index: int) -> bool:
        """Return whether a call without a result may have begun, so that it must not run again.

        Files before format 1.4 contain the ``index`` of a call in the turn in place of its ID.
        """
        if self.started_index is None:
            return self.started_call is not None and self.started_call in (call_id, f"/{index}")
        return (self.started_call, self.started_index) == (call_id, index)

    def requested(
        self, approval: Approval, turn_input: dict[str, Any], events: int
    ) -> "StoredTurn":
        """Return the turn after it has requested the approval of a call."""
        return replace(
            self, state="waiting_for_approval", approval=approval, input=turn_input, events=events
        )

    def decided(self, decision: Decision | None) -> "StoredTurn":
        """Return the turn after the decision on its request, or after its timeout if ``decision``
        is None.
        """
        approval = self.approval
        if approval is not None:
            approval = replace(approval, decision=decision)
        return replace(self, state="running", approval=approval)

    def started(self, call_id: str, index: int) -> "StoredTurn":
        """Return the turn before it runs a call that must not run twice."""
        return replace(self, started_call=call_id, started_index=index)

    def continued(self, run_id: str, *, is_new_start: bool) -> "StoredTurn":
        """Return the turn with a new run. A turn that waits must be ``decided`` before.

        ``is_new_start`` states whether a crash or a stop of its server has interrupted the earlier
        run.
        """
        return replace(self, run_ids=[*self.run_ids, run_id], starts=self.starts + is_new_start)

    def ended(
        self, state: TurnState, answer_id: str | None = None, error: dict[str, str] | None = None
    ) -> "StoredTurn":
        """Return the turn after its end, without what is needed to continue it."""
        return StoredTurn(
            self.run_ids,
            state,
            self.first,
            answer_id=answer_id,
            error=error,
            parent=self.parent,
            starts=self.starts,
            key_digest=self.key_digest,
        )


def answer_message_id(turn_id: str, index: int) -> str:
    """Return the message ID of an answer, which shows that the answer belongs to the turn.

    ``index`` is the position of the answer among the answers of the turn.
    """
    return blake2b(f"{turn_id} {index}".encode(), digest_size=5).hexdigest()


def first_answer_of_turn(history: Sequence[Message], turn_id: str) -> int | None:
    """Return the index of the first answer of a turn, or None if the history does not have it."""
    message_id = answer_message_id(turn_id, 0)
    for index in reversed(range(len(history))):  # most lookups are of the latest turn
        if history[index]["message_id"] == message_id:
            return index
    return None


def _check_replacement(messages: list[dict[str, Any]]) -> None:
    """Raise ``ValueError`` unless each message is an answer or a tool result."""
    try:  # the validated messages are not used, because they lack unknown keys
        _replacement_adapter().validate_python(messages)
    except ValidationError as error:
        raise ValueError(f"replacement.{_problem(error)}") from error


def _problem(error: ValidationError) -> str:
    """Return the first problem of a stored value in one line."""
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


@cache
def _adapter() -> TypeAdapter[StoredTurn]:
    return TypeAdapter(StoredTurn)  # built at its first use, because building it is slow


@cache
def _replacement_adapter() -> TypeAdapter[list[_ReplacementMessage]]:
    return TypeAdapter(list[_ReplacementMessage])
