"""The synchronous session manager, and the editing rules that it shares with the server."""

from pathlib import Path

import pytest

from mochi_server.errors import InvalidMessageIndex, SessionNotFound
from mochi_server.sessions import (
    ChatSession,
    SessionCreationOptions,
    SessionManager,
    ToolSettings,
    edited,
    with_system_prompt,
    without_system_prompt,
)
from mochi_server.util.clock import timestamp
from tests.sessions.samples import assistant, contents, user


@pytest.fixture
def manager(sessions_dir: Path) -> SessionManager:
    return SessionManager(sessions_dir=str(sessions_dir))


@pytest.fixture
def session(manager: SessionManager) -> ChatSession:
    created = manager.create_session(SessionCreationOptions(model="m", system_prompt="Be brief."))
    return manager.append_messages(
        created.session_id, [user("a"), assistant("b"), user("c"), assistant("d")]
    )


def test_created_sessions_are_visible_to_other_managers(
    manager: SessionManager, session: ChatSession, sessions_dir: Path
) -> None:
    other = SessionManager(sessions_dir)
    assert other.load_session(session.session_id) == session
    assert other.list_sessions() == [session.summary_object()]


def test_updating_sets_the_named_fields(manager: SessionManager, session: ChatSession) -> None:
    changed = manager.update_session(
        session.session_id, model="n", tool_settings=ToolSettings(tools=["add"])
    )
    assert (changed.model, changed.metadata.tool_settings.tools) == ("n", ["add"])
    assert manager.load_session(session.session_id) == changed


def test_edit_keeps_message_id_and_removes_later_messages(
    manager: SessionManager, session: ChatSession
) -> None:
    changed = manager.edit_message(session.session_id, 3, "C")
    assert contents(changed) == ["Be brief.", "a", "b", "C"]
    assert changed.messages[3]["message_id"] == session.messages[3]["message_id"]
    assert timestamp(changed.messages[3]["timestamp"]) > timestamp(session.messages[3]["timestamp"])
    assert changed.messages[:3] == session.messages[:3]
    assert manager.load_session(session.session_id) == changed


@pytest.mark.parametrize(("index", "is_kept"), [(1, False), (3, True)])
@pytest.mark.parametrize("covered", [1, 2])
def test_edit_drops_the_checkpoint_of_changed_messages(
    manager: SessionManager, session: ChatSession, index: int, is_kept: bool, covered: int
) -> None:
    checkpoint = {
        "text": "t",
        "covers_through_message_id": session.messages[covered]["message_id"],
        "model": "m",
    }
    manager.update_session(session.session_id, compaction=checkpoint)
    changed = manager.edit_message(session.session_id, index, "x")
    assert changed.metadata.compaction == (checkpoint if is_kept else None)
    assert manager.load_session(session.session_id) == changed


@pytest.mark.parametrize("index", [0, 2, 4, 5, -1])
def test_only_user_messages_can_be_edited(
    manager: SessionManager, session: ChatSession, index: int
) -> None:
    with pytest.raises(InvalidMessageIndex) as caught:
        manager.edit_message(session.session_id, index, "x")
    assert caught.value.details == {"index": index}
    assert manager.load_session(session.session_id) == session


def test_system_prompt_is_replaced_by_a_new_one(
    manager: SessionManager, session: ChatSession
) -> None:
    changed = manager.set_system_prompt(session.session_id, "Be kind.", "kind.md")
    assert changed.system_prompt is not None
    assert (changed.system_prompt["content"], changed.system_prompt["source_file"]) == (
        "Be kind.",
        "kind.md",
    )
    assert changed.messages[1:] == session.messages[1:]


def test_system_prompt_is_removed_and_added_again(
    manager: SessionManager, session: ChatSession
) -> None:
    without = manager.remove_system_prompt(session.session_id)
    assert without.messages == session.messages[1:]
    assert manager.remove_system_prompt(session.session_id).messages == without.messages
    again = manager.set_system_prompt(session.session_id, "Again.")
    assert contents(again) == ["Again.", "a", "b", "c", "d"]


def test_history_rules_do_not_change_the_session(session: ChatSession) -> None:
    before = contents(session)
    edited(session, 1, "A")
    with_system_prompt(session, "x", None)
    without_system_prompt(session)
    assert contents(session) == before


def test_changes_of_a_loaded_session_are_not_stored(manager: SessionManager) -> None:
    settings = ToolSettings(tools=["add"])
    stored = manager.create_session(
        SessionCreationOptions("m", options={"stop": ["."]}, tool_settings=settings)
    )
    before = stored.metadata.to_dict()
    loaded = manager.load_session(stored.session_id)
    loaded.metadata.tool_settings.tools.append("shell")
    loaded.metadata.agent_settings.enabled_agents.append("a")
    assert loaded.metadata.options is not None
    loaded.metadata.options["stop"].append("!")
    manager.append_messages(stored.session_id, [user("a")])
    after = manager.load_session(stored.session_id).metadata.to_dict()
    assert after == before | {"message_count": 1, "updated_at": after["updated_at"]}


def test_deleted_session_is_not_found(manager: SessionManager, session: ChatSession) -> None:
    manager.delete_session(session.session_id)
    with pytest.raises(SessionNotFound):
        manager.load_session(session.session_id)
    assert manager.list_sessions() == []
