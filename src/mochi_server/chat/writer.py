"""Storage of one turn: a change of the session for each step, also for the end of an interrupted
turn.
"""

import asyncio
import logging
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mochi_server.chat.answer import AnswerBuilder
from mochi_server.chat.conversation import Conversation
from mochi_server.chat.idempotency import run_ids
from mochi_server.chat.prompt import with_instructions
from mochi_server.chat.turn_input import TurnInput, stored_input
from mochi_server.chat.turn_result import TurnResult
from mochi_server.errors import MochiError
from mochi_server.events import ChatEvent
from mochi_server.inference.window_registry import WindowDecision
from mochi_server.sessions.caller import CALLER
from mochi_server.sessions.change import Change, VersionChange
from mochi_server.sessions.history import History, complete_length, last_user_index
from mochi_server.sessions.session import ChatSession, key_digest, user_message
from mochi_server.sessions.turn import Approval, Decision, Parent, StoredTurn, TurnState
from mochi_server.sessions.types import (
    AssistantMessage,
    Blob,
    Image,
    Message,
    ToolCall,
    ToolCallFunction,
    UnfinishedCalls,
    images_of,
    with_unreadable_images,
)
from mochi_server.sessions.versions import versions_removed
from mochi_server.tools.stored_calls import (
    interrupted_outcome,
    open_calls,
    stored_outcomes,
    tool_message,
    unknown_outcome,
)
from mochi_server.tools.toolbox import ToolInvocation, ToolOutcome, denied
from mochi_server.util.tasks import run_shielded

FLUSH_SECONDS = 2.0  # interval at which the partial answer is stored while the model writes it

logger = logging.getLogger(__name__)


class TurnWriter:
    """Writer of one turn. ``turn`` is the turn as it is stored. Only the writer changes it.

    A regenerated answer replaces the old answer when it is complete. If the turn continues after a
    partial answer, its first new message replaces that answer.
    """

    def __init__(
        self,
        conversation: Conversation,
        session: ChatSession,
        turn_input: TurnInput,
        run_id: str,
        *,
        opening: Change | None = None,
        survives: bool = False,
        parent: Parent | None = None,
        continued: StoredTurn | None = None,
    ) -> None:
        """``session`` contains the ``opening`` change, which is stored with the first write.

        ``survives`` states whether a new turn continues after a crash, and ``parent`` is the call
        that has started it. ``continued`` is the stored turn to continue, if any.
        """
        self.conversation = conversation
        self._input = turn_input.without_data()
        self._opening = opening or Change()
        self.answer: AnswerBuilder | None = None  # answer that the model writes now, or None
        # Latest call that has begun to run, with its outcome, if any.
        self._latest_call: tuple[ToolInvocation, ToolOutcome | None] | None = None
        self._initial_write: asyncio.Future[None] | None = None
        self._flush_timer: asyncio.TimerHandle | None = None
        self._flush: asyncio.Future[None] | None = None  # latest write of the partial answer
        # Answers that the turn does not store, because it has requested them again.
        self.replaced: list[AssistantMessage] = []
        # Message ID, and seconds until the first chunk, of each request for an answer.
        self.first_chunks: list[tuple[str, float | None]] = []
        # Images of tool results that are not stored yet, by SHA-256 hash.
        self.unstored_images: dict[str, Image] = {}
        # Number of the oldest versions that were removed because of a limit, without a warning yet.
        self._removed_versions = 0
        # Context window of the turn, or None if no model was called.
        self.window: WindowDecision | None = None
        self._new_messages = [] if continued else _new_messages(turn_input, session)
        self.history = session.history.extended(self._new_messages)
        """Messages of the session, and the new messages."""
        self.added: list[Message] = []
        """Messages of the answer, oldest first, with those of the turn that this one continues."""
        is_continuation = turn_input.change == "continue"
        if continued is None:
            first = turn_input.answer_index(self.history)
            # A regeneration replaces stored messages.
            self.is_regeneration = not is_continuation and first < len(self.history)
            if is_continuation:
                self.added += self.history[first : complete_length(self.history)]
            self.turn = StoredTurn(
                run_ids(session, turn_input, run_id),
                first=first,
                parent=parent,
                sender=CALLER.get().key,
                key_digest=_key_digest(turn_input, session),
            )
            if survives:
                self.turn = replace(self.turn, input=self._stored_input())
            if survives and self.is_regeneration:
                self.turn = replace(self.turn, replacement=[])
        else:
            self.is_regeneration = turn_input.change == "regenerate"
            self.turn = continued
            self.added += turn_messages(session, continued)
            self.unstored_images.update(
                {image.sha256: image for image in _replacement_images(continued)}
            )
        self._revision = session.revision
        # Partial answer after which the turn continues, until a new message replaces it.
        self._partial: Sequence[Message] = ()
        if is_continuation:
            self._partial = self.history[self.turn.first + len(self.added) :]
        user_index = last_user_index(self.history)
        if user_index is None:
            user_index = len(self.history)
        earlier, self.turn_start = with_instructions(
            self.history.prefix(self.turn.first), user_index, turn_input.instructions
        )
        """``turn_start`` is the index in ``messages`` of the user message to answer."""
        self.messages = earlier.extended(self.added)  # for the model
        self.outcomes: list[ToolOutcome] = stored_outcomes(self.added)

    def begin(self, blobs: Sequence[Blob] = ()) -> "asyncio.Future[None]":
        """Begin to store the turn, the new messages and their blobs. Return the write."""
        messages = [*self._opening.messages, *self._new_messages]
        change = replace(self._opening, messages=messages, images=blobs, turn=self.turn)
        self._initial_write = asyncio.ensure_future(self._write(change))
        return self._initial_write

    @property
    def initial_write(self) -> "asyncio.Future[None]":
        """Write that ``begin`` has begun."""
        assert self._initial_write is not None  # noqa: S101 - the turn has begun
        return self._initial_write

    async def wait_until_stored(self) -> None:
        """Wait until the user message is stored.

        If that write failed, raise its error on every call.
        """
        if self._initial_write is not None:
            await asyncio.shield(self._initial_write)

    async def load_image(self, name: str) -> bytes:
        """Return a blob of the session. Raises ``BlobNotFound``."""
        image = self.unstored_images.get(name)
        if image is not None:
            return image.data
        return await self.conversation.store.load_image(name)

    def schedule_flush(self) -> None:
        """Schedule a write of the partial answer, so that a crash loses only the last seconds of
        text.

        A turn that continues after a crash generates the answer again.
        """
        if self._flush_timer is None and not self._replaces_answer and not self.turn.survives:
            self._flush_timer = asyncio.get_running_loop().call_later(
                FLUSH_SECONDS, self._start_flush
            )

    async def add_answer(self, message: AssistantMessage, *, is_last: bool) -> None:
        """Store a complete answer. ``is_last`` states whether it ends the turn."""
        await self._finish_writes()
        await run_shielded(self._add(message, is_last=is_last))

    def begin_call(self, call: ToolInvocation) -> None:
        """Set the latest call, whose progress determines its result if the turn ends now."""
        self._latest_call = (call, None)

    async def add_result(self, call: ToolInvocation, outcome: ToolOutcome) -> None:
        """Store the result of a call."""
        self.outcomes.append(replace(outcome, images=()))
        self.unstored_images.update({image.sha256: image for image in outcome.images})
        self._latest_call = (call, outcome)  # `end` stores it if the turn is cancelled first
        await self._finish_writes()
        await run_shielded(self._add(tool_message(call, outcome)))

    async def store_request(self, approval: Approval, events: int) -> None:
        """Store that the turn waits for the approval of a call, after so many published events."""
        turn = self.turn.requested(approval, self._stored_input(), events)
        if self.is_regeneration:
            turn = _with_replacement(turn, self.added, self._images())
        await self._write(Change(turn=turn))

    async def make_survive(self) -> None:
        """Store what the turn needs to continue after a crash, unless it is stored already."""
        if not self.turn.survives:
            await self._write(Change(turn=replace(self.turn, input=self._stored_input())))

    async def mark_images_unreadable(self) -> bool:
        """Mark the images of the turn, because the model cannot decode one of them.

        Return whether the turn has images. Later prompts have a note in their place.
        """
        start = last_user_index(self.history)
        return await self._mark_images(self.turn.first if start is None else start)

    async def hide_earlier_images(self) -> bool:
        """Mark the images of earlier messages, because the model cannot decode one of them.

        Return whether there are any. This prompt and later ones have a note in their place.
        """
        hidden = [with_unreadable_images(message) for message in self.messages]
        if self.messages == hidden:
            return False
        self.messages = History.of(hidden)
        with_images = [index for index, message in enumerate(self.history) if images_of(message)]
        await self._mark_images(with_images[0])
        return True

    async def _mark_images(self, start: int) -> bool:
        """Mark the images from the index ``start`` and those of the turn as unreadable, or return
        False if there are none.

        The old answer of a regeneration stays as it is.
        """
        messages = [*self.history[start : self.turn.first], *self.added]
        marked = [with_unreadable_images(message) for message in messages]
        if marked == messages:
            return False
        change = Change([*marked, *self._partial], start=start, images=self._images())
        if self.is_regeneration:
            earlier = marked[: self.turn.first - start]
            change = Change([*earlier, *self.history[self.turn.first :]], start=start)
        await self._finish_writes()
        await self._write(change)
        return True

    async def store_decision(self, decision: Decision | None) -> None:
        """Store the decision on the latest request, or that it has expired."""
        await self._write(Change(turn=self.turn.decided(decision)))

    async def start_call(self, call: ToolInvocation) -> None:
        """Store that a call is about to run, so that it never runs twice."""
        await self._write(Change(turn=self.turn.started(call.id, call.index)))

    def result(self, **ending: Any) -> TurnResult:
        """Return the result of the turn until now. Its parts grow while the turn is running."""
        return TurnResult(
            self.added,
            replaced=self.replaced,
            first_chunks=self.first_chunks,
            outcomes=self.outcomes,
            window=self.window,
            turn=self.turn,
            earlier=self._input.continued_length,
            **ending,
        )

    async def end(self, state: TurnState, error: MochiError | None = None) -> MochiError | None:
        """Store the end of an interrupted turn, with its partial answer and the results of its open
        calls.

        If the turn has failed or was cancelled, the old answer of a regeneration stays, and so does
        a partial answer that no message has replaced. Reasoning without text does not replace them
        either. Return the error of a failed write, or None.
        """
        try:
            await run_shielded(self._end(state, error))
        except MochiError as failure:
            logger.error(
                "End of a turn not stored session_id=%s: %s",
                self.conversation.session_id,
                failure.message,
            )
            return failure
        return None

    def take_version_warnings(self) -> list[ChatEvent]:
        """Return the warning about the versions that were removed since the last call, if any."""
        removed = self._removed_versions
        if not removed:
            return []
        self._removed_versions = 0
        return [versions_removed(removed)]

    async def _end(self, state: TurnState, error: MochiError | None) -> None:
        await self._finish_writes()
        answer = self.answer
        self.answer = None
        messages = self._results_of_open_calls()
        needs_content = self._replaces_answer or state == "failed"
        if answer is not None and answer.has_text and (answer.content or not needs_content):
            messages.append(answer.message(interrupted=True))
        old_answer_stays = self._replaces_answer and state in ("failed", "cancelled")
        if old_answer_stays:
            messages = []
        self.added.extend(messages)
        reason = None if error is None else {"code": error.code, "message": error.message}
        turn = self.turn.ended(state, self.result().answer_id, reason)
        if self.is_regeneration and not old_answer_stays and self.added:
            await self._replace(self.added, turn)
        else:
            await self._append(Change(messages, images=self._images(), turn=turn))

    def _results_of_open_calls(self) -> list[Message]:
        """Return result messages for the open tool calls.

        Calls without an outcome are marked as interrupted.
        """
        messages: list[Message] = []
        for open_call in open_calls(self.added):
            call, outcome = open_call, None
            if self._latest_call is not None and self._latest_call[0].index == call.index:
                call, outcome = self._latest_call
            if outcome is None:
                outcome = interrupted_outcome(call)
                self.outcomes.append(outcome)
            messages.append(tool_message(call, outcome))
        return messages

    async def _add(self, message: Message, *, is_last: bool = False) -> None:
        turn = self.turn.ended("completed", message["message_id"]) if is_last else None
        if not self.is_regeneration:
            # Placeholder results are stored with the calls, so that after a crash each call has a
            # result.
            partial = None if self.turn.survives else _placeholder([*self.added, message])
            change = Change(
                [message], images=self._images(), partial=partial, ends_turn=is_last, turn=turn
            )
            await self._append(change)
            self.unstored_images.clear()
        elif is_last:
            await self._replace([*self.added, message], turn)
        elif self.turn.survives:
            turn = _with_replacement(self.turn, [*self.added, message], self._images())
            await self._write(Change(turn=turn))
        self.answer = None
        self.messages = self.messages.extended([message])
        self.added.append(message)

    @property
    def _replaces_answer(self) -> bool:
        """Whether the next message replaces an old answer or a partial one."""
        return self.is_regeneration or bool(self._partial)

    async def _append(self, change: Change) -> None:
        """Store new messages, if any, after the complete ones."""
        if not self._partial or not change.messages:
            await self._write(change)
            return
        complete = len(self.history) - len(self._partial)
        await self._write_at(complete, change)
        self._partial = ()

    async def _replace(self, messages: Sequence[Message], turn: StoredTurn | None) -> None:
        change = Change(messages, images=self._images(), turn=turn)
        await self._write_at(self.turn.first, change)

    async def _write_at(self, start: int, change: Change) -> None:
        """Store messages, which replace those from the index ``start``.

        The revision check protects messages that another process or a SessionManager has added.
        """
        replacing = replace(
            change,
            start=start,
            versions=VersionChange(),
            revision=self._revision,
        )
        await self._write(replacing)

    async def _write(self, change: Change) -> None:
        self._removed_versions += await self.conversation.write(change)
        self.turn = change.turn or self.turn

    def _stored_input(self) -> dict[str, Any]:
        """Return the request from which the turn continues after its messages were stored."""
        return stored_input(self._input, replaces=self.is_regeneration)

    def _images(self) -> list[Image]:
        return list(self.unstored_images.values())

    def _start_flush(self) -> None:
        self._flush = asyncio.ensure_future(self._store_partial())

    async def _store_partial(self) -> None:
        conversation = self.conversation
        try:
            await self.wait_until_stored()
            if self.answer is not None:
                change = Change(partial=self.answer.message(interrupted=True))
                await conversation.store.write(conversation.session_id, change)
        except Exception as error:  # the turn itself does not depend on this write
            logger.warning(
                "Partial answer not stored session_id=%s: %s", conversation.session_id, error
            )
        self._flush_timer = None  # the next text schedules the next write

    async def _finish_writes(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        if self._flush is not None:
            await asyncio.wait([self._flush])
        await self.wait_until_stored()


def _placeholder(messages: Sequence[Message]) -> UnfinishedCalls | None:
    """Return the placeholder from which crash recovery makes the results of the open calls in the
    messages of a turn, or None if all have results.
    """
    calls = open_calls(messages)
    if not calls:
        return None
    first, *others = calls
    remaining: list[ToolCall] = []
    for call in others:
        function: ToolCallFunction = {"index": call.index, "name": call.name, "arguments": {}}
        remaining.append({"id": call.id, "function": function})
    result = tool_message(first, interrupted_outcome(first))
    return {**result, "tool_calls": remaining}


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


def turn_messages(session: ChatSession, turn: StoredTurn) -> list[Message]:
    """Return the messages that a turn has added to its session, without the user message.

    The partial answer after which a turn continues is not one of them.
    """
    if turn.replacement is not None:
        return list(turn.replacement)  # type: ignore[arg-type]  # messages are dictionaries
    end = len(session.history)
    if turn.survives:
        end = complete_length(session.history)
    return list(session.history[turn.first : end])


def turn_of_agent(
    agent_session: ChatSession, session_id: str, approval: Approval
) -> StoredTurn | None:
    """Return the turn of an agent that the turn of a session has called, or None if it has ended.

    It contains the request for the ``approval`` of its call, which the calling turn has stored.
    """
    turn = agent_session.metadata.turn
    if turn is None or turn.has_ended or turn.parent is None:
        return None
    if turn.parent.session_id != session_id:
        return None
    return replace(turn, approval=replace(approval, agent=None))


def stopped_messages(session: ChatSession, turn: StoredTurn) -> list[Message]:
    """Return the messages of a stored turn that ends: the call that waits is denied, and the other
    open calls are interrupted.
    """
    calls = unfinished_calls(session, turn)
    results = [tool_message(call, _stopped_outcome(call, turn)) for call in calls]
    return [*turn_messages(session, turn), *results]


def unfinished_calls(session: ChatSession, turn: StoredTurn) -> list[ToolInvocation]:
    """Return the open calls of a stored turn, with the progress of the one that runs an agent."""
    calls = open_calls(turn_messages(session, turn))
    agent = turn.agent_call
    if agent is not None and calls and calls[0].id == agent.call_id:  # calls run in order
        calls[0].begin_agent(agent.name, agent.session_id)
    return calls


def stopped_change(session: ChatSession, turn: StoredTurn, messages: Sequence[Message]) -> Change:
    """Return the change that ends a stored turn with its ``stopped_messages``.

    What a regeneration has produced replaces the old answer.
    """
    ended = turn.ended("stopped", TurnResult(messages).answer_id)
    if not turn.replacement:
        stored = turn_messages(session, turn)
        return Change(messages[len(stored) :], turn=ended)
    return Change(
        messages,
        start=turn.first,
        images=_replacement_images(turn),
        turn=ended,
        versions=VersionChange(),
        revision=session.revision,
    )


def _stopped_outcome(call: ToolInvocation, turn: StoredTurn) -> ToolOutcome:
    """Return the outcome of an open call of a stopped turn."""
    approval = turn.approval
    if approval is not None and (approval.agent is not None or approval.call_index != call.index):
        approval = None  # of another call
    decision = None if approval is None else approval.decision
    is_approved = decision is not None and decision.approved
    if turn.has_begun(call.id, call.index):
        return unknown_outcome(call, decided_by="user" if is_approved else "policy")
    if approval is None:
        return interrupted_outcome(call)
    call.progress.confirmation_id = approval.confirmation_id
    if not is_approved:
        return denied(call)
    call.progress.decided_by = "user"
    return interrupted_outcome(call)


def _with_replacement(
    turn: StoredTurn, messages: Sequence[Message], images: Sequence[Image]
) -> StoredTurn:
    """Return a turn with the messages of its regenerated answer and the images of their results."""
    copies: list[dict[str, Any]] = [{**message} for message in messages]
    encoded = tuple(b64encode(image.data).decode() for image in images)
    return replace(turn, replacement=copies, replacement_images=encoded)


def _replacement_images(turn: StoredTurn) -> list[Image]:
    """Return the images of a regenerated answer. Raises ``ValueError`` if one is damaged."""
    return [Image.of(b64decode(each)) for each in turn.replacement_images]
