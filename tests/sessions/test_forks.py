"""Forked sessions."""

import pytest

from mochi_server.errors import InvalidMessageIndex
from mochi_server.sessions.session import forked, index_of
from tests.sessions.samples import assistant, contents, new_session, user


def test_fork_keeps_compaction_of_messages_it_has() -> None:
    session = new_session()
    session.messages = [user("a"), assistant("b"), user("c")]
    session.metadata.compaction = {
        "text": "t",
        "covers_through_message_id": session.messages[1]["message_id"],
    }
    assert forked(session, 1).metadata.compaction == session.metadata.compaction
    assert forked(session, 0).metadata.compaction is None


def test_fork_drops_tool_calls_without_results() -> None:
    session = new_session()
    calling = assistant("")
    calling["tool_calls"] = [{"id": "1", "function": {"index": 0, "name": "add", "arguments": {}}}]
    session.messages = [user("a"), assistant("b"), user("c"), calling]
    assert contents(forked(session)) == ["a", "b", "c"]
    with pytest.raises(InvalidMessageIndex, match="some results are missing"):
        forked(session, 3)


def test_fork_has_no_manual_window_of_its_own() -> None:
    session = new_session()
    session.metadata.context_window_config |= {
        "manual_override": True,
        "other_models": {"mochi:latest": {}},
    }
    config = forked(session).metadata.context_window_config
    assert (config["manual_override"], config["current_window"], "other_models" in config) == (
        False,
        None,
        False,
    )


def test_fork_of_empty_session_is_empty() -> None:
    session = new_session()
    assert forked(session).messages == []
    with pytest.raises(InvalidMessageIndex):
        forked(session, 0)
    with pytest.raises(InvalidMessageIndex):
        index_of(session, "x")
