"""What a turn writes into its session: each message when it is whole, and how far a cut-off one came."""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

from mochi_server.chat.answer import Answer
from mochi_server.chat.history import instructed, last_user_index
from mochi_server.chat.repeated import digest
from mochi_server.chat.turn import Turn
from mochi_server.chat.write_retry import WriteRetry
from mochi_server.errors import MochiError
from mochi_server.sessions.finishing import finished
from mochi_server.sessions.history import History
from mochi_server.sessions.session import ChatSession, new_id, now, user_message
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import Message
from mochi_server.sessions.unfinished import INTERRUPTED
from mochi_server.tools.toolbox import Call, ToolOutcome, failed

CHECKPOINT_SECONDS = 2.0
_MOMENT_SECONDS = 0.125
_AT_ONCE = 125
"""Notes for the same moment."""
_LONGEST_SECONDS = 20.0
_INTERRUPTED_RUNNING = "The turn was interrupted while this call was running. The call may have taken effect."

logger = logging.getLogger(__name__)


class Checkpoints:
    """When answers in progress are noted: after two seconds at most, and at most a thousand a second of all turns.

    More than two thousand turns at a time would else keep disk and processor busier with notes than with answers; they
    are noted more seldom instead. Notes of many turns are for the same moments: together they cost less.
    """

    def __init__(self) -> None:
        self._last = 0.0
        self._count = 0

    def following(self, moment: float) -> float:
        """When an answer that is noted now, or begins, is noted next, on the same clock."""
        latest = moment + CHECKPOINT_SECONDS
        wanted = max(latest - latest % _MOMENT_SECONDS, self._last)
        if wanted > self._last:
            self._last, self._count = wanted, 0
        elif self._count >= _AT_ONCE and wanted + _MOMENT_SECONDS <= moment + _LONGEST_SECONDS:
            self._last, self._count = wanted + _MOMENT_SECONDS, 0
        self._count += 1
        return self._last


class Transcript:
    """The writing side of one turn; its session must be held.

    A regenerated answer replaces the old one only once it is whole, so everything such a turn brings is kept
    here until then.
    """

    def __init__(self, store: SessionStore, turn: Turn, checkpoints: Checkpoints, retry: WriteRetry) -> None:
        self._store = store
        self._checkpoints = checkpoints
        self._retry = retry
        self._turn = turn
        self._id = turn.session.session_id
        self._answer: Answer | None = None
        self._open_calls: dict[int, tuple[Call, ToolOutcome | None]] = {}
        """By index, the calls whose results are not stored, with outcomes that are known already."""
        self._replaces = False
        self._found: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._storing: asyncio.Future[ChatSession] | None = None
        self._writing: asyncio.Task[None] | None = None
        self._begins = 0
        self.messages = History()
        """What the model is told, without what may have to be left out of it."""
        self.turn_begins = 0
        """The position in ``messages`` of the user message being answered."""

    def begin(self) -> None:
        """Begin to store what the user said; when ``begun`` has returned it is safe.

        The model is asked meanwhile: a disk takes longer than anything else before the first word.
        """
        session, request = self._turn.session, self._turn.request
        said = list(request.results)
        if request.message is not None:
            key = None if request.key is None else digest(self._id, request.key)
            said.append(user_message(request.message, request.images, key_digest=key))
        if said:
            self._storing = asyncio.ensure_future(self._append(said, images=request.images))
            self._turn.request = request.without_data()  # a turn may take minutes, and be remembered after it
        history = session.history.plus(said)
        session.messages = history
        asked = last_user_index(history)
        self._begins = asked if asked is not None else len(history)
        end = len(history) if request.continues else self._begins + 1
        self._replaces = end < len(history)
        self._found = session.revision if self._replaces else None
        self.messages, self.turn_begins = instructed(history.upto(end), self._begins, request.instructions)

    async def begun(self) -> None:
        """Wait until what the user said is stored. Raises what went wrong with it, every time."""
        if self._storing is not None:
            await asyncio.shield(self._storing)
            self._storing = None

    def expect(self, answer: Answer) -> None:
        """From now on this is the answer in progress."""
        self._answer = answer

    def progressed(self) -> None:
        """The answer has grown: see to it that a crash costs seconds. Costs nothing per piece."""
        if self._timer is None and not self._replaces:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._checkpoints.following(loop.time()), self._checkpoint)

    async def add(self, message: Message, *, last: bool = False) -> None:
        """Store a whole message; ``last`` says that the turn is complete with it."""
        await self._settle()
        if handed_back := self._handed_back(message):
            message["handed_back"] = handed_back
        await finished(self._add(message, last=last))

    def expect_results(self, calls: Sequence[Call]) -> None:
        """From now on these calls are carried out; each of them gets a result, come what may."""
        self._open_calls = {call.index: (call, None) for call in calls}

    async def add_result(self, call: Call, outcome: ToolOutcome) -> None:
        """Store how a call ended."""
        self._open_calls[call.index] = (call, outcome)  # for a turn that is cancelled before it is stored
        await self._settle()
        await finished(self._add(tool_message(call, outcome), result_of=call))

    def hand_back(self, call: Call) -> None:
        """A call's result is the client's to send, in a later turn."""
        del self._open_calls[call.index]

    async def interrupt(self) -> None:
        """Store what there is of the turn: the answer in progress, marked as interrupted, and results for its calls.

        Raises what went wrong with storing; where it was the user's message, there is nothing to answer.
        """
        await finished(self._interrupt())

    async def _interrupt(self) -> None:
        await self._settle()
        answer, self._answer = self._answer, None
        if answer is not None:  # calls need results only if the answer that made them is stored
            self._open_calls = {}
        messages = self._results_of_open_calls()
        if answer is not None and answer.said_something:
            messages.append(answer.message(interrupted=True))
        if self._replaces and not self._turn.stopped:
            return
        self._turn.stored.extend(messages)
        if self._replaces and self._turn.stored:
            await self._replace(self._turn.stored)
        elif messages:
            await self._append(messages)

    def _results_of_open_calls(self) -> list[Message]:
        """Results for the calls that have none: the known ones, and those of calls that the turn's end interrupts."""
        left, self._open_calls = self._open_calls, {}
        messages: list[Message] = []
        for call, outcome in left.values():
            if outcome is not None:
                messages.append(tool_message(call, outcome))
                continue
            self._turn.outcomes.append(_interrupted_outcome(call))
            messages.append(interrupted(tool_message(call, self._turn.outcomes[-1])))
        return messages

    async def _add(self, message: Message, *, last: bool = False, result_of: Call | None = None) -> None:
        if not self._replaces:
            # With the calls, so that a crash never leaves one without a result.
            await self._append([message], ends_turn=last, unfinished=self._unfinished_calls(result_of))
        elif last:
            await self._replace([*self._turn.stored, message])
        self._answer = None
        self.messages = self.messages.plus([message])
        self._turn.stored.append(message)
        if result_of is not None:
            del self._open_calls[result_of.index]

    async def _append(self, messages: Sequence[Message], **options: Any) -> ChatSession:
        return await self._retry.run(lambda: self._store.append(self._id, messages, **options))

    async def _replace(self, messages: Sequence[Message]) -> ChatSession:
        # What another process has added meanwhile is not for this turn to replace.
        replace = partial(self._store.replace_tail, self._id, self._begins + 1, messages, revision=self._found)
        return await self._retry.run(replace)

    def _checkpoint(self) -> None:
        self._timer = None
        if self._writing is not None and not self._writing.done():
            self.progressed()
        elif self._answer is not None:
            partial = self._answer.message(interrupted=True)
            self._writing = asyncio.get_running_loop().create_task(self._write(partial))

    def _unfinished_calls(self, ended: Call | None) -> Message | None:
        """What a crash leaves of the other open calls: an interrupted result, which names the calls that follow."""
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
        """Ids of the calls of a message that the client runs."""
        names = self._turn.request.client_tools
        return [call["id"] for call in message.get("tool_calls", ()) if call["function"]["name"] in names]

    async def _write(self, partial: Message) -> None:
        try:
            await self.begun()
            await self._store.checkpoint(self._id, partial)
        except MochiError as error:
            logger.warning("No checkpoint of session %s: %s", self._id, error.message)

    async def _settle(self) -> None:
        """Let what is being stored be stored, and start no other checkpoint."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing is not None:
            await asyncio.shield(self._writing)
            self._writing = None
        await self.begun()


def _interrupted_outcome(call: Call) -> ToolOutcome:
    """The outcome of a call that the end of its turn interrupts."""
    text = INTERRUPTED if call.progress.running is None else _INTERRUPTED_RUNNING
    return failed(call.progress.running or call, text, decided_by=call.progress.decided_by)


def interrupted(message: Message) -> Message:
    """A message that stands for what did not come to its end."""
    message["interrupted"] = True
    return message


def tool_message(call: Call, outcome: ToolOutcome) -> Message:
    """A call's result as it is stored: what the model is told, and who decided about the call."""
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
