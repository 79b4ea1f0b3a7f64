"""Session management: search, paging, titles, forks, export and import."""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

from mochi_stub import StubServer
from tests.support.api import Api, error_of
from tests.support.cases import cases
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.stub import chats
from tests.support.tools import write_tools
from tests.support.waiting import until

pytestmark = pytest.mark.two_servers

ADD = '''
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    __all__ = ["add"]
'''
TOOL_ROUND = instruct(calls("add", a=1, b=2), words(3))


@pytest.fixture(scope="module")
def shared_stub() -> Iterator[StubServer]:
    with StubServer(speed=0) as stub:
        yield stub


@pytest.fixture(scope="module")
def shared_server(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    data_dir = tmp_path_factory.mktemp("managing")
    write_tools(data_dir, ADD)
    with RunningServer(data_dir, shared_stub.url, summarization_enabled=False) as server:
        yield server


@pytest.fixture
def session_id(api: Api) -> str:
    """An empty session."""
    return str(api.create_session("mochi")["session_id"])


def listed_sessions(api: Api, **params: Any) -> list[str]:
    return [
        entry["session_id"]
        for entry in api.ok(api.http.get("/sessions", params=params))["sessions"]
    ]


def session_with_messages(api: Api, *messages: str, **fields: Any) -> str:
    """Create a session, send these messages and return its id."""
    session_id = str(api.create_session("mochi", **fields)["session_id"])
    for message in messages:
        api.send_message(session_id, message)
    return session_id


def session_files(server: RunningServer) -> dict[str, bytes]:
    return {
        file.name: file.read_bytes()
        for file in server.settings.resolved_sessions_dir.glob("*.json")
    }


def test_list_is_searched_and_paged(private_api: Api) -> None:
    ids = [
        session_with_messages(private_api, f"Is apple pie number {number} good?")
        for number in range(3)
    ][::-1]
    other = session_with_messages(private_api, "Pears?")
    assert listed_sessions(private_api) == [other, *ids]
    assert listed_sessions(private_api, q="APPLE pie") == ids
    assert listed_sessions(private_api, q=" \t") == [other, *ids]
    assert listed_sessions(private_api, q='"apple') == []
    response = private_api.http.get("/sessions", params={"q": "apple", "limit": 1, "offset": 1})
    (entry,) = private_api.ok(response)["sessions"]
    assert (entry["session_id"], response.headers["x-total-count"]) == (ids[1], "3")
    assert listed_sessions(private_api, limit=2, offset=3) == ids[2:]
    assert listed_sessions(private_api, offset=2**31 - 1) == []
    added = {"messages": private_api.messages(ids[1]), "versions": {}}
    assert entry | added == private_api.session(ids[1])


@cases(
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
def test_invalid_pages_and_long_searches_are_422(api: Api, params: dict[str, Any]) -> None:
    assert error_of(api.http.get("/sessions", params=params)) == (422, "VALIDATION_ERROR")


def test_manual_title_stays_until_set_to_null(api: Api) -> None:
    session_id = session_with_messages(api, "What is\nthe capital of France?")
    path = f"/sessions/{session_id}"
    assert api.session(session_id)["title"] == "What is the capital of France?"
    assert api.ok(api.http.patch(path, json={"title": "  Paris "}))["title"] == "Paris"
    summary = api.ok(api.http.post(f"{path}/summarize"))["summary"]
    assert api.session(session_id)["title"] == "Paris"
    title = api.ok(api.http.patch(path, json={"title": None}))["title"]
    assert title.removesuffix("...") in summary


@cases(
    ("message", "title"),
    [
        ("x" * 80, "x" * 80),
        ("x" * 81, "x" * 77 + "..."),
        ("ab " * 40, "ab " * 25 + "ab..."),
        ("ab " * 24 + "a " + "b" * 40, "ab " * 24 + "a..."),
    ],
)
def test_title_has_at_most_80_characters(api: Api, message: str, title: str) -> None:
    assert api.session(session_with_messages(api, message))["title"] == title


def test_invalid_titles_are_422(api: Api) -> None:
    session_id = session_with_messages(api)
    for title in ("", "  ", "\u3000", "x" * 501, "a\nb", "a\0", "\u2028", 5, ["x"]):
        changed = api.http.patch(f"/sessions/{session_id}", json={"title": title})
        created = api.http.post("/sessions", json={"model": "mochi", "title": title})
        assert error_of(changed) == error_of(created) == (422, "VALIDATION_ERROR"), title
    assert api.session(session_id)["title"] is None


def test_fork_continues_from_message_and_keeps_origin(api: Api, server: RunningServer) -> None:
    settings = {
        "tool_settings": {"tools": ["add"]},
        "options": {"temperature": 0.5},
        "title": "Mine",
    }
    session_id = session_with_messages(api, "One?", "Two?", system_prompt="Be brief.", **settings)
    origin, before = api.session(session_id), session_files(server)
    for where in ({"message_id": origin["messages"][2]["message_id"]}, {"message_index": 2}):
        fork = api.ok(api.http.post(f"/sessions/{session_id}/fork", json=where), 201)

        assert fork["session_id"] != session_id
        assert fork["messages"] == origin["messages"][:3]
        assert fork["created_at"] > origin["created_at"]
        for name in ("model", "tool_settings", "options", "title", "context_window_config"):
            assert fork[name] == origin[name]
        assert api.session(fork["session_id"]) == fork
    api.send_message(fork["session_id"], "Three?")
    assert session_files(server).items() >= before.items()
    assert listed_sessions(api, limit=3)[::2] == [fork["session_id"], session_id]


def test_only_full_fork_keeps_summary(api: Api) -> None:
    session_id = session_with_messages(api, "One?", "Two?")
    api.ok(api.http.post(f"/sessions/{session_id}/summarize"))
    origin = api.session(session_id)
    whole = api.ok(api.http.post(f"/sessions/{session_id}/fork"), 201)
    assert (whole["messages"], whole["summary"]) == (origin["messages"], origin["summary"])
    assert (
        api.ok(api.http.post(f"/sessions/{session_id}/fork", json={"message_index": 1}), 201)[
            "summary"
        ]
        is None
    )


def test_fork_inside_tool_calls_is_refused(api: Api) -> None:
    two_calls = instruct(calls("add", "add", a=1, b=2), words(3))
    session_id = session_with_messages(
        api, two_calls, tool_settings={"tools": ["add"], "execution_policy": "never_confirm"}
    )
    for index in (1, 2):
        response = api.http.post(f"/sessions/{session_id}/fork", json={"message_index": index})
        assert error_of(response) == (400, "INVALID_MESSAGE_INDEX")
        assert "use message 3" in response.json()["error"]["message"]
    fork = api.ok(api.http.post(f"/sessions/{session_id}/fork", json={"message_index": 3}), 201)
    assert [message["role"] for message in fork["messages"]] == [
        "user",
        "assistant",
        "tool",
        "tool",
    ]
    assert api.send_message(fork["session_id"], "And?")["message"]["content"]


def test_running_session_is_forked_up_to_last_user_message(api: Api) -> None:
    session_id = session_with_messages(
        api, "Forked?", tool_settings={"tools": ["add"], "execution_policy": "always_confirm"}
    )
    with api.open_stream(session_id, TOOL_ROUND) as events:
        assert any(event.type == "tool_call_confirmation_required" for event in events)
        fork = api.ok(api.http.post(f"/sessions/{session_id}/fork"), 201)
        assert [message["role"] for message in fork["messages"]] == ["user", "assistant", "user"]
        assert set(listed_sessions(api, q="Forked?")) == {fork["session_id"], session_id}
    until(lambda: api.ok(api.http.get(f"/chat/{session_id}/run"))["state"] != "running")
    assert api.send_message(fork["session_id"])["message"]["content"]


def test_markdown_export_is_readable(api: Api) -> None:
    settings = {"tools": ["add"], "execution_policy": "never_confirm"}
    session_id = session_with_messages(
        api, "Hello!", TOOL_ROUND, system_prompt="Be brief.", tool_settings=settings, title="Mine"
    )
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
    assert error_of(api.http.get(f"/sessions/{session_id}/export?format=pdf")) == (
        422,
        "VALIDATION_ERROR",
    )


def _import(api: Api, content: bytes) -> Any:
    return api.http.post(
        "/sessions/import", content=content, headers={"Content-Type": "application/json"}
    )


def error_message(response: Any) -> str:
    assert error_of(response) == (422, "VALIDATION_ERROR")
    return str(response.json()["error"]["message"])


def open_webui_chat(**changes: Any) -> dict[str, Any]:
    """Return a chat as Open WebUI exports it, with a regenerated first answer and thinking."""
    thought = (
        '<details type="reasoning" done="true" duration="2">\n<summary>Thought for 2 seconds</summary>\n'
        "&gt; Is 1 &lt; 2?\n&gt; Yes: &amp;lt;\n</details>\n"
    )
    messages: dict[str, Any] = {
        "q": {
            "parentId": None,
            "childrenIds": ["a1", "a2"],
            "role": "user",
            "content": "Hi?",
            "timestamp": 1700000000,
        },
        "a1": {
            "parentId": "q",
            "childrenIds": [],
            "role": "assistant",
            "content": "No.",
            "timestamp": 1700000001,
        },
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


def test_imported_options_that_reload_model_are_not_sent(api: Api, stub: StubServer) -> None:
    options = {"num_gpu": 0, "num_ctx": 999_999, "top_k": 7}
    file = {"metadata": {"model": "mochi", "options": options}, "messages": []}
    (imported,) = api.ok(_import(api, orjson.dumps(file)), 201)["sessions"]
    api.send_message(imported["session_id"], "Hello!")
    sent = chats(stub)[-1].body
    assert sent is not None
    assert (sent["options"]["top_k"], sent["options"]["num_ctx"]) == (7, 8192)
    assert "num_gpu" not in sent["options"]


@cases(
    "settings",
    [
        {"keep_alive": "soon"},
        {"keep_alive": [1]},
        {"think": "deeply"},
        {"think": 5},
        {"format": "yaml"},
        {"format": ["json"]},
        {"options": {"temperature": "hot"}},
        {"options": {"stop": "end"}},
        {"options": [7]},
        {"title": "a" * 501},
        {"title": "two\nlines"},
        {"tags": [*map(str, range(51))]},
        {"tags": ["home", "a" * 101]},
        {"tags": ["home", " "]},
        {"tags": ["two\nlines"]},
        {"model": "  "},
        {"summary_model": "  "},
        {"summary_model": "a" * 501},
        {"pinned": "yes"},
        {"archived": 1},
        {"tool_settings": ["add"]},
        {"tool_settings": {"tools": ["add"] * 1001}},
        {"tool_settings": {"tool_group": 5}},
        {"tool_settings": {"execution_policy": "sometimes"}},
        {"agent_settings": "researcher"},
        {"agent_settings": {"enabled_agents": "researcher"}},
        {"agent_settings": {"selection_metadata": [1]}},
    ],
    ids=lambda settings: str(settings)[:60],
)
def test_import_rejects_settings_that_patch_rejects(
    api: Api, session_id: str, settings: dict[str, Any]
) -> None:
    rejected = error_message(api.http.patch(f"/sessions/{session_id}", json=settings))
    file = {"metadata": {"model": "mochi", **settings}, "messages": []}
    message = error_message(_import(api, orjson.dumps([GOOD, file])))
    (name,) = settings
    assert re.match(rf"Item 1 of the file cannot be imported: metadata\.{name}(\.\w+)*: ", message)
    assert rejected.startswith(
        message.removeprefix("Item 1 of the file cannot be imported: metadata.")
    )


def test_import_accepts_answer_without_text(api: Api) -> None:
    call = {"id": "call_1", "function": {"name": "add", "arguments": {"a": 1, "b": 2}}}
    messages = [
        {"role": "user", "content": "Add 1 and 2."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "3", "tool_call_id": "call_1"},
    ]
    file = {"metadata": {"model": "mochi"}, "messages": messages}
    (imported,) = api.ok(_import(api, orjson.dumps(file)), 201)["sessions"]
    assert [message["content"] for message in api.messages(imported["session_id"])] == [
        "Add 1 and 2.",
        "",
        "3",
    ]
    assert api.send_message(imported["session_id"], "Thanks!")["state"] == "completed"


def test_import_accepts_calls_without_id(api: Api) -> None:
    """Exports of sessions whose files were written by hand have such calls."""
    call = {"function": {"name": "add", "arguments": {"a": 1, "b": 2}}}
    messages = [
        {"role": "user", "content": "Add 1 and 2."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "3", "tool_name": "add"},
        {"role": "assistant", "content": "It is 3."},
    ]
    turn = {"run_ids": ["r1"], "state": "completed", "first": 1}
    file = {"metadata": {"model": "mochi", "turn": turn}, "messages": messages}
    (imported,) = api.ok(_import(api, orjson.dumps(file)), 201)["sessions"]
    session_id = imported["session_id"]
    assert api.ok(api.http.get(f"/chat/{session_id}/run"))["state"] == "completed"
    exported = api.http.get(f"/sessions/{session_id}/export").content
    (again,) = api.ok(_import(api, exported), 201)["sessions"]
    assert api.send_message(again["session_id"], "Thanks!")["state"] == "completed"
    assert api.session(again["session_id"])["message_count"] == 6


def test_import_strips_names_as_patch_does(api: Api, session_id: str) -> None:
    settings = {
        "model": " mochi ",
        "summary_model": " mochi ",
        "title": "  Bread ",
        "tags": [" baking ", "baking"],
    }
    changed = api.ok(api.http.patch(f"/sessions/{session_id}", json=settings))
    file = {"metadata": settings, "messages": []}
    (imported,) = api.ok(_import(api, orjson.dumps(file)), 201)["sessions"]
    stripped = {
        "model": "mochi",
        "summary_model": "mochi",
        "title": "Bread",
        "tags": ["baking"],
    }
    for session in (changed, imported):
        assert {name: session[name] for name in stripped} == stripped


def test_import_accepts_null_settings(api: Api) -> None:
    nulls = dict.fromkeys(("options", "keep_alive", "think", "format", "summary_model"))
    defaults = {
        "tool_settings": {"tools": None, "tool_group": None, "execution_policy": None},
        "agent_settings": {"enabled_agents": None},
        "tags": None,
        "pinned": None,
        "archived": None,
    }
    file = {"metadata": {"model": "mochi", **nulls, **defaults}, "messages": []}
    (imported,) = api.ok(_import(api, orjson.dumps(file)), 201)["sessions"]
    assert nulls.items() <= imported.items()
    new = api.create_session("mochi")
    assert {name: imported[name] for name in defaults} == {name: new[name] for name in defaults}


@cases("approved", [5, "add", {"add": True}, [["add"]]], ids=str)
def test_invalid_imported_approvals_reset_tool_settings(api: Api, approved: object) -> None:
    settings = {"tools": ["add"], "execution_policy": "never_confirm", "approved_tools": approved}
    file = {"metadata": {"model": "mochi", "tool_settings": settings}, "messages": []}
    (imported,) = api.ok(_import(api, orjson.dumps(file)), 201)["sessions"]
    assert imported["tool_settings"] == {
        "tools": [],
        "tool_group": None,
        "execution_policy": "always_confirm",
    }
    assert api.send_message(imported["session_id"], "Hello!")["message"]["content"]
    assert (
        error_of(api.http.post("/sessions", json={"model": "mochi", "tool_settings": settings}))[0]
        == 422
    )


@pytest.mark.parametrize(
    "content",
    [
        '<details type="reasoning">' * 8000,
        '<details type="reasoning">' + " " * 60_000 + "</details>",
    ],
    ids=["blocks without end", "spaces"],
)
def test_open_webui_import_of_odd_html_takes_no_time(api: Api, content: str) -> None:
    message = {"role": "assistant", "content": content}
    chat = open_webui_chat(history={"messages": {"a": message}, "currentId": "a"})
    began = time.process_time()
    api.ok(_import(api, orjson.dumps(chat)), 201)
    assert time.process_time() - began < 2


def test_open_webui_import_keeps_shown_branch(api: Api) -> None:
    other = open_webui_chat(models=[""], params={}, history={"messages": {}, "currentId": None})
    first, second = api.ok(_import(api, orjson.dumps([open_webui_chat(), other])), 201)["sessions"]
    session = api.session(first["session_id"])
    assert (session["title"], session["model"], session["message_count"]) == (
        "Greetings",
        "mochi:latest",
        4,
    )
    assert session["messages"][2]["model"] == "llama3:8b"
    assert session["created_at"] == "2023-11-14T22:13:20.000000+00:00"
    assert session["updated_at"] == "2023-11-14T22:15:00.000000+00:00"
    assert [(m["role"], m["content"], m.get("thinking")) for m in session["messages"]] == [
        ("system", "Be kind.", None),
        ("user", "Hi?", None),
        ("assistant", "Hi.", "Is 1 < 2?\nYes: &lt;"),
        ("user", "And?", None),
    ]
    assert (second["model"], second["message_count"]) == ("mochi:latest", 0)
    assert api.send_message(first["session_id"])["message"]["content"]


def with_background_messages(chat: dict[str, Any]) -> None:
    """Open WebUI stores updates of a message that does not exist and is not shown under its id."""
    chat["chat"]["history"]["messages"] |= {
        "s": {"statusHistory": [], "timestamp": 1800000000},
        "n": None,
    }


def with_output_items(chat: dict[str, Any]) -> None:
    """Newer versions leave the content of an answer empty, or store it twice."""
    part = {"type": "output_text", "text": "Is 1 < 2?\nYes: &lt;"}
    chat["chat"]["history"]["messages"]["a2"] |= {
        "content": "",
        "output": [
            {"type": "reasoning", "status": "completed", "summary": None, "content": [part]},
            {"type": "function_call", "name": "f", "arguments": "{}"},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Hi."}],
            },
            5,
        ],
    }


CHANGES = [with_background_messages, with_output_items]


@cases("change", CHANGES, ids=["background", "items"])
def test_open_webui_import_reads_other_forms(
    api: Api, change: Callable[[dict[str, Any]], None]
) -> None:
    chat = open_webui_chat()
    change(chat)
    (imported,) = api.ok(_import(api, orjson.dumps([chat])), 201)["sessions"]
    session = api.session(imported["session_id"])
    assert session["title"] == "Greetings"
    assert session["messages"][2]["model"] == "llama3:8b"
    assert session["created_at"] == "2023-11-14T22:13:20.000000+00:00"
    assert [message["content"] for message in session["messages"]] == [
        "Be kind.",
        "Hi?",
        "Hi.",
        "And?",
    ]
    assert session["messages"][2]["thinking"] == "Is 1 < 2?\nYes: &lt;"


@cases(
    ("current", "changes", "texts"),
    [
        ("none", {}, ["Hi?", "No."]),
        (None, {}, ["Hi?", "No."]),
        ("q2", {"q": {"parentId": "q2"}}, ["Hi?", "Hi.", "And?"]),
        ("q2", {"a2": {"parentId": "gone"}}, ["Hi.", "And?"]),
        ("q2", {"a2": {"role": None}}, ["Hi?", "And?"]),
    ],
    ids=["lost", "unsaid", "loop", "torn", "without role"],
)
def test_open_webui_import_reads_broken_trees(
    api: Api, current: str | None, changes: dict[str, dict[str, Any]], texts: list[str]
) -> None:
    chat = open_webui_chat(params=None)
    chat["chat"]["history"]["currentId"] = current
    for name, change in changes.items():
        chat["chat"]["history"]["messages"][name] |= change
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
    "a role that is none": orjson.dumps(
        {"metadata": {"model": "m"}, "messages": [{"role": "king", "content": ""}]}
    ),
    "a call that is none": orjson.dumps(
        {
            "metadata": {"model": "m"},
            "messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}],
        }
    ),
    "another program's": orjson.dumps([{"title": "x", "mapping": {}, "create_time": 1}]),
    "no tree": orjson.dumps([{"chat": {"title": "x"}}]),
    "a list that is none": orjson.dumps([{"chat": {"messages": [5]}}]),
    "the second is wrong": orjson.dumps([GOOD, {"metadata": {"model": ""}, "messages": []}, GOOD]),
    "too deep": DEEP,
    "much too deep": b"[" * 100_000,
}


def test_invalid_import_is_422_and_stores_nothing(api: Api, server: RunningServer) -> None:
    before, listed_before = set(session_files(server)), listed_sessions(api)
    for name, content in NO_FILES.items():
        response = _import(api, content)
        assert error_of(response) == (422, "VALIDATION_ERROR"), name
        assert len(response.json()["error"]["message"]) < 500, name
    assert set(session_files(server)) == before
    assert listed_sessions(api) == listed_before


def test_import_checks_content_type(api: Api) -> None:
    assert error_of(api.http.post("/sessions/import", content=orjson.dumps(GOOD)))[0] == 422
