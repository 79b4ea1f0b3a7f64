"""History as a growing list of messages whose older blocks are shared and cached."""

import random
from collections.abc import Sequence

import pytest

from mochi_server.sessions import Message
from mochi_server.sessions.history import BLOCK_MESSAGES, History
from mochi_server.sessions.types import tool_calls_of
from tests.sessions.samples import assistant, user
from tests.support.cases import cases


def make_messages(count: int, *, turn: int = 2) -> list[Message]:
    """Return `count` messages of which each `turn`-th is a user message."""
    return [user(str(i)) if i % turn == 0 else assistant(str(i)) for i in range(count)]


def ends(history: History) -> list[int]:
    return [block.end for block in history.blocks]


@cases("turn", [1, 2, 3, 50, 1000])
def test_history_is_a_list_of_its_messages(turn: int) -> None:
    messages = make_messages(400, turn=turn)
    history = History.of(messages)
    assert (list(history), len(history)) == (messages, 400)
    assert history == messages
    assert list(reversed(history)) == messages[::-1]
    assert [history[i] for i in range(-400, 400)] == [messages[i] for i in range(-400, 400)]
    chance = random.Random(turn)
    for _ in range(100):
        index = slice(*(chance.choice([None, chance.randint(-410, 410)]) for _ in range(2)))
        assert list(history[index]) == messages[index]
    assert list(history[5:300:7]) == messages[5:300:7]
    for outside in (400, -401):
        with pytest.raises(IndexError):
            history[outside]


def test_block_boundaries_do_not_depend_on_growth() -> None:
    messages, chance = make_messages(500, turn=3), random.Random(1)
    grown = History()
    while len(grown) < 500:
        grown = grown.extended(messages[len(grown) : len(grown) + chance.randint(1, 90)])
    at_once = History.of(messages)
    assert grown == at_once
    assert ends(grown) == ends(at_once)


def test_every_block_ends_with_a_turn() -> None:
    history = History.of(make_messages(1000, turn=5))
    assert all(history[end]["role"] == "user" for end in ends(history))
    assert len(history.blocks) > 1000 / (BLOCK_MESSAGES + 5) - 1
    assert len(history.tail) <= BLOCK_MESSAGES + 5


def test_value_of_a_shared_block_is_computed_once() -> None:
    made: list[str] = []

    def first(messages: Sequence[Message]) -> str:
        made.append(messages[0]["content"])
        return messages[0]["content"]

    history = History.of(make_messages(200))
    longer, shorter = history.extended(make_messages(100)), history.prefix(150)
    found = [[block.cached(first) for block in one.blocks] for one in (history, longer, shorter)]
    assert found[0] == found[1][: len(found[0])]
    assert found[2] == found[0][: len(found[2])]
    assert len(made) == len(set(made)) == len(longer.blocks)


@cases("length", [0, 1, BLOCK_MESSAGES - 1, BLOCK_MESSAGES, BLOCK_MESSAGES + 1, 199, 200, 900])
def test_prefix_of_history_accepts_any_message(length: int) -> None:
    messages = make_messages(200)
    beginning = History.of(messages).prefix(length)
    assert beginning == messages[:length]
    longer = beginning.extended([assistant("more")])
    assert longer == [*messages[:length], longer[-1]]
    assert all(longer[end]["role"] == "user" for end in ends(longer))


def test_copies_share_nothing_with_the_history() -> None:
    call = {"id": "1", "function": {"index": 0, "name": "add", "arguments": {"a": 1}}}
    history = History.of([user("a"), {**assistant("b"), "tool_calls": [call]}])  # type: ignore[list-item]  # as read
    copies = history.copies()
    copies[0]["content"] = "changed"
    tool_calls_of(copies[1])[0]["function"]["arguments"]["a"] = 2
    assert history[0]["content"] == "a"
    assert tool_calls_of(history[1])[0]["function"]["arguments"] == {"a": 1}
