"""Sessions that people manage: found, paged, titled, forked, exported, imported."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from mochi_server.sessions import disk
from mochi_stub import StubServer
from tests.support.api import Api, error_of
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.tools import write_tools

ADD = '''
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    __all__ = ["add"]
'''
TOOL_ROUND = instruct(calls("add", a=1, b=2), words(3))


def listed(api: Api, **params: Any) -> list[str]:
    return [entry["session_id"] for entry in api.ok(api.http.get("/sessions", params=params))["sessions"]]


def talked(api: Api, *messages: str, **fields: Any) -> str:
    """A session in which this was said; its id."""
    session_id = str(api.create_session("mochi", **fields)["session_id"])
    for message in messages:
        api.send_message(session_id, message)
    return session_id


def files_of(data_dir: Path) -> dict[str, bytes]:
    """Every session file there is."""
    return {file.name: file.read_bytes() for file in (data_dir / "chat_sessions").glob("*.json")}


def bare(session: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in session.items() if name != "session_id"}


def test_the_list_is_searched_and_paged(api: Api) -> None:
    ids = [talked(api, f"Is apple pie number {number} good?") for number in range(3)][::-1]
    other = talked(api, "Pears?")
    assert listed(api) == [other, *ids]
    assert listed(api, q="APPLE pie") == ids
    assert listed(api, q=" \t") == [other, *ids]
    assert listed(api, q='"apple') == []
    response = api.http.get("/sessions", params={"q": "apple", "limit": 1, "offset": 1})
    (entry,) = api.ok(response)["sessions"]
    assert (entry["session_id"], response.headers["x-total-count"]) == (ids[1], "3")
    assert listed(api, limit=2, offset=3) == ids[2:]
    assert listed(api, offset=2**31 - 1) == []
    assert entry | {"messages": api.messages(ids[1])} == api.session(ids[1])


@pytest.mark.parametrize(
    "params",
    [
        {"limit": 0},
        {"limit": -1},
        {"limit": "x"},
        {"limit": ""},
        {"limit": 10**30},
        {"offset": -1},
        {"offset": "1.5"},
        {"offset": 10**30},
        {"q": "x" * 10_000},
    ],
)
def test_wrong_pages_and_endless_searches_are_422(api: Api, params: dict[str, Any]) -> None:
    assert error_of(api.http.get("/sessions", params=params)) == (422, "VALIDATION_ERROR")


def test_a_title_set_by_hand_stays_and_null_returns_to_the_sessions_own(api: Api) -> None:
    session_id = talked(api, "What is\nthe capital of France?")
    path = f"/sessions/{session_id}"
    assert api.session(session_id)["title"] == "What is the capital of France?"
    assert api.ok(api.http.patch(path, json={"title": "  Paris "}))["title"] == "Paris"
    summary = api.ok(api.http.post(f"{path}/summarize"))["summary"]
    assert api.session(session_id)["title"] == "Paris"
    title = api.ok(api.http.patch(path, json={"title": None}))["title"]
    assert summary.startswith(title.removesuffix("..."))


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("x" * 80, "x" * 80),
        ("x" * 81, "x" * 77 + "..."),
        ("ab " * 40, "ab " * 25 + "ab..."),
        ("ab " * 24 + "a " + "b" * 40, "ab " * 24 + "a..."),
    ],
)
def test_a_title_is_eighty_characters_at_most_dots_and_all(api: Api, said: str, title: str) -> None:
    assert api.session(talked(api, said))["title"] == title


@pytest.mark.parametrize("title", ["", "  ", "\u3000", "x" * 501, "a\nb", "a\0", "\u2028", 5, ["x"]])
def test_titles_that_are_none_are_422(api: Api, title: object) -> None:
    session_id = talked(api)
    assert error_of(api.http.patch(f"/sessions/{session_id}", json={"title": title})) == (422, "VALIDATION_ERROR")
    assert error_of(api.http.post("/sessions", json={"model": "mochi", "title": title})) == (422, "VALIDATION_ERROR")
    assert api.session(session_id)["title"] is None


@pytest.mark.parametrize("by_id", [False, True])
def test_a_fork_goes_on_from_a_message_and_leaves_its_origin_untouched(api: Api, tmp_path: Path, by_id: bool) -> None:
    settings = {"tool_settings": {"tools": ["add"]}, "options": {"temperature": 0.5}, "title": "Mine"}
    session_id = talked(api, "One?", "Two?", system_prompt="Be brief.", **settings)
    origin, before = api.session(session_id), files_of(tmp_path)
    where = {"message_id": origin["messages"][2]["message_id"]} if by_id else {"message_index": 2}

    fork = api.ok(api.http.post(f"/sessions/{session_id}/fork", json=where), 201)

    assert fork["session_id"] != session_id
    assert fork["messages"] == origin["messages"][:3]
    assert fork["created_at"] > origin["created_at"]
    for name in ("model", "tool_settings", "options", "title", "context_window_config"):
        assert fork[name] == origin[name]
    assert api.session(fork["session_id"]) == fork
    api.send_message(fork["session_id"], "Three?")
    assert files_of(tmp_path).items() >= before.items()
    assert listed(api) == [fork["session_id"], session_id]


def test_a_fork_of_everything_keeps_the_summary_and_one_of_a_part_does_not(api: Api) -> None:
    session_id = talked(api, "One?", "Two?")
    api.ok(api.http.post(f"/sessions/{session_id}/summarize"))
    origin = api.session(session_id)
    whole = api.ok(api.http.post(f"/sessions/{session_id}/fork"), 201)
    assert (whole["messages"], whole["summary"]) == (origin["messages"], origin["summary"])
    assert api.ok(api.http.post(f"/sessions/{session_id}/fork", json={"message_index": 1}), 201)["summary"] is None


@pytest.mark.one_process("it is about files")
@pytest.mark.parametrize(
    "where", [{"message_index": -1}, {"message_index": 2}, {"message_index": 10**9}, {"message_id": "none"}]
)
def test_a_fork_from_no_message_is_400(api: Api, tmp_path: Path, where: dict[str, Any]) -> None:
    session_id = talked(api, "One?")
    response = api.http.post(f"/sessions/{session_id}/fork", json=where)
    assert error_of(response) == (400, "INVALID_MESSAGE_INDEX")
    assert list(files_of(tmp_path)) == [f"{session_id}.json"]


@pytest.mark.parametrize(
    "body",
    [
        {"message_index": "0"},
        {"message_index": True},
        {"message_index": 0, "message_id": "x"},
        [],
    ],
)
def test_a_fork_that_names_no_message_is_422(api: Api, body: object) -> None:
    session_id = talked(api, "One?")
    assert error_of(api.http.post(f"/sessions/{session_id}/fork", json=body)) == (422, "VALIDATION_ERROR")


def test_a_fork_inside_a_round_of_tool_calls_is_refused_and_says_where_it_ends(
    tmp_path: Path, stub: StubServer
) -> None:
    write_tools(tmp_path, ADD)
    two_calls = instruct(calls("add", "add", a=1, b=2), words(3))
    with RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        session_id = talked(api, two_calls, tool_settings={"tools": ["add"], "execution_policy": "never_confirm"})
        for index in (1, 2):
            response = api.http.post(f"/sessions/{session_id}/fork", json={"message_index": index})
            assert error_of(response) == (400, "INVALID_MESSAGE_INDEX")
            assert "it ends with message 3" in response.json()["error"]["message"]
        fork = api.ok(api.http.post(f"/sessions/{session_id}/fork", json={"message_index": 3}), 201)
        assert [message["role"] for message in fork["messages"]] == ["user", "assistant", "tool", "tool"]
        assert api.send_message(fork["session_id"], "And?")["message"]["content"]


def test_a_running_session_is_forked_as_far_as_it_is_whole(tmp_path: Path, stub: StubServer) -> None:
    write_tools(tmp_path, ADD)
    with RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        session_id = talked(api, "One?", tool_settings={"tools": ["add"], "execution_policy": "always_confirm"})
        with api.open_stream(session_id, TOOL_ROUND) as events:
            assert any(event.type == "tool_call_confirmation_required" for event in events)
            fork = api.ok(api.http.post(f"/sessions/{session_id}/fork"), 201)
            assert [message["role"] for message in fork["messages"]] == ["user", "assistant", "user"]
            assert set(listed(api, q="One?")) == {fork["session_id"], session_id}
        assert api.send_message(fork["session_id"])["message"]["content"]


@pytest.mark.one_process("it is about files")
def test_an_export_imported_again_is_an_equal_session(tmp_path: Path, stub: StubServer) -> None:
    write_tools(tmp_path, ADD)
    with RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        settings = {"tools": ["add"], "execution_policy": "never_confirm"}
        session_id = talked(api, "One?", TOOL_ROUND, system_prompt="Be brief.", tool_settings=settings, title="Mine")
        api.ok(api.http.post(f"/sessions/{session_id}/summarize"))
        file = tmp_path / "chat_sessions" / f"{session_id}.json"
        stored = orjson.loads(file.read_bytes())
        stored["messages"][0]["images"] = ["abc"]
        stored |= {"of_others": {"kept": True}}
        stored["metadata"]["of_others"] = 1
        file.write_bytes(orjson.dumps(stored))

        response = api.http.get(f"/sessions/{session_id}/export")
        assert response.headers["content-type"] == "application/json"
        assert f'filename="{session_id}.json"' in response.headers["content-disposition"]
        assert orjson.loads(response.content) == stored
        for times in (1, 2):
            (imported,) = api.ok(_import(api, response.content), 201)["sessions"]
            assert imported["session_id"] != session_id
            assert bare(api.session(imported["session_id"])) == bare(api.session(session_id))
            again = api.ok(api.http.get(f"/sessions/{imported['session_id']}/export"))
            assert again["metadata"].pop("session_id") == imported["session_id"]
            assert again["metadata"] == bare(stored["metadata"])
            assert again["messages"] == stored["messages"]
            assert again["of_others"] == {"kept": True}
            assert len(listed(api)) == 1 + times


def test_markdown_is_to_be_read(tmp_path: Path, stub: StubServer) -> None:
    write_tools(tmp_path, ADD)
    with RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        settings = {"tools": ["add"], "execution_policy": "never_confirm"}
        session_id = talked(api, "Hello!", TOOL_ROUND, system_prompt="Be brief.", tool_settings=settings, title="Mine")
        response = api.http.get(f"/sessions/{session_id}/export", params={"format": "markdown"})
        assert response.headers["content-type"] == "text/markdown; charset=utf-8"
        text = response.text
        assert text.startswith(f"# Mine\n\n- Session: {session_id}\n- Model: mochi\n- Created: ")
        for part in (
            "## System\n\nBe brief.",
            "## User\n\nHello!",
            "## Assistant (mochi)",
            "Calls `add`:\n\n```json\n{",
        ):
            assert part in text
        assert "## Tool (add)\n\n```\n3\n```" in text
        assert error_of(api.http.get(f"/sessions/{session_id}/export?format=pdf")) == (422, "VALIDATION_ERROR")


def _import(api: Api, content: bytes) -> Any:
    return api.http.post("/sessions/import", content=content, headers={"Content-Type": "application/json"})


def open_webui_chat(**changes: Any) -> dict[str, Any]:
    """A chat as Open WebUI exports it: the first answer was given again, and thought about."""
    thought = (
        '<details type="reasoning" done="true" duration="2">\n<summary>Thought for 2 seconds</summary>\n'
        "&gt; Is 1 &lt; 2?\n&gt; Yes.\n</details>\n"
    )
    messages: dict[str, Any] = {
        "q": {"parentId": None, "childrenIds": ["a1", "a2"], "role": "user", "content": "Hi?", "timestamp": 1700000000},
        "a1": {"parentId": "q", "childrenIds": [], "role": "assistant", "content": "No.", "timestamp": 1700000001},
        "a2": {
            "parentId": "q",
            "childrenIds": ["q2"],
            "role": "assistant",
            "content": f"{thought}Hi.",
            "model": "llama3:8b",
        },
        "q2": {"parentId": "a2", "childrenIds": [], "role": "user", "content": "And?", "files": []},
    }
    for identifier, message in messages.items():
        message["id"] = identifier
    chat = {
        "id": "",
        "title": "Greetings",
        "models": ["gemma:2b"],
        "params": {"system": "Be kind."},
        "history": {"messages": messages, "currentId": "q2"},
        "messages": [messages["q"], messages["a2"], messages["q2"]],
        "tags": [],
        "timestamp": 1700000000000,
        "files": [],
    }
    times = {"created_at": 1700000000, "updated_at": 1700000100}
    return {
        "id": "1f",
        "user_id": "u",
        "title": "Greetings",
        "chat": chat | changes,
        **times,
        "archived": False,
        "meta": {},
    }


def test_options_of_a_file_that_would_load_the_model_anew_are_not_sent(api: Api, stub: StubServer) -> None:
    options = {"num_gpu": 0, "num_ctx": 999_999, "top_k": 7}
    file = {"metadata": {"model": "mochi", "options": options}, "messages": []}
    (imported,) = api.ok(_import(api, orjson.dumps(file)), 201)["sessions"]
    api.send_message(imported["session_id"], "Hello!")
    sent = [exchange.body for exchange in stub.exchanges() if exchange.path == "/api/chat"][-1]
    assert sent is not None
    assert (sent["options"]["top_k"], sent["options"]["num_ctx"]) == (7, 8192)
    assert "num_gpu" not in sent["options"]


@pytest.mark.parametrize("approved", [5, "add", {"add": True}, [["add"]]], ids=str)
def test_approvals_of_a_file_that_are_none_leave_the_safest_settings(api: Api, approved: object) -> None:
    settings = {"tools": ["add"], "execution_policy": "never_confirm", "approved_tools": approved}
    file = {"metadata": {"model": "mochi", "tool_settings": settings}, "messages": []}
    (imported,) = api.ok(_import(api, orjson.dumps(file)), 201)["sessions"]
    assert imported["tool_settings"] == {"tools": [], "tool_group": None, "execution_policy": "always_confirm"}
    assert api.send_message(imported["session_id"], "Hello!")["message"]["content"]
    assert error_of(api.http.post("/sessions", json={"model": "mochi", "tool_settings": settings}))[0] == 422


def test_chats_of_open_webui_become_sessions_with_the_branch_that_was_shown(api: Api) -> None:
    other = open_webui_chat(models=[""], params={}, history={"messages": {}, "currentId": None})
    first, second = api.ok(_import(api, orjson.dumps([open_webui_chat(), other])), 201)["sessions"]
    session = api.session(first["session_id"])
    assert (session["title"], session["model"], session["message_count"]) == ("Greetings", "llama3:8b", 4)
    assert session["created_at"] == "2023-11-14T22:13:20.000000+00:00"
    assert session["updated_at"] == "2023-11-14T22:15:00.000000+00:00"
    assert [(m["role"], m["content"], m.get("thinking")) for m in session["messages"]] == [
        ("system", "Be kind.", None),
        ("user", "Hi?", None),
        ("assistant", "Hi.", "Is 1 < 2?\nYes."),
        ("user", "And?", None),
    ]
    assert (second["model"], second["message_count"]) == ("unknown", 0)
    api.ok(api.http.patch(f"/sessions/{first['session_id']}", json={"model": "mochi"}))
    assert api.send_message(first["session_id"])["message"]["content"]


def older_than_trees(chat: dict[str, Any]) -> None:
    del chat["chat"]["history"]
    for message in chat["chat"]["messages"]:
        del message["id"], message["parentId"], message["childrenIds"]


def begun_in_the_background(chat: dict[str, Any]) -> None:
    """Open WebUI keeps what comes for a message that is not there, and is not shown, under its id."""
    chat["chat"]["history"]["messages"] |= {"s": {"statusHistory": [], "timestamp": 1800000000}, "n": None}


def answered_in_items(chat: dict[str, Any]) -> None:
    """Newer versions leave the content of an answer empty, or say it twice."""
    part = {"type": "output_text", "text": "Is 1 < 2?\nYes."}
    chat["chat"]["history"]["messages"]["a2"] |= {
        "content": "",
        "output": [
            {"type": "reasoning", "status": "completed", "summary": None, "content": [part]},
            {"type": "function_call", "name": "f", "arguments": "{}"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]},
            5,
        ],
    }


def without_a_frame(chat: dict[str, Any]) -> None:
    """The oldest exports have nothing beside the chat."""
    inner = chat.pop("chat")
    chat.clear()
    chat.update(inner)


CHANGES = [older_than_trees, begun_in_the_background, answered_in_items, without_a_frame]


@pytest.mark.parametrize("change", CHANGES, ids=["list", "background", "items", "bare"])
def test_chats_of_any_age_are_read(api: Api, change: Callable[[dict[str, Any]], None]) -> None:
    chat = open_webui_chat()
    change(chat)
    (imported,) = api.ok(_import(api, orjson.dumps([chat])), 201)["sessions"]
    session = api.session(imported["session_id"])
    assert (session["title"], session["model"]) == ("Greetings", "llama3:8b")
    assert session["created_at"] == "2023-11-14T22:13:20.000000+00:00"
    assert [message["content"] for message in session["messages"]] == ["Be kind.", "Hi?", "Hi.", "And?"]
    assert session["messages"][2]["thinking"] == "Is 1 < 2?\nYes."


@pytest.mark.parametrize(
    ("current", "parents", "texts"),
    [
        ("none", {}, ["Hi?", "No."]),
        (None, {}, ["Hi?", "No."]),
        ("q2", {"q": "q2"}, ["Hi?", "Hi.", "And?"]),
        ("q2", {"a2": "gone"}, ["Hi.", "And?"]),
    ],
    ids=["lost", "unsaid", "loop", "torn"],
)
def test_trees_that_are_odd_are_read_as_far_as_they_go(
    api: Api, current: str | None, parents: dict[str, str], texts: list[str]
) -> None:
    chat = open_webui_chat(params=None)
    chat["chat"]["history"]["currentId"] = current
    for name, parent in parents.items():
        chat["chat"]["history"]["messages"][name]["parentId"] = parent
    (imported,) = api.ok(_import(api, orjson.dumps(chat)), 201)["sessions"]
    assert [message["content"] for message in api.messages(imported["session_id"])] == texts


GOOD = {"metadata": {"model": "m"}, "messages": [{"role": "user", "content": "x"}]}
DEEP = orjson.dumps(GOOD)[:-1] + b',"x":' + b"[" * 600 + b"]" * 600 + b"}"
NO_FILES = {
    "empty": b"",
    "no JSON": b"PK\x03\x04",
    "cut short": orjson.dumps([GOOD, GOOD])[:-9],
    "no UTF-8": b'{"metadata": "\xff"}',
    "nothing": b"[]",
    "a number": b"1",
    "an object": b"{}",
    "no sessions": b'[1, {"a": 2}]',
    "no model": orjson.dumps({"metadata": {}, "messages": []}),
    "no messages": orjson.dumps({"metadata": {"model": "m"}}),
    "a role that is none": orjson.dumps({"metadata": {"model": "m"}, "messages": [{"role": "king", "content": ""}]}),
    "a call that is none": orjson.dumps(
        {"metadata": {"model": "m"}, "messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]}
    ),
    "another program's": orjson.dumps([{"title": "x", "mapping": {}, "create_time": 1}]),
    "no tree": orjson.dumps([{"chat": {"title": "x"}}]),
    "a list that is none": orjson.dumps([{"chat": {"messages": [5]}}]),
    "the second is wrong": orjson.dumps([GOOD, {"metadata": {"model": ""}, "messages": []}, GOOD]),
    "too deep": DEEP,
    "much too deep": b"[" * 100_000,
}


@pytest.mark.parametrize("content", NO_FILES.values(), ids=NO_FILES)
def test_files_that_cannot_be_imported_are_422_and_nothing_is_stored(api: Api, tmp_path: Path, content: bytes) -> None:
    response = _import(api, content)
    assert error_of(response) == (422, "VALIDATION_ERROR")
    assert len(response.json()["error"]["message"]) < 500
    assert files_of(tmp_path) == {}


def test_a_file_over_the_limit_is_413_and_one_that_is_not_declared_as_json_422(api: Api) -> None:
    limit = 33_554_432
    assert error_of(_import(api, b" " * (limit + 1))) == (413, "BODY_TOO_LARGE")
    assert error_of(api.http.post("/sessions/import", content=orjson.dumps(GOOD)))[0] == 422


@pytest.mark.one_process("it is about files")
def test_an_import_that_cannot_be_stored_whole_is_taken_back(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, written = disk.write_new, []

    def failing(path: Path, data: bytes, *, durably: bool) -> Any:
        written.append(path)
        if len(written) == 3:
            raise OSError(28, "No space left on device")
        return write(path, data, durably=durably)

    monkeypatch.setattr(disk, "write_new", failing)
    assert error_of(_import(api, orjson.dumps([GOOD] * 4))) == (500, "STORAGE_FAILED")
    assert len(written) == 3
    assert files_of(tmp_path) == {}
