"""Session files of the specification, of older versions, and with odd values: each is loaded and
written back.
"""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mochi_server.errors import SessionNotFound, SessionTooNew
from mochi_server.sessions import ChatSession, SessionManager, ToolExecutionPolicy
from mochi_server.sessions.serialization import decode_file, encode_file
from mochi_server.storage.files.backend import SessionDirectory
from tests.sessions.samples import contents, file_of, new_session, storage_warnings, user

ID = "a1b2c3d4e5"

SPECIFIED = """\
{
  "metadata": {
    "session_id": "a1b2c3d4e5",
    "model": "qwen3:14b",
    "created_at": "...",
    "updated_at": "...",
    "message_count": 6,
    "summary": {"summary": "...", "topics": ["..."]},
    "summary_model": "qwen3:14b",
    "format_version": "1.4",
    "tool_settings": {"tools": [], "tool_group": null, "execution_policy": "always_confirm"},
    "agent_settings": {"enabled_agents": [], "selection_metadata": null},
    "context_window_config": {
      "dynamic_enabled": true,
      "current_window": 8192,
      "last_adjustment": "initial_setup",
      "adjustment_history": [],
      "manual_override": false
    }
  },
  "messages": [
    {"role": "system", "content": "...", "source_file": "helpful.md", "message_id": "...", "timestamp": "..."},
    {"role": "user", "content": "Hello", "message_id": "...", "timestamp": "..."},
    {"role": "assistant", "content": "Hi!", "model": "qwen3:14b", "message_id": "...", "timestamp": "...", \
"eval_count": 12, "prompt_eval_count": 45}
  ]
}
"""

OF_1_0 = {
    "session_id": ID,
    "model": "llama3",
    "created_at": "2024-05-01T10:00:00",
    "updated_at": "2024-05-01T10:05:00",
    "message_count": 1,
    "summary": None,
    "summary_model": None,
    "format_version": "1.0",
}
OF_1_1 = OF_1_0 | {"format_version": "1.1", "tool_settings": {"tools": ["add"], "tool_group": None}}
OF_1_2 = OF_1_1 | {"format_version": "1.2", "context_window_config": {"current_window": 4096}}
UNVERSIONED = {name: value for name, value in OF_1_0.items() if name != "format_version"}
A_MESSAGE = {
    "role": "user",
    "content": "hi",
    "message_id": "0000000001",
    "timestamp": "2024-05-01T10:00:00",
}
AS_STORED = A_MESSAGE | {"timestamp": "2024-05-01T10:00:00.000000+00:00"}


@pytest.fixture
def manager(sessions_dir: Path) -> SessionManager:
    sessions_dir.mkdir(exist_ok=True)
    return SessionManager(sessions_dir)


def put(sessions_dir: Path, content: dict[str, Any] | str | bytes, session_id: str = ID) -> Path:
    path = file_of(sessions_dir, session_id)
    if isinstance(content, dict):
        content = json.dumps(content)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    past = (
        time.time_ns() - 10**10
    )  # older than the time after which a file counts as completely written
    os.utime(path, ns=(past, past))
    return path


def rewrite(manager: SessionManager, path: Path) -> dict[str, Any]:
    """Return the file after a change that rewrites it."""
    manager.update_session(ID, title="touched")
    stored: dict[str, Any] = json.loads(path.read_text())
    assert stored["metadata"].pop("title") == "touched"
    return stored


def test_specified_example_survives_a_round_trip(
    manager: SessionManager, sessions_dir: Path
) -> None:
    path = put(sessions_dir, SPECIFIED)
    session = manager.load_session(ID)
    assert contents(session) == ["...", "Hello", "Hi!"]
    stored, specified = rewrite(manager, path), json.loads(SPECIFIED)
    for changing in ("updated_at", "message_count"):
        del stored["metadata"][changing], specified["metadata"][changing]
    assert stored == specified


def test_specified_example_is_listed_with_its_real_count(
    manager: SessionManager, sessions_dir: Path
) -> None:
    put(sessions_dir, SPECIFIED)
    (entry,) = manager.list_sessions()
    assert (entry["session_id"], entry["message_count"], entry["preview"]) == (ID, 3, "Hello")


@pytest.mark.parametrize(
    "metadata", [UNVERSIONED, OF_1_0, OF_1_1, OF_1_2], ids=["none", "1.0", "1.1", "1.2"]
)
def test_older_files_are_written_as_the_current_version(
    manager: SessionManager, sessions_dir: Path, metadata: dict[str, Any]
) -> None:
    path = put(sessions_dir, {"metadata": metadata, "messages": [A_MESSAGE]})
    session = manager.load_session(ID)
    assert session.metadata.tool_settings.execution_policy is ToolExecutionPolicy.ALWAYS_CONFIRM
    assert session.metadata.context_window_config["manual_override"] is False
    stored = rewrite(manager, path)
    assert stored["metadata"]["format_version"] == "1.4"
    assert stored["metadata"]["created_at"] == "2024-05-01T10:00:00.000000+00:00"
    assert stored["metadata"]["agent_settings"] == {
        "enabled_agents": [],
        "selection_metadata": None,
    }
    assert stored["messages"] == [AS_STORED]


@pytest.mark.parametrize(
    ("time", "as_utc"),
    [
        ("2024-05-01T10:00:00", "2024-05-01T10:00:00.000000+00:00"),
        ("2024-05-01T12:00:00.5+02:00", "2024-05-01T10:00:00.500000+00:00"),
        ("2024-05-01T10:00:00Z", "2024-05-01T10:00:00.000000+00:00"),
        ("2024-05-01T10:00:00+00:00", "2024-05-01T10:00:00+00:00"),
        ("0001-01-01T00:00:00+01:00", "0001-01-01T00:00:00+01:00"),
        ("yesterday", "yesterday"),
    ],
)
def test_times_are_read_and_written_as_utc(
    manager: SessionManager, sessions_dir: Path, time: str, as_utc: str
) -> None:
    metadata = OF_1_2 | {"created_at": time, "updated_at": time}
    path = put(sessions_dir, {"metadata": metadata, "messages": [A_MESSAGE | {"timestamp": time}]})
    session = manager.load_session(ID)
    times = [session.metadata.created_at, session.messages[0]["timestamp"]]
    assert times == [as_utc, as_utc]
    (entry,) = manager.list_sessions()
    assert entry["created_at"] == entry["updated_at"] == session.metadata.updated_at == as_utc
    stored = rewrite(manager, path)
    times = [stored["metadata"]["created_at"], stored["messages"][0]["timestamp"]]
    assert times == [as_utc, as_utc]


def test_values_of_an_older_version_are_kept(manager: SessionManager, sessions_dir: Path) -> None:
    put(sessions_dir, {"metadata": OF_1_2, "messages": []})
    metadata = manager.load_session(ID).metadata
    assert metadata.tool_settings.tools == ["add"]
    assert metadata.context_window_config["current_window"] == 4096


def test_unknown_keys_and_nulls_are_written_back(
    manager: SessionManager, sessions_dir: Path
) -> None:
    unknown = {"anything": [1, {"deep": None}]}
    metadata = OF_1_2 | {
        "format_version": "1.4",
        "tool_settings": {
            "tools": None,
            "tool_group": None,
            "execution_policy": None,
            "mine": None,
        },
        "agent_settings": None,
        "context_window_config": {"current_window": None, "mine": unknown},
        "summary": {"summary": "s", "topics": [], "mine": 1},
        "mine": unknown,
        "also_mine": None,
    }
    path = put(
        sessions_dir,
        {"metadata": metadata, "messages": [A_MESSAGE | {"mine": unknown}], "mine": unknown},
    )
    stored = rewrite(manager, path)
    assert stored["mine"] == unknown
    assert stored["messages"] == [AS_STORED | {"mine": unknown}]
    assert stored["metadata"]["mine"] == unknown
    assert stored["metadata"]["also_mine"] is None
    assert stored["metadata"]["summary"]["mine"] == 1
    assert stored["metadata"]["context_window_config"]["mine"] == unknown
    assert stored["metadata"]["tool_settings"] == {
        "tools": [],
        "tool_group": None,
        "execution_policy": "always_confirm",
        "mine": None,
    }


def test_unknown_keys_of_a_version_are_written_back(
    manager: SessionManager, sessions_dir: Path
) -> None:
    version = {
        "version_id": "v1",
        "message_id": AS_STORED["message_id"],
        "replaced_at": AS_STORED["timestamp"],
        "messages": [AS_STORED],
        "mine": {"anything": [1, None]},
    }
    path = put(sessions_dir, {"metadata": OF_1_2, "messages": [A_MESSAGE], "versions": [version]})
    assert rewrite(manager, path)["versions"] == [version]


@pytest.mark.parametrize(
    "times", [{}, {"created_at": None, "updated_at": None}], ids=["absent", "null"]
)
def test_session_without_times_has_those_of_its_file(
    manager: SessionManager, sessions_dir: Path, times: dict[str, None]
) -> None:
    path = put(
        sessions_dir,
        {"metadata": {"model": "m", **times}, "messages": [{"role": "user", "content": "hi"}]},
    )
    put(sessions_dir, {"metadata": OF_1_2, "messages": []}, "00000000aa")
    os.utime(path, (86_400, 86_400))
    moment = "1970-01-02T00:00:00.000000+00:00"
    for reader in (manager, SessionManager(sessions_dir)):
        session = reader.load_session(ID)
        (message,) = session.messages
        assert (session.metadata.created_at, session.metadata.updated_at, message["timestamp"]) == (
            moment,
        ) * 3
    assert [entry["session_id"] for entry in manager.list_sessions()] == ["00000000aa", ID]


@pytest.mark.parametrize("version", ["1.5", "1.10", "2.0", "2"])
def test_file_of_a_later_version_is_refused_and_kept(
    manager: SessionManager, sessions_dir: Path, version: str
) -> None:
    path = put(sessions_dir, {"metadata": OF_1_2 | {"format_version": version}, "messages": []})
    before = path.read_bytes()
    with pytest.raises(
        SessionTooNew,
        match=f"has format version {version}, and this server reads versions up to 1.4",
    ):
        manager.load_session(path.stem)
    with pytest.raises(SessionTooNew):
        manager.update_session(path.stem, title="Other")
    with pytest.raises(SessionTooNew):
        manager.delete_session(path.stem)
    assert manager.list_sessions() == []
    assert [file.read_bytes() for file in sessions_dir.glob("*.json")] == [before]


def test_odd_versions_are_ignored(manager: SessionManager, sessions_dir: Path) -> None:
    path = put(sessions_dir, {"metadata": OF_1_2 | {"format_version": "latest"}, "messages": []})
    assert rewrite(manager, path)["metadata"]["format_version"] == "1.4"


def test_copied_file_is_a_separate_session(manager: SessionManager, sessions_dir: Path) -> None:
    put(sessions_dir, SPECIFIED)
    put(sessions_dir, SPECIFIED, "0000000000")
    manager.update_session("0000000000", title="copy")
    assert manager.load_session("0000000000").session_id == "0000000000"
    assert manager.load_session(ID).metadata.title is None
    assert {entry["session_id"] for entry in manager.list_sessions()} == {ID, "0000000000"}


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + SPECIFIED.encode(),
        SPECIFIED.replace('"Hello"', '"Hello\\ud800"').encode(),
        SPECIFIED.replace("12,", "NaN,").encode(),
    ],
    ids=["byte order mark", "lone surrogate", "NaN"],
)
def test_loosely_written_json_is_read(
    manager: SessionManager, sessions_dir: Path, content: bytes
) -> None:
    path = put(sessions_dir, content)
    assert contents(manager.load_session(ID))[1] in ("Hello", "Hello\ufffd")
    assert len(rewrite(manager, path)["messages"]) == 3


@pytest.mark.parametrize(
    "settings",
    [
        {"think": "yes"},
        {"keep_alive": "soon"},
        {"keep_alive": True},
        {"format": "yaml"},
        {"options": {"temperature": "hot"}},
    ],
    ids=str,
)
def test_generation_settings_that_ollama_would_reject_are_ignored(
    manager: SessionManager, sessions_dir: Path, settings: dict[str, Any]
) -> None:
    valid = {
        "think": "high",
        "keep_alive": 5,
        "format": "json",
        "options": {"temperature": 1, "num_gpu": 2},
    }
    put(
        sessions_dir,
        {"metadata": {"session_id": ID, "model": "m", **valid, **settings}, "messages": []},
    )
    metadata = manager.load_session(ID).metadata
    assert {name: getattr(metadata, name) for name in valid} == valid | dict.fromkeys(settings)
    assert type(metadata.keep_alive) is not float


def test_file_has_indented_metadata_and_one_message_per_line() -> None:
    session = new_session(system_prompt='A "prompt"\nof two lines — and more')
    session.messages.append(user("hello"))
    data = encode_file(
        session.metadata, [json.dumps(message).encode() for message in session.messages], {}
    )
    lines = data.decode().splitlines()
    assert lines[:3] == ["{", '  "metadata": {', f'    "session_id": "{session.session_id}",']
    assert lines[-6:-4] == ["  },", '  "messages": [']
    assert [json.loads(line.strip().rstrip(",")) for line in lines[-4:-2]] == session.messages
    assert lines[-2:] == ["  ]", "}"]
    assert contents(decode_file(session.session_id, data, modified=0)) == contents(session)


def test_file_has_exactly_the_specified_keys_in_order(
    manager: SessionManager, sessions_dir: Path
) -> None:
    file_of(sessions_dir, ID).touch()
    path = put(sessions_dir, {"metadata": {"session_id": ID, "model": "m"}, "messages": []})
    manager.append_messages(ID, [user("hi")])
    stored = json.loads(path.read_text())
    assert list(stored) == list(json.loads(SPECIFIED))
    assert list(stored["metadata"]) == list(json.loads(SPECIFIED)["metadata"])


DAMAGED = {
    "empty": b"",
    "cut off": SPECIFIED.encode()[:200],
    "not UTF-8": SPECIFIED.encode().replace(b"Hello", b"\xff\xfe"),
    "a list": b"[]",
    "no metadata": b'{"messages": []}',
    "no model": b'{"metadata": {"session_id": "a1b2c3d4e5"}, "messages": []}',
    "messages of another kind": b'{"metadata": {"session_id": "a1b2c3d4e5", "model": "m"}, "messages": ["hi"]}',
    "too deep": b"[" * 100_000,
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
@pytest.mark.usefixtures("locked_directory")
def test_damaged_file_is_set_aside_and_the_list_works(
    manager: SessionManager, sessions_dir: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    put(sessions_dir, SPECIFIED, "0000000000")
    path = put(sessions_dir, content)
    assert [entry["session_id"] for entry in manager.list_sessions()] == ["0000000000"]
    manager.list_sessions()
    assert not path.exists()
    (aside,) = sessions_dir.glob(f"{ID}.json.corrupt-*")
    assert aside.read_bytes() == content
    assert len(storage_warnings(caplog)) == 1


@pytest.mark.usefixtures("locked_directory")
def test_damaged_files_never_replace_one_another(
    manager: SessionManager, sessions_dir: Path
) -> None:
    for number in range(3):
        put(sessions_dir, f"damage {number}")
        with pytest.raises(Exception, match="not found"):
            manager.load_session(ID)
    found = {path.read_text() for path in sessions_dir.glob(f"{ID}.json.corrupt-*")}
    assert found == {"damage 0", "damage 1", "damage 2"}


@pytest.mark.parametrize(
    "change",
    [
        lambda manager: manager.append_messages(ID, [user("hi")]),
        lambda manager: manager.delete_session(ID),
    ],
    ids=["append", "delete"],
)
def test_change_of_a_damaged_session_is_not_found(
    manager: SessionManager, sessions_dir: Path, change: Callable[[SessionManager], object]
) -> None:
    put(sessions_dir, "{")
    with pytest.raises(SessionNotFound):
        change(manager)
    (aside,) = sessions_dir.glob("*.corrupt-*")
    assert aside.read_text() == "{"


def test_damaged_session_is_replaced(
    locked_directory: SessionDirectory, manager: SessionManager, sessions_dir: Path
) -> None:
    put(sessions_dir, "{")
    session = new_session()
    session.metadata.session_id = ID
    assert locked_directory.put(session) == manager.load_session(ID)
    (aside,) = sessions_dir.glob("*.corrupt-*")
    assert aside.read_text() == "{"


def test_minimal_session_file_loads_the_same_every_time(
    manager: SessionManager, sessions_dir: Path
) -> None:
    put(
        sessions_dir,
        {
            "metadata": {"session_id": ID, "model": "m", "created_at": "2024-01-01"},
            "messages": [{"role": "user"}],
        },
    )
    first: ChatSession = manager.load_session(ID)
    assert first.messages[0]["content"] == ""
    assert first == manager.load_session(ID)


def test_invalid_tool_calls_are_removed(manager: SessionManager, sessions_dir: Path) -> None:
    call = {"id": "c1", "function": {"index": 0, "name": "add", "arguments": {}}}
    wrong = [
        5,
        {"id": "c2"},
        {"id": "c3", "function": {}},
        {"id": "c4", "function": {"name": "add", "arguments": "{}"}},
    ]
    messages = [
        {"role": "user"},
        {"role": "assistant", "tool_calls": [*wrong, call]},
        {"role": "assistant", "tool_calls": [5]},
    ]
    put(sessions_dir, {"metadata": {"session_id": ID, "model": "m"}, "messages": messages})
    found = [
        message for message in manager.load_session(ID).messages if message["role"] == "assistant"
    ]
    assert [message["tool_calls"] for message in found] == [[call], []]


def test_invalid_fields_of_a_result_are_removed(
    manager: SessionManager, sessions_dir: Path
) -> None:
    result = {"role": "tool", "content": "3", "arguments": "{}", "result": 3, "execution_time": "1"}
    put(sessions_dir, {"metadata": {"session_id": ID, "model": "m"}, "messages": [result]})
    (found,) = manager.load_session(ID).messages
    assert found["content"] == "3"
    assert not {"arguments", "result", "execution_time"} & found.keys()


def test_execution_time_may_be_an_integer(manager: SessionManager, sessions_dir: Path) -> None:
    result = {"role": "tool", "content": "3", "execution_time": 2}
    put(sessions_dir, {"metadata": {"session_id": ID, "model": "m"}, "messages": [result]})
    (found,) = manager.load_session(ID).messages
    assert dict(found)["execution_time"] == 2
