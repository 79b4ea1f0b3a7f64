"""Durable record of a turn that has requested an approval, so that the turn can continue after a restart."""

import hashlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import orjson
from pydantic import TypeAdapter, ValidationError

from mochi_server.chat.conversation import Conversation
from mochi_server.chat.turn_input import TurnInput
from mochi_server.events import Snapshot, ToolConfirmationRequired
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import Message
from mochi_server.tools.discovery import Tool
from mochi_server.tools.toolbox import BoundCall, DecidedBy, Decision, ToolInvocation, ToolOutcome, failed

if TYPE_CHECKING:
    from mochi_server.chat.run import Run
    from mochi_server.chat.turn_writer import TurnWriter

OUTCOME_UNKNOWN = "This call was interrupted, the outcome is unknown: the server stopped while the call was running."

logger = logging.getLogger(__name__)


class TurnParked(Exception):
    """Signal that ends the task of a turn that waits for approval. It continues alone at the Unix time ``due``."""

    def __init__(self, due: float) -> None:
        super().__init__()
        self.due = due


@dataclass(frozen=True)
class ParkedAgent:
    """Agent whose tool call waits. ``start`` is the number of messages of its session before its task."""

    name: str
    session_id: str
    start: int
    instruction: str
    parent_call_id: str


@dataclass(frozen=True)
class ParkedTurn:
    """Record of a turn, stored with its session from the first request for an approval until the turn ends."""

    confirmation_id: str
    tool_name: str
    arguments: dict[str, Any]
    call_index: int
    agent_name: str | None
    call_key: str
    run_id: str
    earlier: list[str]  # IDs of the runs of the turn before this run, the first run first
    requested_at: float  # Unix time in seconds
    expires_at: float | None
    fingerprint: str
    source: str | None  # MCP server and name of the tool, or None
    events: int  # number of events that the run published before the request
    position: int  # number of messages in the session before the turn's first answer
    input: TurnInput  # input of the turn that continues
    revision: str | None = None  # of the history that a regenerated answer will replace
    defects: dict[str, str] = field(default_factory=dict)  # defects of malformed calls, by call ID
    messages: list[dict[str, Any]] = field(default_factory=list)  # messages of a regenerated answer
    agent: ParkedAgent | None = None
    state: Literal["waiting", "decided", "expired"] = "waiting"
    decision: Decision | None = None
    started: str | None = None  # key of the latest call that may have begun and that is not read-only

    @classmethod
    def of(cls, session: ChatSession) -> "ParkedTurn | None":
        """Return the record of a session, or None if there is none or it is unreadable."""
        stored = session.metadata.pending_approval
        if stored is None:
            return None
        try:
            return _ADAPTER.validate_python(stored)
        except ValidationError as error:
            problem = error.errors()[0]
            logger.warning(
                "parked turn cannot be read session_id=%s field=%s: %s",
                session.session_id,
                problem["loc"],
                problem["msg"],
            )
            return None

    @property
    def due(self) -> float:
        """Unix time from which the turn continues without a decision, in seconds. It is 0 if that is now."""
        if self.state != "waiting":
            return 0
        return float("inf") if self.expires_at is None else self.expires_at

    def to_dict(self) -> dict[str, Any]:
        due = None if self.due == float("inf") else self.due  # the first field, which an index of PostgreSQL reads
        return {"due": due, **_ADAPTER.dump_python(self, mode="json")}

    def waiting(self) -> list[dict[str, Any]]:
        """Return the request as an entry of ``GET …/confirmations``, or nothing after the decision."""
        names = ("confirmation_id", "tool_name", "arguments", "call_index", "agent_name")
        entry = {name: getattr(self, name) for name in names} | {"state": "waiting"}
        return [entry] if self.state == "waiting" else []

    def announcement(self) -> ToolConfirmationRequired:
        return ToolConfirmationRequired(
            self.tool_name, self.arguments, self.call_index, self.confirmation_id, self.agent_name
        )


_ADAPTER = TypeAdapter(ParkedTurn)


def fingerprint(tool: Tool) -> str:
    """Return a hash of the name, schema, source and mark of a tool."""
    return hashlib.sha256(orjson.dumps(tool.identity, option=orjson.OPT_SORT_KEYS, default=str)).hexdigest()[:32]


def snapshot(messages: Sequence[Message]) -> Snapshot:
    answers = [message for message in messages if message["role"] == "assistant"]
    content, thinking = ("".join(str(answer.get(name) or "") for answer in answers) for name in ("content", "thinking"))
    return Snapshot(content, thinking)


def turn_messages(session: ChatSession, record: ParkedTurn) -> list[Message]:
    """Return the messages that a turn has added to its session, without the user message."""
    if record.revision is not None:
        return list(record.messages)  # type: ignore[arg-type]  # messages are dictionaries
    return list(session.history[record.position :])


def open_calls(messages: Sequence[Message], defects: dict[str, str]) -> list[ToolInvocation]:
    """Return the calls of the last answer in the messages of a turn that have no result, in order."""
    at = next((n for n in reversed(range(len(messages))) if messages[n]["role"] == "assistant"), None)
    if at is None:
        return []
    first = sum(message["role"] == "tool" for message in messages[:at])
    answered = [message.get("tool_call_id") for message in messages[at + 1 :]]
    calls = enumerate(messages[at].get("tool_calls") or (), first)
    invocations = (
        ToolInvocation(n, c["id"], c["function"]["name"], c["function"]["arguments"], defects.get(c["id"]))
        for n, c in calls
    )
    return [call for call in invocations if call.id not in answered]


def stored_outcomes(messages: Sequence[Message]) -> list[ToolOutcome]:
    """Return the outcomes of the tool calls in the messages of a turn."""
    arguments = {
        call["id"]: call["function"]["arguments"] for message in messages for call in message.get("tool_calls") or ()
    }
    return [
        ToolOutcome(
            ToolInvocation(index, call_id, str(result.get("tool_name")), arguments.get(call_id, {})),
            result["content"],
            success=bool(result.get("success")),
            error_code=result.get("error_code"),
            decided_by=result.get("decided_by", "policy"),
        )
        for index, result in enumerate(message for message in messages if message["role"] == "tool")
        for call_id in [str(result.get("tool_call_id"))]
    ]


@dataclass(eq=False)
class TurnJournal:
    """Writer of the record of one turn. The turn has no record until it requests an approval."""

    conversation: Conversation
    input: TurnInput
    record: ParkedTurn | None = None
    continues: ParkedTurn | None = None  # record with which the turn continues
    is_agent_missing: bool = False  # whether the agent of this record no longer exists
    run: "Run | None" = None
    writer: "TurnWriter | None" = None

    @property
    def is_durable(self) -> bool:
        return self.conversation.kind == "session" and self.run is not None

    async def request(
        self, confirmation_id: str, bound: BoundCall, agent: ParkedAgent | None, expires_at: float | None
    ) -> None:
        """Store the request for an approval and everything that the turn needs to continue after it."""
        run, writer, turn, call = self.run, self.writer, self.input, bound.call
        if run is None or writer is None:
            return
        regeneration = writer.regeneration
        await self._store(
            ParkedTurn(
                confirmation_id,
                call.name,
                call.arguments,
                call.index,
                agent.name if agent else None,
                call_key(call, agent),
                run.run_id,
                list(run.earlier),
                requested_at=time.time(),
                expires_at=expires_at,
                fingerprint=fingerprint(bound.tool),
                source=bound.tool.source,
                events=run.log.last,
                position=writer.position,
                input=TurnInput(
                    change="continue" if regeneration is None else turn.change,
                    generation=turn.generation,
                    tools=replace(turn.tools, must_call=False),
                    model=turn.model,
                    instructions=turn.instructions,
                    on_disconnect=turn.on_disconnect,
                ),
                revision=regeneration,
                defects={each.id: each.defect for each in writer.open_calls if each.defect},
                messages=_without_images(writer.stored) if regeneration is not None else [],
                agent=agent,
            )
        )
        writer.checkpoint = self._checkpoint

    async def decided(self, decision: Decision | None) -> None:
        if self.record is not None:
            state: Literal["decided", "expired"] = "expired" if decision is None else "decided"
            await self._store(replace(self.record, state=state, decision=decision))

    async def starting(self, bound: BoundCall, agent: ParkedAgent | None) -> None:
        """Store that a call is about to run, so that it never runs twice. Read-only tools may run twice."""
        if self.record is not None and not bound.tool.read_only:
            await self._store(replace(self.record, started=call_key(bound.call, agent)))

    def resume(self, writer: "TurnWriter", messages: Sequence[Message]) -> list[ToolInvocation]:
        """Continue the turn, or the turn of an agent, after ``messages``. Return its calls that have no result."""
        writer.resume(messages, stored_outcomes(messages))
        calls = open_calls(messages, self.record.defects if self.record else {})
        writer.expect_results(calls)
        writer.is_complete = not calls and bool(messages) and messages[-1]["role"] == "assistant"
        return calls

    def unknown_outcome(self, call: ToolInvocation, agent: ParkedAgent | None = None) -> ToolOutcome | None:
        """Return the outcome of a call that cannot run, or may have begun before the server stopped, or None."""
        if self.is_agent_missing and (missing := self.agent_of(call)) is not None:
            return failed(call, f"There is no agent named {missing.name!r}.")
        if self.continues is None or self.continues.started != call_key(call, agent):
            return None
        decided_by: DecidedBy = "user" if self.has_decision(call, agent) else "policy"
        return replace(failed(call, OUTCOME_UNKNOWN, decided_by=decided_by), is_interrupted=True)

    def has_decision(self, call: ToolInvocation, agent: ParkedAgent | None) -> bool:
        continues = self.continues
        return continues is not None and continues.state != "waiting" and continues.call_key == call_key(call, agent)

    def agent_of(self, call: ToolInvocation) -> ParkedAgent | None:
        """Return the agent that a call had started before the turn was parked, or None."""
        agent = self.continues.agent if self.continues is not None else None
        return agent if agent is not None and agent.parent_call_id == call.id else None

    async def clear(self) -> None:
        """Remove the record at the end of the turn."""
        if self.record is not None:
            self.record = None
            await self.conversation.patch({"pending_approval": None})

    async def _checkpoint(self) -> None:
        if self.record is not None and self.writer is not None and self.record.revision is not None:
            await self._store(replace(self.record, messages=_without_images(self.writer.stored)))

    async def _store(self, record: ParkedTurn) -> None:
        await self.conversation.patch({"pending_approval": record.to_dict()})
        self.record = record


def _without_images(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the messages of a regenerated answer. Their images are not stored before the answer is complete."""
    return [{name: value for name, value in message.items() if name != "images"} for message in messages]


def call_key(call: ToolInvocation, agent: ParkedAgent | None) -> str:
    """Return the key of a call among all calls of a turn and of its agents."""
    return f"{agent.session_id if agent else ''}/{call.index}"
