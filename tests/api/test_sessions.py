"""Sessions: created, listed, changed, edited, deleted, and stored across a restart."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import StubServer
from tests.support.api import Api, error_of
from tests.support.cases import cases
from tests.support.server import RunningServer

pytestmark = pytest.mark.two_servers

FIELDS = {
    "tags",
    "pinned",
    "archived",
    "temporary",
    "expires_at",
    "session_id",
    "model",
    "created_at",
    "updated_at",
    "message_count",
    "title",
    "preview",
    "summary",
    "summary_model",
    "format_version",
    "tool_settings",
    "agent_settings",
    "ollama_host",
    "context_window_config",
    "options",
    "keep_alive",
    "think",
    "format",
}


@pytest.fixture
def session_id(api: Api) -> str:
    """An empty session."""
    return str(api.create_session("mochi")["session_id"])


def test_new_session_has_every_field_and_its_defaults(api: Api) -> None:
    created = api.create_session("mochi")
    assert created.pop("warnings") == []
    assert set(created) == FIELDS
    assert created["model"] == "mochi"
    assert created["message_count"] == 0
    assert created["preview"] == ""
    assert created["tool_settings"] == {
        "tools": [],
        "tool_group": None,
        "execution_policy": "always_confirm",
    }
    assert created["agent_settings"] == {"enabled_agents": [], "selection_metadata": None}
    assert created["created_at"] == created["updated_at"]
    assert api.session(created["session_id"]) == created | {"messages": [], "versions": {}}


def test_create_example_of_specification_works(api: Api) -> None:
    settings = {
        "tools": ["add_numbers", "get_current_time"],
        "tool_group": None,
        "execution_policy": "always_confirm",
    }
    created = api.create_session(
        "mochi",
        system_prompt="You are a helpful assistant.",
        system_prompt_source_file="helpful.md",
        tool_settings=settings,
        agent_settings={"enabled_agents": ["coder"]},
    )
    assert created["tool_settings"] == settings
    assert created["agent_settings"] == {"enabled_agents": ["coder"], "selection_metadata": None}
    assert created["message_count"] == 1
    (system,) = api.messages(created["session_id"])
    assert (system["role"], system["content"], system["source_file"]) == (
        "system",
        "You are a helpful assistant.",
        "helpful.md",
    )


def test_prompt_file_without_prompt_text_is_loaded(api: Api) -> None:
    api.ok(api.http.post("/system-prompts", json={"filename": "pirate.md", "content": "Arr."}), 201)
    session_id = api.create_session("mochi", system_prompt_source_file="pirate.md")["session_id"]
    (system,) = api.messages(session_id)
    assert (system["content"], system["source_file"]) == ("Arr.", "pirate.md")


def test_blank_prompt_file_is_422(api: Api, server: RunningServer) -> None:
    api.ok(api.http.post("/system-prompts", json={"filename": "blank.md", "content": "x"}), 201)
    file = Path(server.settings.data_dir) / "system_prompts/blank.md"
    file.write_text("\n")
    session_id = api.create_session("mochi")["session_id"]
    response = api.http.put(
        f"/sessions/{session_id}/system-prompt", json={"source_file": "blank.md"}
    )
    assert error_of(response) == (422, "VALIDATION_ERROR")
    body = {"model": "mochi", "system_prompt_source_file": "blank.md"}
    assert error_of(api.http.post("/sessions", json=body)) == (422, "VALIDATION_ERROR")
    file.unlink()


def test_blank_prompt_text_loads_the_file(api: Api) -> None:
    api.ok(
        api.http.post("/system-prompts", json={"filename": "captain.md", "content": "Arr."}), 201
    )
    for blank in ("", " \n"):
        session = api.create_session(
            "mochi", system_prompt=blank, system_prompt_source_file="captain.md"
        )
        path = f"/sessions/{session['session_id']}/system-prompt"
        api.ok(api.http.put(path, json={"content": blank, "source_file": "captain.md"}))
        (system,) = api.messages(session["session_id"])
        assert (system["content"], system["source_file"]) == ("Arr.", "captain.md")
        assert error_of(api.http.put(path, json={"content": blank})) == (422, "VALIDATION_ERROR")


def test_empty_file_name_is_no_file(api: Api) -> None:
    session_id = api.create_session(
        "mochi", system_prompt="Be kind.", system_prompt_source_file=""
    )["session_id"]
    assert api.messages(session_id)[0]["source_file"] is None
    path = f"/sessions/{session_id}/system-prompt"
    api.ok(api.http.put(path, json={"content": "Be brief.", "source_file": ""}))
    assert api.messages(session_id)[0]["source_file"] is None
    assert error_of(api.http.put(path, json={"source_file": ""})) == (422, "VALIDATION_ERROR")


def test_missing_prompt_file_is_404(api: Api) -> None:
    def count() -> str:
        return str(api.http.get("/sessions", params={"limit": 1}).headers["x-total-count"])

    before = count()
    body = {"model": "mochi", "system_prompt_source_file": "none.md"}
    assert error_of(api.http.post("/sessions", json=body)) == (404, "PROMPT_NOT_FOUND")
    assert count() == before


@cases("model", ["nobody", "mochi-embed", "mochi:8b"])
def test_unknown_and_embedding_models_are_404(api: Api, session_id: str, model: str) -> None:
    assert error_of(api.http.post("/sessions", json={"model": model})) == (404, "MODEL_NOT_FOUND")
    assert error_of(api.http.patch(f"/sessions/{session_id}", json={"model": model})) == (
        404,
        "MODEL_NOT_FOUND",
    )


@cases(
    "body",
    [
        {},
        {"model": None},
        {"model": 5},
        {"model": ""},
        {"model": "mochi", "system_prompt": 5},
        {"model": "mochi", "tool_settings": {"tools": "all"}},
        {"model": "mochi", "tool_settings": {"execution_policy": "sometimes"}},
        {"model": "mochi", "agent_settings": []},
        {"model": "mochi", "options": {"num_ctx": 1}},
        {"model": "mochi", "options": []},
        {"model": "mochi", "options": {"seed": 2**70}},
        {"model": "mochi", "think": "hard"},
        {"model": "mochi", "format": "xml"},
        {"model": "mochi", "keep_alive": "soon"},
        {"model": "mochi", "keep_alive": "\u0665m"},
        {"model": "mochi", "keep_alive": "1h.5.m"},
        {"model": "mochi", "keep_alive": True},
        {"model": "mochi", "agent_settings": {"selection_metadata": {"a": 2**70}}},
        [],
        "mochi",
    ],
)
def test_wrong_bodies_are_422(api: Api, body: object) -> None:
    assert error_of(api.http.post("/sessions", json=body)) == (422, "VALIDATION_ERROR")


@cases("keep_alive", ["2562047h47m", "-2562047h", -1, -1e300, 9e9, "0"])
def test_longest_durations_are_accepted(api: Api, keep_alive: str | float) -> None:
    session_id = api.create_session("mochi", keep_alive=keep_alive)["session_id"]
    assert api.send_message(session_id, "Hello!")["state"] == "completed"


@cases("window", ["8192", True, 8192.5, 0, [8192]])
def test_window_must_be_a_whole_number(api: Api, session_id: str, window: object) -> None:
    path = f"/sessions/{session_id}"
    response = api.http.patch(path, json={"context_window": {"current_window": window}})
    assert error_of(response) == (422, "VALIDATION_ERROR")
    status = api.ok(api.http.get(f"{path}/status"))["context_window"]
    assert (status["current_window"], status["manual_override"]) == (8192, False)


def test_window_may_be_a_float_without_fraction(api: Api) -> None:
    path = f"/sessions/{api.create_session('mochi')['session_id']}"
    api.ok(api.http.patch(path, json={"context_window": {"current_window": 8192.0}}))
    assert api.ok(api.http.get(f"{path}/status"))["context_window"]["current_window"] == 8192


def test_list_is_ordered_by_last_change_with_previews(private_api: Api) -> None:
    first = private_api.create_session("mochi", system_prompt="Be brief.")["session_id"]
    second = private_api.create_session("mochi-chat")["session_id"]
    private_api.send_message(first, "x" * 300)

    listed = private_api.ok(private_api.http.get("/sessions"))["sessions"]

    assert [entry["session_id"] for entry in listed] == [first, second]
    assert set(listed[0]) == FIELDS
    assert listed[0]["preview"] == "x" * 250 + "..."
    assert listed[0]["message_count"] == 3
    assert listed[1]["preview"] == ""


def test_patch_keeps_absent_fields_and_clears_null_fields(api: Api) -> None:
    session_id = api.create_session(
        "mochi",
        title="Old",
        options={"seed": 1},
        tool_settings={"tools": ["a"], "execution_policy": "never_confirm"},
    )["session_id"]

    patched = api.ok(
        api.http.patch(
            f"/sessions/{session_id}", json={"title": None, "tool_settings": {"tool_group": "g"}}
        )
    )

    assert patched["title"] is None
    assert patched["options"] == {"seed": 1}
    assert patched["tool_settings"] == {
        "tools": [],
        "tool_group": "g",
        "execution_policy": "always_confirm",
    }
    assert patched["updated_at"] > patched["created_at"]
    cleared = api.ok(
        api.http.patch(f"/sessions/{session_id}", json={"tool_settings": None, "options": None})
    )
    assert cleared["tool_settings"] == {
        "tools": [],
        "tool_group": None,
        "execution_policy": "always_confirm",
    }
    assert cleared["options"] is None
    del cleared["warnings"]
    assert api.session(session_id) == cleared | {"messages": [], "versions": {}}


def test_model_cannot_be_cleared(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    assert error_of(api.http.patch(f"/sessions/{session_id}", json={"model": None})) == (
        422,
        "VALIDATION_ERROR",
    )


def test_switched_model_gets_its_own_window(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    patched = api.ok(api.http.patch(f"/sessions/{session_id}", json={"model": "mochi-chat"}))
    assert patched["model"] == "mochi-chat"
    assert patched["context_window_config"]["current_window"] == 7372
    assert patched["context_window_config"]["last_adjustment"] == "model_change"


def test_window_changes_of_a_client_are_recorded(private_api: Api) -> None:
    path = f"/sessions/{private_api.create_session('mochi')['session_id']}"
    for window in ({"current_window": 4000}, None):
        config = private_api.ok(private_api.http.patch(path, json={"context_window": window}))[
            "context_window_config"
        ]
    assert (config["current_window"], config["last_adjustment"]) == (8192, "initial_setup")
    assert [entry["window"] for entry in config["adjustment_history"]] == [4000, 8192]


def test_manual_window_returns_with_its_model(private_api: Api) -> None:
    path, configs, statuses = (
        f"/sessions/{private_api.create_session('mochi')['session_id']}",
        [],
        [],
    )
    for body in (
        {"context_window": {"current_window": 4000}},
        {"model": "mochi-chat"},
        {"model": "mochi"},
    ):
        configs.append(
            private_api.ok(private_api.http.patch(path, json=body))["context_window_config"]
        )
        statuses.append(private_api.ok(private_api.http.get(f"{path}/status"))["context_window"])
    settings = [(config["current_window"], config["manual_override"]) for config in configs]
    assert settings == [
        (status["current_window"], status["manual_override"]) for status in statuses
    ]
    assert settings == [(4000, True), (7372, False), (4000, True)]
    assert [config["last_adjustment"] for config in configs] == [
        "manual_override",
        "model_change",
        "manual_override",
    ]


def test_empty_patch_changes_nothing(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    before = api.session(session_id)
    api.ok(api.http.patch(f"/sessions/{session_id}", json={}))
    assert api.session(session_id) == before


def test_messages_come_with_the_session_id(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    api.send_message(session_id, "Hello!")
    body = api.ok(api.http.get(f"/sessions/{session_id}/messages"))
    assert body == {"session_id": session_id, "messages": api.messages(session_id)}


def test_only_user_messages_can_be_edited(api: Api) -> None:
    session_id = api.create_session("mochi", system_prompt="Be brief.")["session_id"]
    api.send_message(session_id, "Hello!")
    before = api.messages(session_id)
    for index in (0, 2, 3, -1, 99, 10**30):
        response = api.http.put(f"/sessions/{session_id}/messages/{index}", json={"content": "x"})
        assert error_of(response) == (400, "INVALID_MESSAGE_INDEX"), index
    assert api.messages(session_id) == before


@cases(("index", "content"), [("x", "y"), ("0", ""), ("0", "  \n"), ("0", None), ("0", 5)])
def test_wrong_edits_are_422(api: Api, session_id: str, index: str, content: object) -> None:
    response = api.http.put(f"/sessions/{session_id}/messages/{index}", json={"content": content})
    assert error_of(response) == (422, "VALIDATION_ERROR")


def test_system_prompt_can_be_changed_during_session(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    api.send_message(session_id, "Hello!")
    path = f"/sessions/{session_id}/system-prompt"
    api.ok(
        api.http.post("/system-prompts", json={"filename": "a.txt", "content": "From a file."}), 201
    )

    set_ = api.ok(api.http.put(path, json={"content": "Be brief."}))
    assert (set_["messages"][0]["role"], set_["messages"][0]["content"]) == ("system", "Be brief.")
    assert set_["message_count"] == len(set_["messages"]) == 3
    replaced = api.ok(api.http.put(path, json={"source_file": "a.txt"}))
    assert [m["content"] for m in replaced["messages"]][:2] == ["From a file.", "Hello!"]
    assert replaced["messages"][0]["source_file"] == "a.txt"

    assert api.http.delete(path).status_code == 204
    assert [m["role"] for m in api.messages(session_id)] == ["user", "assistant"]
    assert error_of(api.http.delete(path)) == (404, "PROMPT_NOT_FOUND")
    assert error_of(api.http.put(path, json={})) == (422, "VALIDATION_ERROR")
    assert error_of(api.http.put(path, json={"source_file": "b.txt"})) == (404, "PROMPT_NOT_FOUND")


def test_deleted_session_is_404(api: Api, server: RunningServer) -> None:
    session_id = api.create_session("mochi")["session_id"]
    assert api.http.delete(f"/sessions/{session_id}").status_code == 204
    assert error_of(api.http.delete(f"/sessions/{session_id}")) == (404, "SESSION_NOT_FOUND")
    assert list(server.settings.resolved_sessions_dir.glob(f"*{session_id}*")) == []


ROUTES: list[tuple[str, str, dict[str, Any] | None]] = [
    ("GET", "/sessions/{}", None),
    ("PATCH", "/sessions/{}", {}),
    ("DELETE", "/sessions/{}", None),
    ("GET", "/sessions/{}/messages", None),
    ("PUT", "/sessions/{}/messages/0", {"content": "x"}),
    ("PUT", "/sessions/{}/system-prompt", {"content": "x"}),
    ("DELETE", "/sessions/{}/system-prompt", None),
    ("GET", "/sessions/{}/status", None),
    ("POST", "/chat/{}", {"message": "x"}),
    ("POST", "/chat/{}/stream", {"message": "x"}),
    ("POST", "/chat/{}/stop", None),
    ("GET", "/chat/{}/run", None),
]


@pytest.mark.parametrize(
    ("routes", "session_ids"),
    [
        (ROUTES, ["0123456789"]),
        (ROUTES[:2], ["ABCDEF0123", "x", "..%2f..%2fetc", "%00", ".index", "a" * 5000]),
    ],
    ids=["all routes", "all IDs"],
)
def test_unknown_session_ids_are_404(
    api: Api, routes: list[tuple[str, str, dict[str, Any] | None]], session_ids: list[str]
) -> None:
    for (method, path, body), session_id in product(routes, session_ids):
        response = api.http.request(method, path.format(session_id), json=body)
        known = {(404, "SESSION_NOT_FOUND"), (404, "NOT_FOUND")}
        assert error_of(response) in known, (method, path, session_id)


def test_sessions_survive_a_restart(tmp_path: Path, stub: StubServer) -> None:
    with RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        session_id = api.create_session("mochi", title="Kept")["session_id"]
        api.send_message(session_id, "Hello!")
        before = api.session(session_id)
    with RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        assert api.session(session_id) == before
        assert api.ok(api.http.get("/sessions"))["sessions"][0]["preview"] == "Hello!"
        api.send_message(session_id, "And?")
        assert len(api.messages(session_id)) == 4
