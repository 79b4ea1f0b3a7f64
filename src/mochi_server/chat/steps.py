"""What a turn does next, as a pure function of what is stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mochi_server.sessions.session import last_answer
from mochi_server.sessions.turn import StoredTurn
from mochi_server.sessions.types import AssistantMessage, Message
from mochi_server.tools.stored_calls import all_calls, open_calls
from mochi_server.tools.toolbox import ToolInvocation

Phase = Literal["answer", "planning", "execution"]
"""Phase of a turn.

A turn of an agent plans without tools and then executes the plan. Any other only answers.
"""
Limit = Literal["rounds", "identical_calls"]


@dataclass(frozen=True, slots=True)
class TurnRules:
    """What a turn may do, besides what is stored.

    At the first two limits, the model must answer without tools.
    """

    rounds: int = 50
    """Maximum number of answers with tools."""
    identical_calls: int = 3
    """Maximum number of equal calls in a row. Further ones are refused."""
    calls_per_round: int = 128
    """Maximum number of distinct calls in a round. Further ones are skipped."""
    repairs_answers: bool = True
    """Whether reasoning and calls that the model writes as text leave the text."""
    plans: bool = False
    """Whether the turn has the phases of an agent."""
    must_call: bool = False
    """Whether the first answer must call a tool."""


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """Call without a result."""

    call: ToolInvocation
    has_begun: bool
    """Whether the call may have begun before a crash.

    Then it must not run, and its outcome is unknown.
    """
    is_repeated: bool
    """Whether the model has made the same call too often. Then it does not run."""


@dataclass(frozen=True, slots=True)
class RunCalls:
    """Run the calls of the last answer that have no result, in order."""

    calls: Sequence[PlannedCall]

    @property
    def description(self) -> str:
        """Text for the log."""
        return f"run {', '.join(planned.call.name for planned in self.calls)}"


@dataclass(frozen=True, slots=True)
class AskModel:
    """Ask the model for an answer."""

    phase: Phase = "answer"
    offers_tools: bool = True
    must_call: bool = False
    limit: Limit | None = None
    """Limit that the turn has reached, so that it offers no tools."""

    @property
    def description(self) -> str:
        """Text for the log."""
        return f"ask the model, phase={self.phase} tools={self.offers_tools}"


@dataclass(frozen=True, slots=True)
class Finish:
    """End the turn: the model's last message is the answer, or has calls that the client runs."""

    @property
    def description(self) -> str:
        """Text for the log."""
        return "finish"


Step = RunCalls | AskModel | Finish


def next_step(messages: Sequence[Message], turn: StoredTurn, rules: TurnRules) -> Step:
    """Return the next step of a turn that has added ``messages`` to the history, without the user's
    message.
    """
    calls = open_calls(messages)
    if calls:
        return RunCalls(_planned(calls, messages, turn, rules))
    answers = [message for message in messages if message["role"] == "assistant"]
    last = last_answer(answers)
    # The last answer is partial if results that the client has returned later follow it.
    if last is None or last.get("interrupted"):
        return _first_request(rules)
    if last.get("client_tool_calls"):
        return Finish()
    executed = answers[1:] if rules.plans else answers
    if last.get("tool_calls"):
        return _request_after_calls(executed, messages, rules)
    if rules.plans and not _is_complete(executed, rules):
        return AskModel("execution")
    return Finish()


def _first_request(rules: TurnRules) -> AskModel:
    if rules.plans:
        return AskModel("planning", offers_tools=False)
    return AskModel(must_call=rules.must_call)


def _request_after_calls(
    executed: Sequence[AssistantMessage], messages: Sequence[Message], rules: TurnRules
) -> AskModel:
    phase: Phase = "execution" if rules.plans else "answer"
    _, in_a_row = _counted(messages)[-1]
    if in_a_row >= rules.identical_calls:
        return AskModel(phase, offers_tools=False, limit="identical_calls")
    if len(executed) >= rules.rounds:
        return AskModel(phase, offers_tools=False, limit="rounds")
    return AskModel(phase)


def _is_complete(executed: Sequence[AssistantMessage], rules: TurnRules) -> bool:
    """Return whether an agent has executed its plan, when its latest answer has no calls.

    If that is its first answer, it may only announce calls, so that the agent is asked again.
    """
    needed = 1 if rules.rounds == 1 else 2
    return len(executed) >= needed


def _planned(
    calls: Sequence[ToolInvocation], messages: Sequence[Message], turn: StoredTurn, rules: TurnRules
) -> list[PlannedCall]:
    counts = {call.index: count for call, count in _counted(messages)}
    return [
        PlannedCall(
            call,
            has_begun=turn.has_begun(call.id, call.index),
            is_repeated=counts[call.index] > rules.identical_calls,
        )
        for call in calls
    ]


def _counted(messages: Sequence[Message]) -> list[tuple[ToolInvocation, int]]:
    """Return the calls of a turn, each with the number of equal calls in a row until then."""
    counted: list[tuple[ToolInvocation, int]] = []
    previous = None
    count = 0
    for call in all_calls(messages):
        content = (call.name, call.arguments)
        count = count + 1 if content == previous else 1
        previous = content
        counted.append((call, count))
    return counted
