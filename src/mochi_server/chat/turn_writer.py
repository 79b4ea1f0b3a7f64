"""Storage of the messages of a turn, also when the turn is interrupted."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from mochi_server.chat.answer_builder import AnswerBuilder
from mochi_server.chat.conversation import Conversation
from mochi_server.chat.prompt import answer_index, last_user_index, with_instructions
from mochi_server.chat.run import Run
from mochi_server.chat.turn_input import TurnInput
from mochi_server.chat.turn_result import open_calls, stored_outcomes
from mochi_server.errors import MochiError
from mochi_server.sessions.change import Change
from mochi_server.sessions.history import INTERRUPTED
from mochi_server.sessions.session import ChatSession, key_digest, user_message
from mochi_server.sessions.types import Image, Message, ToolCall
from mochi_server.tools.toolbox import ToolInvocation, ToolOutcome, failed
from mochi_server.util.clock import new_id, now
from mochi_server.util.tasks import run_shielded

FLUSH_SECONDS = 2.0  # interval at which the partial answer is stored while the model writes it
_INTERRUPTED_RUNNING = "The turn was interrupted while this call was running. The call may have taken effect."

logger = logging.getLogger(__name__)


class TurnWriter:
    """Writer of the messages of one turn. A regenerated answer replaces the old answer when it is complete."""

    def __init__(
        self, conversation: Conversation, session: ChatSession, turn_input: TurnInput, run: Run | None = None
    ) -> None:
        """The state of ``run`` is stored with the messages. It is None for an agent inside a run."""
        self.run = run
        self.conversation = conversation
        self._store = conversation.store
        self._session_id = session.session_id
        self._client_tools = turn_input.tools.offered_client_tools
        self.answer: AnswerBuilder | None = None  # answer that the model writes now, or None
        self._open_calls: dict[int, tuple[ToolInvocation, ToolOutcome | None]] = {}  # without a stored result
        self._initial_write: asyncio.Future[None] | None = None
        self._flush_timer: asyncio.TimerHandle | None = None
        self._flush: asyncio.Future[None] | None = None  # latest write of the partial answer
        self.store_regenerated: Callable[[], Awaitable[None]] | None = None  # stores a regenerated answer so far
        self.is_complete = False  # whether the answer that ends the turn is stored; a cancellation then comes too late
        self._has_ended_run = False  # whether the final state of the run was stored with this answer
        self.stored: list[Message] = []  # messages that the turn has added, oldest first
        self.first_chunks: dict[str, float | None] = {}  # time to the first chunk of each answer, by message ID
        self.outcomes: list[ToolOutcome] = []
        self.unstored_images: dict[str, Image] = {}  # images of tool results that are not stored yet, by SHA-256 hash
        self.client_tool_calls: list[ToolInvocation] = []  # tool calls that the client must run
        self._new_messages = list(turn_input.results)
        if (text := turn_input.new_message) is not None:
            digest = None if turn_input.key is None else key_digest(self._session_id, turn_input.key)
            self._new_messages.append(user_message(text, turn_input.images, key_digest=digest))
        self.history = history = session.history.extended(self._new_messages)  # includes the new messages
        user_index = last_user_index(history)
        self.answer_index = answer_index(history, turn_input.change)  # number of messages before the answer
        self.is_regeneration = self.answer_index < len(history)  # whether the answer replaces stored messages
        self._revision = session.revision if self.is_regeneration else None
        turn_start = user_index if user_index is not None else len(history)
        self.messages, self.turn_start = with_instructions(
            history.prefix(self.answer_index), turn_start, turn_input.instructions
        )
        """``messages`` are the messages for the model. ``turn_start`` is the index of the user message to answer."""

    @property
    def open_calls(self) -> list[ToolInvocation]:
        return [call for call, outcome in self._open_calls.values() if outcome is None]

    def resume(self, messages: Sequence[Message]) -> None:
        """Continue a turn that has already added ``messages``. The session contains them, except a new answer."""
        self.stored, self.outcomes = list(messages), stored_outcomes(messages)
        if self.is_regeneration:
            self.messages = self.messages.extended(messages)
        else:
            self.answer_index -= len(messages)
        self.expect_results(open_calls(messages))
        self.is_complete = not self.open_calls and bool(messages) and messages[-1]["role"] == "assistant"

    def begin(self, images: Sequence[Image] = ()) -> "asyncio.Future[None] | None":
        """Begin to store the run, the user message and its images. Return the write, or None if there is none."""
        last_run = self._last_run("running")
        if self._new_messages:
            change = Change(self._new_messages, images=images, last_run=last_run)
            self._initial_write = asyncio.ensure_future(self._write(change))
        elif last_run is not None:
            self._initial_write = asyncio.ensure_future(self.conversation.patch({"last_run": last_run}))
        return self._initial_write

    async def wait_until_stored(self) -> None:
        """Wait until the user message is stored. If that write failed, raise its error on every call."""
        if self._initial_write is not None:
            await asyncio.shield(self._initial_write)

    async def load_image(self, name: str) -> bytes:
        """Return an image of the session. Raises ``BlobNotFound``."""
        image = self.unstored_images.get(name)
        return await self._store.load_image(name) if image is None else image.data

    def schedule_flush(self) -> None:
        """Schedule a write of the partial answer, so that a crash loses only the last seconds of text."""
        if self._flush_timer is None and not self.is_regeneration:
            self._flush_timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self._start_flush)

    async def add(self, message: Message, *, last: bool = False) -> None:
        """Store a complete answer message. ``last`` states whether the answer ends the turn."""
        await self._finish_writes()
        calls = message.get("tool_calls", ())
        if client_calls := [call["id"] for call in calls if call["function"]["name"] in self._client_tools]:
            message["client_tool_calls"] = client_calls
        await run_shielded(self._add(message, last=last))

    def expect_results(self, calls: Sequence[ToolInvocation]) -> None:
        """Register the tool calls of a round. Each call gets a result, even if the turn is interrupted."""
        self._open_calls = {call.index: (call, None) for call in calls}

    async def add_result(self, call: ToolInvocation, outcome: ToolOutcome) -> None:
        self.outcomes.append(replace(outcome, images=()))
        self.unstored_images.update({image.sha256: image for image in outcome.images})
        self._open_calls[call.index] = (call, outcome)  # `interrupt` stores it if the turn is cancelled first
        await self._finish_writes()
        await run_shielded(self._add(tool_message(call, outcome), result_of=call))

    def return_to_client(self, call: ToolInvocation) -> None:
        self.client_tool_calls.append(call)
        del self._open_calls[call.index]

    async def interrupt(self, is_stopped: Callable[[], bool] = lambda: False) -> MochiError | None:
        """Store the partial answer and the results of open calls. Return the error of a failed write, or None."""
        try:
            await run_shielded(self._interrupt(is_stopped))
        except MochiError as error:
            logger.error("Partial answer not stored session_id=%s: %s", self._session_id, error.message)
            return error
        return None

    async def _interrupt(self, is_stopped: Callable[[], bool]) -> None:
        await self._finish_writes()
        answer, self.answer = self.answer, None
        if answer is not None:  # the answer with these calls is not stored, so they need no results
            self._open_calls = {}
        messages = self._results_of_open_calls()
        if answer is not None and answer.has_text:
            messages.append(answer.message(interrupted=True))
        if self.is_regeneration and not is_stopped():
            return  # the old answer stays
        self.stored.extend(messages)
        if self.is_regeneration and self.stored:
            await self._replace(self.stored)
        elif messages:
            await self._write(Change(messages, images=list(self.unstored_images.values())))

    def _results_of_open_calls(self) -> list[Message]:
        """Return result messages for the open tool calls. Calls without an outcome are marked as interrupted."""
        open_calls, self._open_calls = self._open_calls, {}
        messages: list[Message] = []
        for call, outcome in open_calls.values():
            if outcome is not None:
                messages.append(tool_message(call, outcome))
                continue
            self.outcomes.append(interrupted_outcome(call))
            messages.append({**tool_message(call, self.outcomes[-1]), "interrupted": True})
        return messages

    async def _add(self, message: Message, *, last: bool = False, result_of: ToolInvocation | None = None) -> None:
        if not self.is_regeneration:
            change = Change(
                [message],
                images=list(self.unstored_images.values()),
                # Placeholder results are stored with the calls, so that after a crash each call has a result.
                partial=self._unfinished_calls(result_of),
                ends_turn=last,
                last_run=self._last_run("completed", message) if last else None,
            )
            await self._write(change)
            self.unstored_images.clear()
        elif last:
            await self._replace([*self.stored, message], last_run=self._last_run("completed", message))
        self.answer = None
        self.messages = self.messages.extended([message])
        self.stored.append(message)
        if self.is_regeneration and not last and self.store_regenerated is not None:
            await self.store_regenerated()
        self.is_complete = self._has_ended_run = last
        if result_of is not None:
            del self._open_calls[result_of.index]

    async def store_end(self, state: str, answer: Message | None) -> None:
        """Store the final state of the run, unless it was stored with its last message. Ignore errors of this write."""
        if not self._has_ended_run:
            with suppress(MochiError, asyncio.CancelledError):
                last_run = self._last_run(state, answer)
                await run_shielded(self._store.patch(self._session_id, {"last_run": last_run}))

    def _last_run(self, state: str, answer: Message | None = None) -> dict[str, Any] | None:
        answer_id = None if answer is None else answer["message_id"]
        return None if self.run is None else self.run.stored_state(state, answer_id)

    async def _write(self, change: Change) -> None:
        await self.conversation.retry.run(lambda: self._store.write(self._session_id, change))

    async def _replace(self, messages: Sequence[Message], last_run: dict[str, Any] | None = None) -> None:
        change = Change(
            messages,
            start=self.answer_index,
            images=list(self.unstored_images.values()),
            last_run=last_run,
            # The revision check protects messages that another process or a SessionManager has added.
            revision=self._revision,
        )
        await self._write(change)

    def _start_flush(self) -> None:
        self._flush = asyncio.ensure_future(self._store_partial(self._flush))

    async def _store_partial(self, earlier: "asyncio.Future[None] | None") -> None:
        if earlier is not None:
            await asyncio.wait([earlier])
        self._flush_timer = None  # the next text schedules the next write
        try:
            await self.wait_until_stored()
            if self.answer is not None:
                await self._store.write(self._session_id, Change(partial=self.answer.message(interrupted=True)))
        except Exception as error:  # the turn itself does not depend on this write
            logger.warning("Partial answer not stored session_id=%s: %s", self._session_id, error)

    async def _finish_writes(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        if self._flush is not None:
            await asyncio.wait([self._flush])
        await self.wait_until_stored()

    def _unfinished_calls(self, ended: ToolInvocation | None) -> Message | None:
        """Return a placeholder from which crash recovery makes the results of the open calls, or None."""
        open_calls = [call for call, _ in self._open_calls.values() if call is not ended]
        if not open_calls:
            return None
        first, *others = open_calls
        calls: list[ToolCall] = [
            {"id": call.id, "function": {"index": call.index, "name": call.name, "arguments": {}}} for call in others
        ]
        return {**tool_message(first, failed(first, INTERRUPTED)), "interrupted": True, "tool_calls": calls}


def interrupted_outcome(call: ToolInvocation) -> ToolOutcome:
    """Return the outcome of a tool call that the end of the turn has interrupted."""
    progress = call.progress
    parts = (progress.partial_output, INTERRUPTED if progress.running is None else _INTERRUPTED_RUNNING)
    return failed(progress.running or call, "\n\n".join(filter(None, parts)), decided_by=progress.decided_by)


def tool_message(call: ToolInvocation, outcome: ToolOutcome) -> Message:
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
    if outcome.images:
        message["images"] = [image.reference for image in outcome.images]
    if outcome.error_code is not None:
        message["error_code"] = outcome.error_code
    if outcome.is_interrupted:
        message["interrupted"] = True
    if outcome.call.arguments != call.arguments:
        message["arguments"] = outcome.call.arguments
    return message
