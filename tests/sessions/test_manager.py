"""The synchronous session manager, and the editing rules that it shares with the server."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mochi_server.errors import InvalidMessageIndex, SessionNotFound
from mochi_server.sessions import (
    ChatSession,
    Message,
    SessionCreationOptions,
    SessionManager,
    ToolSettings,
    edited,
    with_system_prompt,
    without_system_prompt,
)
from mochi_server.util.clock import timestamp
from tests.sessions.samples import assistant, contents, user
from tests.support.cases import cases


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


INVALID = [
    ("title", 5, "title: Input should be a valid string"),
    ("title", "a\nb", "title: must be one line that is not blank and has no control characters"),
    ("tags", "x", "tags: Input should be a valid list"),
    ("think", "ultra", "think: Input should be "),
    ("format", "xml", "format: Input should be 'json'; Input should be a JSON object"),
    ("keep_alive", "5 parsecs", "keep_alive: must be seconds, or a duration"),
    ("options", "x", "options: Input should be a JSON object"),
    ("options", {"num_ctx": 5}, "options: num_ctx would make Ollama reload the model."),
    ("options", {"temprature": 1}, "options.temprature: unknown option. Did you mean `temp"),
    ("tool_settings", "x", "tool_settings: Input should be a JSON object"),
    ("tool_settings", {"toolz": []}, "tool_settings.toolz: unknown field. Did you mean `tools`?"),
    (
        "tool_settings",
        {"tools": ["add"], "execution_policy": "confirm_destructiv"},
        "tool_settings.execution_policy: Input should be 'always_confirm', ",
    ),
    (
        "agent_settings",
        {"enabled_agents": "coder"},
        "agent_settings.enabled_agents: Input should be a valid list",
    ),
    ("pinned", "yes", "pinned: Input should be a valid boolean"),
    ("expires_at", "tomorrow", "expires_at: must be a time with a time zone"),
    ("model", "", "model: String should have at least 1 character"),
]
"""Fields that `PATCH` refuses with this text."""


@cases(("field", "value", "message"), INVALID)
def test_invalid_values_change_nothing(
    manager: SessionManager, session: ChatSession, field: str, value: object, message: str
) -> None:
    session = manager.update_session(session.session_id, title="Mine", tags=["a"], pinned=True)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        manager.update_session(session.session_id, **{"summary_model": "n", field: value})
    assert str(caught.value).startswith(message)
    assert manager.load_session(session.session_id) == session


@cases(("field", "value", "message"), INVALID)
def test_session_with_an_invalid_value_is_not_created(
    manager: SessionManager, field: str, value: object, message: str
) -> None:
    options = replace(SessionCreationOptions("m"), **{field: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=re.escape(message)):
        manager.create_session(options)
    assert manager.list_sessions() == []


@cases("prompt", [None, ""])
def test_prompt_file_without_its_text_is_refused(
    manager: SessionManager, prompt: str | None
) -> None:
    options = SessionCreationOptions(
        "m", system_prompt=prompt, system_prompt_source_file="helpful.md"
    )
    with pytest.raises(ValueError, match=r"system_prompt_source_file .* needs system_prompt"):
        manager.create_session(options)
    assert manager.list_sessions() == []


def test_window_config_with_an_invalid_value_changes_nothing(
    manager: SessionManager, session: ChatSession
) -> None:
    config = {"current_window": "large", "manual_override": True}
    with pytest.raises(ValueError, match="context_window_config: invalid value of current_window"):
        manager.update_session(session.session_id, context_window_config=config)
    assert manager.load_session(session.session_id) == session


def test_settings_are_stored_as_given(manager: SessionManager) -> None:
    settings = {"tools": ["add"], "execution_policy": "never_confirm"}
    options = SessionCreationOptions("m", tool_settings=settings, title=" Mine ")  # type: ignore[arg-type]
    created = manager.create_session(options)
    assert created.metadata.title == "Mine"
    assert created.metadata.tool_settings == ToolSettings.model_validate(settings)
    settings["execution_policy"] = "confirm_destructive"
    changed = manager.update_session(created.session_id, tool_settings=settings, title=None)
    assert changed.metadata.title is None
    assert changed.metadata.tool_settings == ToolSettings.model_validate(settings)


@cases(
    ("message", "problem"),
    [
        ({"role": "weird", "content": "x"}, "0.role: Input should be 'system', "),
        ({"content": "x"}, "0.role: Field required"),
        ({"role": "user", "content": 5}, "0.content: Input should be a valid string"),
    ],
)
def test_invalid_messages_are_not_appended(
    manager: SessionManager, session: ChatSession, message: Message, problem: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        manager.append_messages(session.session_id, [message])
    assert manager.load_session(session.session_id) == session


@cases(("content", "stored"), [(None, ""), ("a\ud83d", "a\ufffd")])
def test_texts_that_cannot_be_stored_are_completed(
    manager: SessionManager, session: ChatSession, content: Any, stored: str
) -> None:
    message: Any = {"role": "user", "content": content}
    changed = manager.append_messages(session.session_id, [message])
    assert contents(changed)[-1] == stored
    changed = manager.update_session(session.session_id, tags=["a\ud83d"])
    assert changed.metadata.tags == ["a\ufffd"]


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
