"""Durable record of a turn that has requested an approval, so that the turn can continue after a restart."""

import asyncio
import hashlib
import logging
import math
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from mochi_server.chat.conversation import Conversation
from mochi_server.chat.run import Run
from mochi_server.chat.turn_input import TurnInput
from mochi_server.chat.turn_writer import TurnWriter
from mochi_server.errors import MochiError, SessionBusy, SessionNotFound, SessionTaken
from mochi_server.events import ToolConfirmationRequired
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import Message
from mochi_server.tools.discovery import Tool
from mochi_server.tools.toolbox import BoundCall, DecidedBy, Decision, ToolInvocation, ToolOutcome, failed
from mochi_server.util.tasks import run_shielded

OUTCOME_UNKNOWN = "This call was interrupted, the outcome is unknown: the server stopped while the call was running."

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ParkedAgent:
    """Agent whose tool call waits. ``parent_call_id`` is the ID of the call that started the agent."""

    name: str
    session_id: str
    parent_call_id: str


@dataclass(frozen=True)
class ParkedTurn:
    """Record of a turn, stored with its session from the first request for an approval until the turn ends.

    The history contains the rest: the calls of the last answer that have no result are the calls to run.
    """

    confirmation_id: str
    tool_name: str
    arguments: dict[str, Any]
    call_index: int
    run_id: str
    earlier: list[str]  # IDs of the runs of the turn before this run, the first run first
    expires_at: float | None  # Unix time in seconds, or None for no timeout
    fingerprint: str
    source: str | None  # MCP server and name of the tool, or None
    events: int  # number of events that the run published before the request
    position: int  # number of messages in the session before the turn's first answer
    input: TurnInput  # input of the turn that continues
    agent: ParkedAgent | None = None
    replacement: list[dict[str, Any]] | None = None  # messages of a regenerated answer; the session has the old ones
    decision: Decision | None = None
    started: str | None = None  # key or ID of the latest call that may have begun and that is not read-only

    @classmethod
    def of(cls, session: ChatSession) -> "ParkedTurn | None":
        """Return the record of a session, or None if there is none or it is unreadable."""
        stored = session.metadata.pending_approval
        if stored is None:
            return None
        try:
            return _ADAPTER.validate_python(stored)
        except ValidationError as error:
            name, problem = error.errors()[0]["loc"], error.errors()[0]["msg"]
            logger.warning("parked turn cannot be read session_id=%s field=%s: %s", session.session_id, name, problem)
            return None

    @property
    def due(self) -> float:
        """Unix time from which the turn continues without a decision, in seconds. It is 0 after a decision."""
        if self.decision is not None:
            return 0
        return math.inf if self.expires_at is None else self.expires_at

    @property
    def is_waiting(self) -> bool:
        """Whether clients can decide."""
        return self.due > time.time()

    @property
    def agent_name(self) -> str | None:
        return None if self.agent is None else self.agent.name

    def to_dict(self) -> dict[str, Any]:
        due = None if self.due == math.inf else self.due  # the first field, which an index of PostgreSQL reads
        return {"due": due, **_ADAPTER.dump_python(self, mode="json")}

    def confirmations(self) -> list[dict[str, Any]]:
        """Return the request as an entry of ``GET …/confirmations``, or nothing if clients cannot decide."""
        names = ("confirmation_id", "tool_name", "arguments", "call_index", "agent_name")
        return [{name: getattr(self, name) for name in names} | {"state": "waiting"}] if self.is_waiting else []

    def announcement(self) -> ToolConfirmationRequired:
        return ToolConfirmationRequired(
            self.tool_name, self.arguments, self.call_index, self.confirmation_id, self.agent_name
        )


_ADAPTER = TypeAdapter(ParkedTurn)


def refuse_if_waiting(session: ChatSession) -> None:
    """Raise ``SessionBusy`` if the session has a turn that waits for approval."""
    if (record := ParkedTurn.of(session)) is not None:
        raise SessionBusy.waiting(session.session_id, record.run_id, record.confirmations())


async def refuse_if_caller_waits(sessions: SessionStore, chat: ChatSession) -> None:
    """Raise ``SessionBusy`` if a turn in ``sessions`` waits for approval of a call in ``chat``, a session of an agent.

    The session of an agent that has requested an approval names the session of the turn.
    """
    mark = chat.metadata.pending_approval
    with suppress(SessionNotFound):
        caller = await sessions.load(mark["session_id"]) if mark and "session_id" in mark else None
        record = caller and ParkedTurn.of(caller)
        if record and record.agent and record.agent.session_id == chat.session_id:
            raise SessionBusy(chat.session_id, record.run_id)


def fingerprint(tool: Tool) -> str:
    """Return a hash of the name, schema, source and mark of a tool."""
    return hashlib.sha256(orjson.dumps(tool.identity, option=orjson.OPT_SORT_KEYS, default=str)).hexdigest()[:32]


def turn_messages(session: ChatSession, record: ParkedTurn) -> list[Message]:
    """Return the messages that a turn has added to its session, without the user message."""
    if record.replacement is not None:
        return list(record.replacement)  # type: ignore[arg-type]  # messages are dictionaries
    return list(session.history[record.position :])


@dataclass(eq=False)
class RecordWriter:
    """Writer of the record of one turn. The turn has no record until it requests an approval."""

    conversation: Conversation
    input: TurnInput
    continued: ParkedTurn | None = None  # record with which a parked turn continues, until its decision is applied
    is_agent_missing: bool = False  # whether the agent of this record no longer exists
    run: Run = field(init=False)  # set when the turn begins
    writer: TurnWriter = field(init=False)

    def __post_init__(self) -> None:
        self.record = self.continued

    def begin(self, writer: TurnWriter) -> None:
        assert writer.run is not None  # noqa: S101 - only the turns of agents inside a run have no run
        self.run, self.writer = writer.run, weakref.proxy(writer)  # a cycle would outlive the turn
        writer.store_regenerated = self._store_regenerated

    async def request(
        self, confirmation_id: str, bound: BoundCall, agent: ParkedAgent | None, expires_at: float | None
    ) -> None:
        """Store the request for an approval and everything that the turn needs to continue after it."""
        turn, replaces = self.input, self.writer.is_regeneration
        await self._store(
            ParkedTurn(
                confirmation_id,
                tool_name=bound.call.name,
                arguments=bound.call.arguments,
                call_index=bound.call.index,
                run_id=self.run.run_id,
                earlier=list(self.run.earlier),
                expires_at=expires_at,
                fingerprint=fingerprint(bound.tool),
                source=bound.tool.source,
                events=self.run.log.last,
                position=self.writer.answer_index,
                input=TurnInput(
                    change=turn.change if replaces else "continue",
                    generation=turn.generation,
                    tools=replace(turn.tools, must_call=False),
                    model=turn.model,
                    instructions=turn.instructions,
                    on_disconnect=turn.on_disconnect,
                ),
                agent=agent,
                replacement=_without_images(self.writer.stored) if replaces else None,
            )
        )

    async def add_decision(self, decision: Decision) -> None:
        if self.record is not None:
            await self._store(replace(self.record, decision=decision))

    async def starting(self, bound: BoundCall, agent: ParkedAgent | None) -> None:
        """Store that a call is about to run, so that it never runs twice. Read-only tools may run twice."""
        if self.record is None or bound.tool.read_only:
            return
        started = _key(bound.call.index, agent)
        if agent is not None and agent != self.record.agent:  # it has requested no approval, so it cannot continue
            started = agent.parent_call_id
        await self._store(replace(self.record, started=started))

    def known_outcome(self, call: ToolInvocation, agent: ParkedAgent | None = None) -> ToolOutcome | None:
        """Return the outcome of a call that cannot run, or may have begun before the server stopped, or None."""
        if self.is_agent_missing and (missing := self.agent_of(call)) is not None:
            return failed(call, f"There is no agent named {missing.name!r}.")
        if self.continued is None or self.continued.started not in (_key(call.index, agent), call.id):
            return None
        return replace(failed(call, OUTCOME_UNKNOWN, decided_by=self.decided_by(call, agent)), is_interrupted=True)

    def decided_by(self, call: ToolInvocation, agent: ParkedAgent | None = None) -> DecidedBy:
        """Return the source of the stored decision on a call, which is the policy if there is none."""
        record = self.continued
        if record is None or _key(record.call_index, record.agent) != _key(call.index, agent):
            return "policy"
        return "timeout" if record.decision is None else "user"

    def take_decided(self, call: ToolInvocation, agent: ParkedAgent | None) -> ParkedTurn | None:
        """Return the record if it has the decision on this call, or if the request for it expired. It applies once."""
        if self.decided_by(call, agent) == "policy":
            return None
        record, self.continued = self.continued, None
        return record

    def agent_of(self, call: ToolInvocation) -> ParkedAgent | None:
        """Return the agent that a call had started before the turn was parked, or None."""
        agent = self.continued.agent if self.continued is not None else None
        return agent if agent is not None and agent.parent_call_id == call.id else None

    async def clear(self) -> None:
        """Remove the record at the end of the turn, unless another server has taken the session over.

        Ignore errors of this write, and a cancellation of the turn.
        """
        if self.record is not None and not isinstance(self.run.abort_error, SessionTaken):
            with suppress(asyncio.CancelledError, MochiError):
                await run_shielded(self.conversation.patch({"pending_approval": None}))

    async def _store_regenerated(self) -> None:
        if self.record is not None:
            await self._store(replace(self.record, replacement=_without_images(self.writer.stored)))

    async def _store(self, record: ParkedTurn) -> None:
        await self.conversation.patch({"pending_approval": record.to_dict()})
        self.record = record


def _without_images(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the messages of a regenerated answer. Their images are not stored before the answer is complete."""
    return [{name: value for name, value in message.items() if name != "images"} for message in messages]


def _key(call_index: int, agent: ParkedAgent | None) -> str:
    """Return the key of a call among all calls of a turn and of its agents."""
    return f"{agent.session_id if agent else ''}/{call_index}"
