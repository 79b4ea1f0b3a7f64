"""Writes a turn into its session: each message when it is complete, and the partial answer of an interrupted turn."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from mochi_server.chat.flush_schedule import FlushSchedule
from mochi_server.chat.idempotency import key_digest
from mochi_server.chat.prompt_messages import last_user_index, with_instructions
from mochi_server.chat.response_builder import ResponseBuilder
from mochi_server.chat.turn import TurnRequest
from mochi_server.chat.write_retry import WriteRetry
from mochi_server.errors import MochiError
from mochi_server.sessions.crash_recovery import INTERRUPTED
from mochi_server.sessions.history import History
from mochi_server.sessions.images import Image
from mochi_server.sessions.session import ChatSession, user_message
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import Message
from mochi_server.tools.toolbox import ToolInvocation, ToolOutcome, failed
from mochi_server.util.clock import new_id, now
from mochi_server.util.shielding import run_shielded

_INTERRUPTED_RUNNING = "The turn was interrupted while this call was running. The call may have taken effect."

logger = logging.getLogger(__name__)


class TurnWriter:
    """Writer of one turn. The caller must hold the lock of its session.

    A regenerated answer replaces the old one only when it is complete. Until then the messages of such a turn are kept
    here.
    """

    def __init__(
        self,
        store: SessionStore,
        session: ChatSession,
        request: TurnRequest,
        *,
        schedule: FlushSchedule,
        retry: WriteRetry,
    ) -> None:
        self._store = store
        self._schedule = schedule
        self._retry = retry
        self._id = session.session_id
        self._client_tools = request.client_tools
        self._answer: ResponseBuilder | None = None
        self._open_calls: dict[int, tuple[ToolInvocation, ToolOutcome | None]] = {}
        """Calls without a stored result by index, with their outcome if it is known."""
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._storing: asyncio.Future[None] | None = None
        self.stored: list[Message] = []
        """The messages that the turn has added, oldest first."""
        self.outcomes: list[ToolOutcome] = []
        """How each tool call ended, in order."""
        self.handed_back: list[ToolInvocation] = []
        """Calls that the client runs."""
        self._new = list(request.results)
        if request.message is not None:
            key = None if request.key is None else key_digest(self._id, request.key)
            self._new.append(user_message(request.message, request.images, key_digest=key))
        self.history: History = session.history.extended(self._new)
        """The session's messages as of the beginning of the turn, the new ones included."""
        history, asked = self.history, last_user_index(self.history)
        self._begins = asked if asked is not None else len(history)
        end = len(history) if request.continues else self._begins + 1
        self._replaces = end < len(history)
        self._revision = session.revision if self._replaces else None
        self.messages, self.turn_begins = with_instructions(history.prefix(end), self._begins, request.instructions)
        """The messages for the model, and the position of the user message being answered in them."""

    def begin(self, images: Sequence[Image] = (), on_end: Callable[[bool], None] = lambda _: None) -> None:
        """Begin to store the message of the user, with its images. It is safe when ``begun`` has returned.

        The model is asked meanwhile: a disk takes longer than anything else before the first token. ``on_end`` receives
        whether the message is stored.
        """
        if not self._new:
            on_end(True)
            return

        async def store() -> None:
            is_stored = False
            try:
                await self._append(self._new, images=images)
                is_stored = True
            finally:
                on_end(is_stored)

        self._storing = asyncio.ensure_future(store())

    async def wait_until_stored(self) -> None:
        """Wait until the message of the user is stored. Raises what went wrong with it, every time."""
        if self._storing is not None:
            await asyncio.shield(self._storing)
            self._storing = None

    def set_answer(self, answer: ResponseBuilder) -> None:
        """Set the answer in progress."""
        self._answer = answer

    def progressed(self) -> None:
        """Schedule a flush of the partial answer, which has grown, so that a crash costs seconds."""
        if self._timer is None and not self._replaces:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._schedule.following(loop.time()), self._flush)

    async def add(self, message: Message, *, last: bool = False) -> None:
        """Store a complete message; ``last`` ends the turn."""
        await self._finish_writes()
        if handed_back := self._handed_back(message):
            message["handed_back"] = handed_back
        await run_shielded(self._add(message, last=last))

    def expect_results(self, calls: Sequence[ToolInvocation]) -> None:
        """Set the calls that run now; each of them gets a result, also when the turn is interrupted."""
        self._open_calls = {call.index: (call, None) for call in calls}

    async def add_result(self, call: ToolInvocation, outcome: ToolOutcome) -> None:
        """Store the result of a call."""
        self.outcomes.append(outcome)
        self._open_calls[call.index] = (call, outcome)  # for a turn that is cancelled before it is stored
        await self._finish_writes()
        await run_shielded(self._add(tool_message(call, outcome), result_of=call))

    def return_to_client(self, call: ToolInvocation) -> None:
        """Leave a call to the client, which sends the result in a later turn."""
        self.handed_back.append(call)
        del self._open_calls[call.index]

    async def interrupt(self, is_stopped: Callable[[], bool] = lambda: False) -> MochiError | None:
        """Store what there is of the turn: the answer in progress, marked as interrupted, and results for its calls.

        A partial answer replaces the earlier one only if a client has stopped the turn. Returns the error if storing
        failed, also that of the message of the user.
        """
        try:
            await run_shielded(self._interrupt(is_stopped))
        except MochiError as error:
            logger.error("Partial answer not stored session_id=%s: %s", self._id, error.message)
            return error
        return None

    async def _interrupt(self, is_stopped: Callable[[], bool]) -> None:
        await self._finish_writes()
        answer, self._answer = self._answer, None
        if answer is not None:  # calls need results only if the answer that made them is stored
            self._open_calls = {}
        messages = self._results_of_open_calls()
        if answer is not None and answer.has_text:
            messages.append(answer.message(interrupted=True))
        if self._replaces and not is_stopped():
            return
        self.stored.extend(messages)
        if self._replaces and self.stored:
            await self._replace(self.stored)
        elif messages:
            await self._append(messages)

    def _results_of_open_calls(self) -> list[Message]:
        """Return results for the calls that have none: the known ones, and those of interrupted calls."""
        left, self._open_calls = self._open_calls, {}
        messages: list[Message] = []
        for call, outcome in left.values():
            if outcome is not None:
                messages.append(tool_message(call, outcome))
                continue
            self.outcomes.append(_interrupted_outcome(call))
            messages.append(interrupted(tool_message(call, self.outcomes[-1])))
        return messages

    async def _add(self, message: Message, *, last: bool = False, result_of: ToolInvocation | None = None) -> None:
        if not self._replaces:
            # Store the unfinished results with the calls, so that a crash never leaves a call without a result.
            await self._append([message], ends_turn=last, unfinished=self._unfinished_calls(result_of))
        elif last:
            await self._replace([*self.stored, message])
        self._answer = None
        self.messages = self.messages.extended([message])
        self.stored.append(message)
        if result_of is not None:
            del self._open_calls[result_of.index]

    async def _append(self, messages: Sequence[Message], **options: Any) -> ChatSession:
        return await self._retry.run(lambda: self._store.append(self._id, messages, **options))

    async def _replace(self, messages: Sequence[Message]) -> ChatSession:
        # The revision makes this fail instead of replacing messages that another process has added.
        replace = partial(self._store.replace_tail, self._id, self._begins + 1, messages, revision=self._revision)
        return await self._retry.run(replace)

    def _flush(self) -> None:
        self._timer = None
        if self._flushing is not None and not self._flushing.done():
            self.progressed()
        elif self._answer is not None:
            message = self._answer.message(interrupted=True)
            self._flushing = asyncio.get_running_loop().create_task(self._store_partial(message))

    def _unfinished_calls(self, ended: ToolInvocation | None) -> Message | None:
        """Return the message that stands for the other open calls after a crash."""
        left = [call for call, _ in self._open_calls.values() if call is not ended]
        if not left:
            return None
        first, *others = left
        message = interrupted(tool_message(first, failed(first, INTERRUPTED)))
        message["tool_calls"] = [
            {"id": call.id, "function": {"index": call.index, "name": call.name, "arguments": {}}} for call in others
        ]
        return message

    def _handed_back(self, message: Message) -> list[str]:
        """Return the ids of a message's calls that the client runs."""
        return [call["id"] for call in message.get("tool_calls", ()) if call["function"]["name"] in self._client_tools]

    async def _store_partial(self, message: Message) -> None:
        try:
            await self.wait_until_stored()
            await self._store.checkpoint(self._id, message)
        except MochiError as error:
            logger.warning("Partial answer not stored session_id=%s: %s", self._id, error.message)

    async def _finish_writes(self) -> None:
        """Wait for the writes under way and begin no other flush."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._flushing is not None:
            await asyncio.shield(self._flushing)
            self._flushing = None
        await self.wait_until_stored()


def _interrupted_outcome(call: ToolInvocation) -> ToolOutcome:
    """Return the outcome of a call that the end of its turn interrupts."""
    text = INTERRUPTED if call.progress.running is None else _INTERRUPTED_RUNNING
    return failed(call.progress.running or call, text, decided_by=call.progress.decided_by)


def interrupted(message: Message) -> Message:
    """Mark a message as interrupted."""
    message["interrupted"] = True
    return message


def tool_message(call: ToolInvocation, outcome: ToolOutcome) -> Message:
    """Return the stored message of a call's result."""
    message: Message = {
        "role": "tool",
        "content": outcome.content,
        "tool_name": call.name,
        "tool_call_id": call.id,
        "message_id": new_id(),
        "timestamp": now(),
        "success": outcome.success,
        "decided_by": outcome.decided_by,
    }
    if outcome.error_code is not None:
        message["error_code"] = outcome.error_code
    if outcome.call.arguments != call.arguments:
        message["arguments"] = outcome.call.arguments
    return message
