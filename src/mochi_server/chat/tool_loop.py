"""The tool loop: ask the model, run its tool calls, ask again, until there is an answer."""

from collections.abc import Sequence
from dataclasses import dataclass

from mochi_server.chat.model_call import ModelCall
from mochi_server.chat.response_builder import ResponseBuilder
from mochi_server.chat.turn_writer import TurnWriter
from mochi_server.events import ChatEvent, ContentDelta, Publish, ToolContinuationStart, TurnWarning
from mochi_server.sessions.types import Message
from mochi_server.tools.toolbox import Toolbox, ToolInvocation, ToolOutcome, failed


@dataclass(frozen=True, slots=True)
class ToolLoopLimits:
    """Limits after which a model has to answer without tools."""

    rounds: int = 50
    identical_calls: int = 3
    calls_per_round: int = 128


@dataclass
class ToolLoop:
    """The rounds of one turn. Each message is stored when it is complete, each event is pushed to ``publish``.

    With ``may_announce`` a first answer without calls does not end the loop: some models announce what they will do
    before they do it.
    """

    model: ModelCall
    writer: TurnWriter
    toolbox: Toolbox
    limits: ToolLoopLimits
    publish: Publish
    may_announce: bool = False
    _previous: ToolInvocation | None = None
    _repeated: int = 0

    async def run(self, reminders: Sequence[Message] = ()) -> None:
        """Run until the model has answered, or has called tools that the client runs.

        ``reminders`` are sent after the history with every request and never stored. At a limit the model is asked
        once more, without tools, so that the user gets an answer.
        """
        for rounds_left in reversed(range(self.limits.rounds)):
            calls = await self._call_model(reminders)
            if not calls:
                if self._only_announced(rounds_left):
                    self.publish([ContentDelta("")])
                    continue
                return
            is_shown = await self._run_calls(calls)
            if self.writer.handed_back:
                return
            if not is_shown:
                self.publish([ToolContinuationStart()])
            if self._repeated >= self.limits.identical_calls:
                break
        self.publish(
            [TurnWarning("TOOL_LIMIT_REACHED", "The model called tools for too long; it answers without them now.")]
        )
        await self.answer(reminders)

    async def answer(self, reminders: Sequence[Message] = ()) -> None:
        """Ask for one answer without tools; ignore calls."""
        await self._call_model(reminders, offers_tools=False)

    def _only_announced(self, rounds_left: int) -> bool:
        """Return whether to ask again after a first answer without calls."""
        first, self.may_announce = self.may_announce and not self.writer.outcomes, False
        return first and rounds_left > 0

    async def _call_model(self, reminders: Sequence[Message], *, offers_tools: bool = True) -> list[ToolInvocation]:
        """Ask the model once and store its message. Return the calls to run."""
        answer = ResponseBuilder(self.model.name, self._receive, self.limits.calls_per_round)
        self.writer.set_answer(answer)
        schemas = self.toolbox.schemas() if offers_tools else []
        messages = self.writer.messages.extended(reminders)
        await self.model.send(messages, schemas, self.writer.turn_begins, answer.feed, answer_id=answer.message_id)
        if not offers_tools:
            answer.tool_calls.clear()
        elif answer.left_out:
            self.publish([_skipped_calls_warning(answer.left_out, self.limits.calls_per_round)])
        # Register the calls first: a stored call must get a result.
        calls = answer.calls(len(self.writer.outcomes))
        self.writer.expect_results(calls)
        await self.writer.add(answer.message(), last=not answer.tool_calls)
        return calls

    def _receive(self, events: list[ChatEvent]) -> None:
        self.writer.progressed()
        self.publish(events)

    async def _run_calls(self, calls: list[ToolInvocation]) -> bool:
        """Run calls in order. Return True if all of them published their own events, so no ``tool_result`` was sent."""
        is_shown = True
        for call in calls:
            outcome = await self._run_call(call)
            if outcome.handed_back:
                self.writer.return_to_client(call)
                continue
            await self.writer.add_result(call, outcome)
            if not outcome.has_own_events:
                self.publish([outcome.event()])
                is_shown = False
        return is_shown

    async def _run_call(self, call: ToolInvocation) -> ToolOutcome:
        previous, self._previous = self._previous, call
        is_same = previous is not None and (previous.name, previous.arguments) == (call.name, call.arguments)
        self._repeated = self._repeated + 1 if is_same else 1
        if self._repeated > self.limits.identical_calls:
            return failed(call, "The same call was made again and again; it was not run once more.")
        return await self.toolbox.run(call, self.publish)


def _skipped_calls_warning(count: int, limit: int) -> TurnWarning:
    message = (
        f"The model made {limit + count} tool calls in one round; the last {count} are left out. "
        "Raise the limit with MOCHI_MAX_TOOL_CALLS_PER_ROUND."
    )
    return TurnWarning("TOOL_CALLS_LEFT_OUT", message)
