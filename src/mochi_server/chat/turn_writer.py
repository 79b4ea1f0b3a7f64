"""Writer of the messages of a turn, including the partial answer of an interrupted turn."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from mochi_server.chat.conversation import Conversation
from mochi_server.chat.prompt_messages import answer_index, last_user_index, with_instructions
from mochi_server.chat.response_builder import ResponseBuilder
from mochi_server.chat.storage_retry import StorageRetry
from mochi_server.chat.turn_input import TurnInput
from mochi_server.errors import MochiError
from mochi_server.sessions.history import INTERRUPTED, History
from mochi_server.sessions.images import Image
from mochi_server.sessions.session import ChatSession, key_digest, user_message
from mochi_server.sessions.types import Message, ToolCall
from mochi_server.tools.toolbox import ToolInvocation, ToolOutcome, failed
from mochi_server.util.clock import new_id, now
from mochi_server.util.shielding import run_shielded

_INTERRUPTED_RUNNING = "The turn was interrupted while this call was running. The call may have taken effect."

logger = logging.getLogger(__name__)


class TurnWriter:
    """Writer that stores the messages of one turn. The caller must hold the session lock.

    A regenerated answer stays in memory until it is complete, and then replaces the old answer.
    """

    def __init__(
        self, conversation: Conversation, session: ChatSession, turn_input: TurnInput, retry: StorageRetry
    ) -> None:
        self.conversation = conversation
        self._store = conversation.store
        self._flusher = conversation.flusher
        self._retry = retry
        self._session_id = session.session_id
        self._client_tools = turn_input.tools.offered_client_tools
        self._answer: ResponseBuilder | None = None
        self._open_calls: dict[int, tuple[ToolInvocation, ToolOutcome | None]] = {}
        """Tool calls without a stored result, by index. The outcome is set when the call has run."""
        self._initial_write: asyncio.Future[None] | None = None
        self.is_complete = False
        """Whether the answer that ends the turn is stored. A cancellation of the turn then comes too late."""
        self.stored: list[Message] = []
        """Messages that the turn has added, oldest first."""
        self.outcomes: list[ToolOutcome] = []
        self.unstored_images: dict[str, Image] = {}
        """Images of tool results that are not stored yet, by SHA-256 hash.

        If the turn regenerates an answer, the images are stored together with the complete new answer.
        """
        self.client_tool_calls: list[ToolInvocation] = []
        """Tool calls that the client must run."""
        self._new_messages = list(turn_input.results)
        if (text := turn_input.new_message) is not None:
            digest = None if turn_input.key is None else key_digest(self._session_id, turn_input.key)
            self._new_messages.append(user_message(text, turn_input.images, key_digest=digest))
        self.history: History = session.history.extended(self._new_messages)
        """History of the session including the new messages of this request."""
        history, user_index = self.history, last_user_index(self.history)
        self._answer_index = answer_index(history, continues=turn_input.continues)
        self._is_regeneration = self._answer_index < len(history)
        self._revision = session.revision if self._is_regeneration else None
        turn_start = user_index if user_index is not None else len(history)
        self.messages, self.turn_start = with_instructions(
            history.prefix(self._answer_index), turn_start, turn_input.instructions
        )
        """``messages`` are the messages for the model. ``turn_start`` is the index of the user message to answer."""

    def begin(self, images: Sequence[Image] = (), on_end: Callable[[Exception | None], None] = lambda _: None) -> None:
        """Begin to store the user message and its images in the background.

        The model call does not wait for this write. ``on_end`` receives the error of the write, or None.
        """
        if not self._new_messages:
            on_end(None)
            return

        async def store() -> None:
            try:
                await self._append(self._new_messages, images=images)
            except Exception as error:
                on_end(error)
                raise
            self._initial_write = None
            on_end(None)

        self._initial_write = asyncio.ensure_future(store())

    async def wait_until_stored(self) -> None:
        """Wait until the user message is stored. If that write failed, raise its error on every call."""
        if self._initial_write is not None:
            await asyncio.shield(self._initial_write)

    async def load_image(self, name: str) -> bytes:
        """Return an image of the session. Raises ``BlobNotFound``."""
        image = self.unstored_images.get(name)
        return await self._store.load_image(name) if image is None else image.data

    async def patch(self, fields: dict[str, Any]) -> None:
        """Change metadata of the session."""
        await self._retry.run(lambda: self._store.patch(self._session_id, fields))

    def set_answer(self, answer: ResponseBuilder | None) -> None:
        self._answer = answer

    def schedule_flush(self) -> None:
        """Schedule a write of the partial answer, so that a crash loses only the last seconds of text."""
        if not self._is_regeneration:
            self._flusher.schedule(self._session_id, self._partial)

    async def add(self, message: Message, *, last: bool = False) -> None:
        """Store a complete answer message. ``last`` states whether the answer ends the turn."""
        await self._finish_writes()
        if client_tool_calls := self._client_calls(message):
            message["client_tool_calls"] = client_tool_calls
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
        """Register that the client must run a tool call. The client sends the result in a later turn."""
        self.client_tool_calls.append(call)
        del self._open_calls[call.index]

    async def interrupt(self, is_stopped: Callable[[], bool] = lambda: False) -> MochiError | None:
        """Store the partial answer of an interrupted turn and the results of its open tool calls.

        If this write or the earlier write of the user message fails, return the error, else return None. A partial
        regenerated answer replaces the old answer only if a client has stopped the turn.
        """
        try:
            await run_shielded(self._interrupt(is_stopped))
        except MochiError as error:
            logger.error("Partial answer not stored session_id=%s: %s", self._session_id, error.message)
            return error
        return None

    async def _interrupt(self, is_stopped: Callable[[], bool]) -> None:
        await self._finish_writes()
        answer, self._answer = self._answer, None
        if answer is not None:  # the answer with these calls is not stored, so they need no results
            self._open_calls = {}
        messages = self._results_of_open_calls()
        if answer is not None and answer.has_text:
            messages.append(answer.message(interrupted=True))
        if self._is_regeneration and not is_stopped():
            return
        self.stored.extend(messages)
        if self._is_regeneration and self.stored:
            await self._replace(self.stored)
        elif messages:
            await self._append(messages, images=list(self.unstored_images.values()))

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
        if not self._is_regeneration:
            images = list(self.unstored_images.values())
            # Placeholder results are stored with the calls, so that after a crash each call has a result.
            await self._append([message], ends_turn=last, unfinished=self._unfinished_calls(result_of), images=images)
            self.unstored_images.clear()
        elif last:
            await self._replace([*self.stored, message])
        self._answer = None
        self.messages = self.messages.extended([message])
        self.stored.append(message)
        self.is_complete = last
        if result_of is not None:
            del self._open_calls[result_of.index]

    async def _append(self, messages: Sequence[Message], **options: Any) -> None:
        await self._retry.run(lambda: self._store.append(self._session_id, messages, **options))

    async def _replace(self, messages: Sequence[Message]) -> None:
        # The revision check protects messages that another process or a SessionManager has added.
        images = list(self.unstored_images.values())
        await self._append(messages, from_index=self._answer_index, revision=self._revision, images=images)

    def _partial(self) -> Message | None:
        """Return the partial answer, or None if there is no answer or the user message is not stored yet."""
        if self._answer is None or self._initial_write is not None:
            return None
        return self._answer.message(interrupted=True)

    def _unfinished_calls(self, ended: ToolInvocation | None) -> Message | None:
        """Return a placeholder for the results of the calls that are still open, or None if no call is open.

        After a crash, crash recovery converts the placeholder to one result message per open call. The call ``ended``
        does not count as open.
        """
        open_calls = [call for call, _ in self._open_calls.values() if call is not ended]
        if not open_calls:
            return None
        first, *others = open_calls
        calls: list[ToolCall] = [
            {"id": call.id, "function": {"index": call.index, "name": call.name, "arguments": {}}} for call in others
        ]
        return {**tool_message(first, failed(first, INTERRUPTED)), "interrupted": True, "tool_calls": calls}

    def _client_calls(self, message: Message) -> list[str]:
        return [call["id"] for call in message.get("tool_calls", ()) if call["function"]["name"] in self._client_tools]

    async def _finish_writes(self) -> None:
        """Cancel the scheduled flush and wait for running writes."""
        await self._flusher.finish(self._session_id)
        await self.wait_until_stored()


def interrupted_outcome(call: ToolInvocation) -> ToolOutcome:
    """Return the outcome of a tool call that the end of the turn has interrupted."""
    progress = call.progress
    parts = (progress.partial_output, INTERRUPTED if progress.running is None else _INTERRUPTED_RUNNING)
    return failed(progress.running or call, "\n\n".join(filter(None, parts)), decided_by=progress.decided_by)


def tool_message(call: ToolInvocation, outcome: ToolOutcome) -> Message:
    """Return the message that stores the result of a tool call."""
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
    if outcome.call.arguments != call.arguments:
        message["arguments"] = outcome.call.arguments
    return message
