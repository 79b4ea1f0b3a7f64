"""Model, tool calls, results, model again, until there is an answer. Does not know who listens."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from mochi_server.chat.answer import Answer
from mochi_server.chat.model import ChatModel
from mochi_server.chat.transcript import Transcript
from mochi_server.events import ChatEvent, ContentDelta, ToolContinuationStart, TurnWarning
from mochi_server.sessions.types import Message
from mochi_server.tools.toolbox import Call, Toolbox, ToolOutcome, failed


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a model may go on calling tools before it has to answer without."""

    rounds: int = 50
    identical_calls: int = 3
    calls_per_round: int = 128


class Conversation:
    """One turn's talk with a model; every message is stored when it is whole.

    ``reminders`` are sent behind the history with every request and never stored. With ``may_announce`` a first
    answer without calls is not taken for the end: some models say what they will do before they do it.
    """

    def __init__(
        self,
        model: ChatModel,
        transcript: Transcript,
        toolbox: Toolbox,
        limits: Limits,
        *,
        reminders: Sequence[Message] = (),
        may_announce: bool = False,
    ) -> None:
        self._model = model
        self._transcript = transcript
        self._toolbox = toolbox
        self._limits = limits
        self._reminders = reminders
        self._may_announce = may_announce
        self._calls: list[Call] = []
        """The calls of the latest answer."""
        self._previous: Call | None = None
        self._repeated = 0
        self.outcomes: list[ToolOutcome] = []
        """How each call ended, in order."""
        self.handed_back: list[Call] = []
        """Calls that the client carries out."""

    async def events(self) -> AsyncGenerator[list[ChatEvent], None]:
        """Yield batches of events until the model has answered, or called what the client carries out.

        At a limit the model is asked once more, without tools, so that the user gets an answer.
        """
        for rounds_left in reversed(range(self._limits.rounds)):
            answer = Answer(self._model.name, self._limits.calls_per_round)
            async with aclosing(self._ask(answer)) as batches:
                async for batch in batches:
                    yield batch
            if not answer.tool_calls:
                if self._only_announced(rounds_left):
                    yield [ContentDelta("")]
                    continue
                return
            async with aclosing(self._carry_out(self._calls)) as batches:
                async for batch in batches:
                    yield batch
            if self.handed_back:
                return
            if not all(outcome.told for outcome in self.outcomes[-len(self._calls) :]):
                yield [ToolContinuationStart()]
            if self._repeated >= self._limits.identical_calls:
                break
        yield [TurnWarning("TOOL_LIMIT_REACHED", "The model called tools for too long; it answers without them now.")]
        async with aclosing(self.answer()) as batches:
            async for batch in batches:
                yield batch

    async def answer(self) -> AsyncGenerator[list[ChatEvent], None]:
        """Yield batches of events of one answer without tools."""
        async with aclosing(self._ask(Answer(self._model.name), answer_now=True)) as batches:
            async for batch in batches:
                yield batch

    def _only_announced(self, rounds_left: int) -> bool:
        """Whether an answer without calls is to be followed by another; that happens once, and first of all."""
        first, self._may_announce = self._may_announce and not self.outcomes, False
        return first and rounds_left > 0

    async def _ask(self, answer: Answer, *, answer_now: bool = False) -> AsyncGenerator[list[ChatEvent], None]:
        """One answer of the model; ``answer_now`` offers no tools and does not listen to calls of any."""
        self._transcript.expect(answer)
        schemas = [] if answer_now else self._toolbox.schemas()
        messages = self._transcript.messages.plus(self._reminders)
        asking = self._model.ask(messages, schemas, self._transcript.turn_begins)
        async with aclosing(asking) as batches:
            async for batch in batches:
                if not isinstance(batch, list):
                    yield [batch]
                elif events := answer.feed(batch):
                    self._transcript.progressed()
                    yield events
                if answer.failure is not None:
                    raise answer.failure
        if answer_now:
            answer.tool_calls.clear()
        elif answer.left_out:
            yield [_left_out(answer.left_out, self._limits.calls_per_round)]
        # Before the calls are stored: from then on each of them is owed a result.
        self._calls = answer.calls(len(self.outcomes))
        self._transcript.expect_results(self._calls)
        await self._transcript.add(answer.message(), last=not answer.tool_calls)

    async def _carry_out(self, calls: list[Call]) -> AsyncGenerator[list[ChatEvent], None]:
        for call in calls:
            async with aclosing(self._run(call)) as events:
                async for event in events:
                    if isinstance(event, ToolOutcome) and event.handed_back:
                        self.handed_back.append(call)
                        self._transcript.hand_back(call)
                    elif isinstance(event, ToolOutcome):
                        self.outcomes.append(event)
                        await self._transcript.add_result(call, event)
                        if not event.told:
                            yield [event.event()]
                    else:
                        yield [event]

    async def _run(self, call: Call) -> AsyncGenerator[ChatEvent | ToolOutcome, None]:
        same = self._previous is not None and (self._previous.name, self._previous.arguments) == (
            call.name,
            call.arguments,
        )
        self._repeated = self._repeated + 1 if same else 1
        self._previous = call
        if self._repeated > self._limits.identical_calls:
            yield failed(call, "The same call was made again and again; it was not run once more.")
            return
        async with aclosing(self._toolbox.run(call)) as events:
            async for event in events:
                yield event


def _left_out(count: int, limit: int) -> TurnWarning:
    message = (
        f"The model made {limit + count} tool calls in one round; the last {count} are left out. "
        "Raise the limit with MOCHI_MAX_TOOL_CALLS_PER_ROUND."
    )
    return TurnWarning("TOOL_CALLS_LEFT_OUT", message)
