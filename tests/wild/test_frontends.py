"""Requests that frontend libraries send in the wild."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.frontends.chats import Frontend, types, user
from tests.frontends.conftest import (  # noqa: F401 - fixtures
    api,
    data_dir,
    frontend,
    server,
    session,
    stub,
)
from tests.support.instructions import calls, instruct, words

NOTE = instruct(calls("note", text="milk"), words(1))


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def test_message_that_is_sent_twice_is_one_turn(frontend: Frontend) -> None:  # noqa: F811
    message = user(instruct(words(3)))
    first = frontend.ai_sdk(message)
    assert frontend.ai_sdk(message) == first
    assert frontend.roles() == ["user", "assistant"]


def test_message_that_is_sent_twice_at_once_is_one_turn(
    frontend: Frontend,  # noqa: F811
    pool: ThreadPoolExecutor,
) -> None:
    message = user(instruct(words(30)))
    first, second = pool.map(frontend.ai_sdk, [message, message])
    assert first == second
    assert frontend.roles() == ["user", "assistant"]


def test_repeated_message_does_not_end_its_waiting_turn(frontend: Frontend) -> None:  # noqa: F811
    message = user(NOTE)
    first = frontend.ai_sdk(message)
    assert frontend.ai_sdk(message) == first
    assert types(first)[-1] == "finish"
    assert frontend.roles() == ["user", "assistant"]


def test_other_message_with_the_same_id_is_a_new_turn(frontend: Frontend) -> None:  # noqa: F811
    frontend.ai_sdk(user("Hello!", id="m"))
    frontend.ai_sdk(user("Well?", id="m"))
    assert frontend.roles() == ["user", "assistant"] * 2


def test_same_text_with_another_id_is_a_new_turn(frontend: Frontend) -> None:  # noqa: F811
    frontend.ai_sdk(user("Go on."))
    frontend.ai_sdk(user("Go on."))
    assert frontend.roles() == ["user", "assistant"] * 2
