"""Storage of one turn: a change of the session for each step, also for the end of an interrupted
turn.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mochi_server.chat.conversation import Conversation
from mochi_server.chat.partial_answer import PartialAnswer
from mochi_server.chat.turn_beginning import beginning_of_continued_turn, beginning_of_new_turn
from mochi_server.chat.turn_input import TurnInput, stored_input
from mochi_server.chat.turn_messages import replacement_images, with_replacement
from mochi_server.chat.turn_result import TurnResult
from mochi_server.errors import MochiError
from mochi_server.events import ChatEvent
from mochi_server.inference.window_registry import WindowDecision
from mochi_server.sessions.change import Change, VersionChange
from mochi_server.sessions.history import History, last_user_index
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.turn import Approval, Decision, Parent, StoredTurn, TurnState
from mochi_server.sessions.types import (
    AssistantMessage,
    Blob,
    Image,
    Message,
    images_of,
    with_unreadable_images,
)
from mochi_server.sessions.versions import versions_removed
from mochi_server.tools.stored_calls import (
    interrupted_outcome,
    open_calls,
    placeholder_result,
    stored_outcomes,
    tool_message,
)
from mochi_server.tools.toolbox import ToolInvocation, ToolOutcome
from mochi_server.util.tasks import run_shielded

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
        that has started it. ``continued`` is the stored turn to continue, if any. Raises
        ``ValueError`` if an image of that turn is damaged.
        """
        if continued is None:
            start = beginning_of_new_turn(
                session, turn_input, run_id, survives=survives, parent=parent
            )
        else:
            start = beginning_of_continued_turn(session, turn_input, continued)
        self.conversation = conversation
        self.turn = start.turn
        self.history = start.history
        """Messages of the session, and the new messages."""
        self.added = [*start.added]
        """Messages of the answer, oldest first, with those of the turn that this one continues."""
        self.partial_answer = PartialAnswer(conversation)
        self.outcomes: list[ToolOutcome] = stored_outcomes(start.added)
        self.replaced: list[AssistantMessage] = []
        """Answers that the turn does not store, because it has requested them again."""
        self.first_chunks: list[tuple[str, float | None]] = []
        """Message ID, and seconds until the first chunk, of each request for an answer."""
        self.window: WindowDecision | None = None
        """Context window of the turn, or None if no model was called."""
        self.messages, self.turn_start = start.prompt(turn_input.instructions)
        """Messages for the model, and the index of the user message to answer in them."""
        self._input = turn_input.without_data()
        self._opening = opening or Change()
        self._new_messages = self.history[len(session.history) :]
        self._revision = session.revision
        self._is_regeneration = start.is_regeneration
        # Partial answer after which the turn continues, until a new message replaces it.
        self._earlier_partial: Sequence[Message] = ()
        if turn_input.change == "continue":
            self._earlier_partial = self.history[self.turn.first + len(self.added) :]
        # Images of tool results that are not stored yet, by SHA-256 hash.
        self._unstored_images = {image.sha256: image for image in replacement_images(self.turn)}
        # Latest call that has begun to run, with its outcome, if any.
        self._latest_call: tuple[ToolInvocation, ToolOutcome | None] | None = None
        self._initial_write: asyncio.Future[None] | None = None
        # Number of the oldest versions that were removed because of a limit, without a warning yet.
        self._removed_versions = 0

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
        await asyncio.shield(self.initial_write)

    async def load_image(self, name: str) -> bytes:
        """Return a blob of the session. Raises ``BlobNotFound``."""
        image = self._unstored_images.get(name)
        if image is not None:
            return image.data
        return await self.conversation.store.load_image(name)

    def schedule_flush(self) -> None:
        """Schedule a flush of the partial answer, unless one is scheduled.

        An answer that replaces stored messages is not flushed, because they stay until it is
        complete. Neither is that of a turn that continues after a crash: it generates it again.
        """
        if self.partial_answer.flush_timer is not None:
            return
        if not self._replaces_messages and not self.turn.survives:
            self.partial_answer.schedule_flush(self.initial_write)

    async def add_answer(self, message: AssistantMessage, *, is_last: bool) -> None:
        """Store a complete answer. ``is_last`` states whether it ends the turn.

        The messages of a regeneration are stored with its last answer.
        """
        await self._finish_writes()
        await run_shielded(self._add(message, is_last=is_last))

    def begin_call(self, call: ToolInvocation) -> None:
        """Set the latest call, whose progress determines its result if the turn ends now."""
        self._latest_call = (call, None)

    async def add_result(self, call: ToolInvocation, outcome: ToolOutcome) -> None:
        """Store the result of a call, or keep it for the last answer of a regeneration."""
        self.outcomes.append(replace(outcome, images=()))
        self._unstored_images.update({image.sha256: image for image in outcome.images})
        self._latest_call = (call, outcome)  # `end` stores it if the turn is cancelled first
        await self._finish_writes()
        await run_shielded(self._add(tool_message(call, outcome)))

    async def store_request(self, approval: Approval, events: int) -> None:
        """Store that the turn waits for the approval of a call, after so many published events."""
        turn = self.turn.requested(approval, self._stored_input(), events)
        if self._is_regeneration:
            turn = with_replacement(turn, self.added, self._images())
        await self._write(Change(turn=turn))

    async def make_survive(self) -> None:
        """Store what the turn needs to continue after a crash, unless it is stored already.

        Only agents call this. Their turns are no regenerations.
        """
        if not self.turn.survives:
            await self._write(Change(turn=replace(self.turn, input=self._stored_input())))

    async def mark_images_unreadable(self) -> bool:
        """Store that the images of the turn are unreadable, because the model cannot decode one of
        them.

        Return whether the turn has images that were not marked before. Prompts of later turns have
        a note in their place.
        """
        start = last_user_index(self.history)
        return await self._mark_images(self.turn.first if start is None else start)

    async def hide_earlier_images(self) -> bool:
        """Hide the images of earlier turns, because the model cannot decode one of them.

        The turn itself has no images. Return whether there are any. This prompt and later ones have
        a note in their place.
        """
        earlier = [*self.messages[: self.turn_start]]
        hidden = [with_unreadable_images(message) for message in earlier]
        if earlier == hidden:
            return False
        self.messages = History.of([*hidden, *self.messages[self.turn_start :]])
        with_images = [index for index, message in enumerate(self.history) if images_of(message)]
        await self._mark_images(with_images[0])
        return True

    async def _mark_images(self, start: int) -> bool:
        """Store that the images from the index ``start`` are unreadable, also those of the turn.

        Return False if there are none. ``history`` and ``added`` do not change. In the history of a
        regeneration, the old answer stays as it is.
        """
        messages = [*self.history[start : self.turn.first], *self.added]
        marked = [with_unreadable_images(message) for message in messages]
        if marked == messages:
            return False
        if self._is_regeneration:
            earlier = marked[: self.turn.first - start]
            change = Change([*earlier, *self.history[self.turn.first :]], start=start)
        else:
            change = Change([*marked, *self._earlier_partial], start=start, images=self._images())
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
        messages = [*self._close_open_calls(), *self._take_partial_answer(state)]
        keeps_old_messages = self._replaces_messages and state in ("failed", "cancelled")
        if keeps_old_messages:
            messages = []
        self.added.extend(messages)
        reason = None if error is None else {"code": error.code, "message": error.message}
        turn = self.turn.ended(state, self.result().answer_id, reason)
        if self._is_regeneration and self.added and not keeps_old_messages:
            await self._replace(self.added, turn)
        else:
            await self._append(Change(messages, images=self._images(), turn=turn))

    def _close_open_calls(self) -> list[Message]:
        """Interrupt the open calls, except one that has an outcome. Return the result messages.

        The index of a call is unique in its turn.
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

    def _take_partial_answer(self, state: TurnState) -> list[Message]:
        """Remove the partial answer, and return its message, if any.

        Reasoning without text is dropped if the turn has failed or would replace messages.
        """
        answer = self.partial_answer.builder
        self.partial_answer.builder = None
        if answer is None or not answer.has_text:
            return []
        needs_content = self._replaces_messages or state == "failed"
        if needs_content and not answer.content:
            return []
        return [answer.message(interrupted=True)]

    async def _add(self, message: Message, *, is_last: bool = False) -> None:
        turn = self.turn.ended("completed", message["message_id"]) if is_last else None
        if not self._is_regeneration:
            # Placeholder results are stored with the calls, so that after a crash each call has a
            # result.
            partial = None if self.turn.survives else placeholder_result([*self.added, message])
            change = Change(
                [message], images=self._images(), partial=partial, ends_turn=is_last, turn=turn
            )
            await self._append(change)
            self._unstored_images.clear()
        elif is_last:
            await self._replace([*self.added, message], turn)
        elif self.turn.survives:
            turn = with_replacement(self.turn, [*self.added, message], self._images())
            await self._write(Change(turn=turn))
        self.partial_answer.builder = None
        self.messages = self.messages.extended([message])
        self.added.append(message)

    @property
    def _replaces_messages(self) -> bool:
        """Whether the next message that is stored replaces an old answer or a partial one."""
        return self._is_regeneration or bool(self._earlier_partial)

    async def _append(self, change: Change) -> None:
        """Store new messages, if any, after the complete ones."""
        if not self._earlier_partial or not change.messages:
            await self._write(change)
            return
        complete = len(self.history) - len(self._earlier_partial)
        await self._write_at(complete, change)
        self._earlier_partial = ()

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
        return stored_input(self._input, replaces=self._is_regeneration)

    def _images(self) -> list[Image]:
        return list(self._unstored_images.values())

    async def _finish_writes(self) -> None:
        await self.partial_answer.finish_flush()
        await self.wait_until_stored()
