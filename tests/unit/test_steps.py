"""What a turn does next, as a table of histories and stored turns."""

from typing import Any

import pytest

from mochi_server.chat.steps import AskModel, Finish, RunCalls, Step, TurnRules, next_step
from mochi_server.sessions.turn import AgentCall, Approval, Decision, StoredTurn
from mochi_server.sessions.types import AssistantMessage, Message, ToolMessage

NEW = StoredTurn(["r1"])
AGENT = TurnRules(plans=True)


def answer(text: str = "", *names: str, **fields: Any) -> Message:
    """Return an answer that calls these tools. The ID of a call is its name."""
    calls: list[Any] = [{"id": name, "function": {"name": name, "arguments": {}}} for name in names]
    message: AssistantMessage = {
        "role": "assistant",
        "content": text,
        "message_id": "a",
        "timestamp": "",
        **fields,  # type: ignore[typeddict-item]
    }
    return {**message, "tool_calls": calls} if calls else message


def result(name: str, **fields: Any) -> Message:
    message: ToolMessage = {
        "role": "tool",
        "content": "",
        "tool_name": name,
        "tool_call_id": name,
        "message_id": "t",
        "timestamp": "",
        **fields,  # type: ignore[typeddict-item]
    }
    return message


def rounds(count: int) -> list[Message]:
    """Return rounds with a different call each."""
    return [
        message for n in range(count) for message in (answer("", f"call{n}"), result(f"call{n}"))
    ]


def waiting(
    decision: Decision | None = None, *, expired: bool = False, agent: AgentCall | None = None
) -> StoredTurn:
    expires_at = 1.0 if expired else None
    approval = Approval(
        "conf_r1_1", "one", {}, 0, "", expires_at=expires_at, agent=agent, decision=decision
    )
    turn = NEW.requested(approval, {}, events=3)
    return turn if decision is None and not expired else turn.decided(decision)


TABLE: dict[str, tuple[list[Message], StoredTurn, TurnRules, Step]] = {
    "new turn": ([], NEW, TurnRules(), AskModel()),
    "forced call": ([], NEW, TurnRules(must_call=True), AskModel(must_call=True)),
    "after the forced call": (rounds(1), NEW, TurnRules(must_call=True), AskModel()),
    "answer": ([answer("Hi")], NEW, TurnRules(), Finish()),
    "answer after a round": ([*rounds(1), answer("Hi")], NEW, TurnRules(), Finish()),
    "interrupted answer": (
        [*rounds(1), answer("H", interrupted=True)],
        NEW,
        TurnRules(),
        AskModel(),
    ),
    "all calls have results": (rounds(1), NEW, TurnRules(), AskModel()),
    "calls of the client": (
        [answer("", "one", client_tool_calls=["one"])],
        NEW,
        TurnRules(),
        Finish(),
    ),
    "calls of the client, after the server's": (
        [answer("", "one", "two", client_tool_calls=["two"]), result("one")],
        NEW,
        TurnRules(),
        Finish(),
    ),
    "limit of rounds": (
        rounds(2),
        NEW,
        TurnRules(rounds=2),
        AskModel(offers_tools=False, limit="rounds"),
    ),
    "answer at the limit": ([*rounds(2), answer("Hi")], NEW, TurnRules(rounds=2), Finish()),
    "limit of identical calls": (
        [answer("", "one"), result("one")] * 2,
        NEW,
        TurnRules(identical_calls=2),
        AskModel(offers_tools=False, limit="identical_calls"),
    ),
    "agent plans": ([], NEW, AGENT, AskModel("planning", offers_tools=False)),
    "agent executes its plan": ([answer("Plan")], NEW, AGENT, AskModel("execution")),
    "agent has announced calls": (
        [answer("Plan"), answer("I will look.")],
        NEW,
        AGENT,
        AskModel("execution"),
    ),
    "agent answers without calls": (
        [answer("Plan"), answer("I will."), answer("Done")],
        NEW,
        AGENT,
        Finish(),
    ),
    "agent after its calls": ([answer("Plan"), *rounds(1)], NEW, AGENT, AskModel("execution")),
    "agent has finished": ([answer("Plan"), *rounds(1), answer("Done")], NEW, AGENT, Finish()),
    "agent with one round answers without calls": (
        [answer("Plan"), answer("Done")],
        NEW,
        TurnRules(rounds=1, plans=True),
        Finish(),
    ),
    "agent at its limit": (
        [answer("Plan"), *rounds(2)],
        NEW,
        TurnRules(rounds=2, plans=True),
        AskModel("execution", offers_tools=False, limit="rounds"),
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_next_step(name: str) -> None:
    messages, turn, rules, step = TABLE[name]
    assert next_step(messages, turn, rules) == step


CALLS: dict[str, tuple[list[Message], StoredTurn, list[tuple[str, bool, bool]]]] = {
    "open calls": ([answer("", "one", "two")], NEW, [("one", False, False), ("two", False, False)]),
    "second call": ([answer("", "one", "two"), result("one")], NEW, [("two", False, False)]),
    "same ID as a call that has begun": (
        [answer("", "one"), result("one"), answer("", "one")],
        NEW.started("one", 0),
        [("one", False, False)],
    ),
    "beside repeated calls of the client": (
        [answer("", "one", "two", "two", "two", "two", client_tool_calls=["two"])],
        NEW,
        [("one", False, False)],
    ),
    "same ID twice": ([answer("", "one", "one"), result("one")], NEW, [("one", False, False)]),
    "call that may have begun": (
        [answer("", "one", "two")],
        NEW.started("one", 0),
        [("one", True, False), ("two", False, False)],
    ),
    "call of an older file that may have begun": (
        [answer("", "one")],
        StoredTurn(["r1"], started_call="/0"),
        [("one", True, False)],
    ),
    "earlier call had begun": (
        [answer("", "one", "two"), result("one")],
        NEW.started("one", 0),
        [("two", False, False)],
    ),
    "call too often in a row": (
        [answer("", "one"), result("one")] * 3 + [answer("", "one")],
        NEW,
        [("one", False, True)],
    ),
    "call that waits": ([answer("", "one")], waiting(), [("one", False, False)]),
    "call that was approved": (
        [answer("", "one")],
        waiting(Decision(approved=True)),
        [("one", False, False)],
    ),
    "call whose request has expired": (
        [answer("", "one")],
        waiting(expired=True),
        [("one", False, False)],
    ),
    "agent whose call waits": (
        [answer("", "agent")],
        waiting(agent=AgentCall("lost", "0123456789", "agent")),
        [("agent", False, False)],
    ),
    "calls of the server beside those of the client": (
        [answer("", "one", "two", client_tool_calls=["one"])],
        NEW,
        [("two", False, False)],
    ),
}
"""Messages, stored turn, and the open calls: name, whether it may have begun, and whether it was
made too often.
"""


@pytest.mark.parametrize("name", CALLS)
def test_open_calls_run_first(name: str) -> None:
    messages, turn, expected = CALLS[name]
    step = next_step(messages, turn, TurnRules())
    assert isinstance(step, RunCalls)
    assert [(each.call.name, each.has_begun, each.is_repeated) for each in step.calls] == expected


def test_index_of_a_call_counts_all_calls_of_the_turn() -> None:
    step = next_step([*rounds(3), answer("", "a", "b")], NEW, TurnRules())
    assert isinstance(step, RunCalls)
    assert [each.call.index for each in step.calls] == [3, 4]
