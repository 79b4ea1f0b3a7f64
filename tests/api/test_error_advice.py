"""Error messages that say what to do: models, keys, hosts, limits and session files."""

from pathlib import Path
from typing import Any

import httpx

from mochi_stub import StubServer
from tests.support.api import Api
from tests.support.cases import cases
from tests.support.server import RunningServer

NEWER = {"metadata": {"model": "mochi", "format_version": "2.0"}, "messages": []}


def message_of(api: Api, method: str, path: str, status: int, **request: object) -> str:
    error = api.ok(api.http.request(method, path, **request), status)["error"]  # type: ignore[arg-type]
    return str(error["message"])


def test_unknown_model_names_the_nearest_and_others(api: Api) -> None:
    message = message_of(api, "POST", "/sessions", 404, json={"model": "moch"})
    assert message.startswith(
        "There is no chat model 'moch'. Did you mean 'mochi'? Choose one of the chat models: "
        "mochi, "
    )
    assert message.endswith("To install 'moch', run `ollama pull moch`.")
    session = api.create_session("mochi")["session_id"]
    assert message_of(api, "PATCH", f"/sessions/{session}", 404, json={"model": "moch"}) == message


def test_test_mode_never_advises_to_install_a_model(
    private_stub: StubServer, tmp_path: Path
) -> None:
    with RunningServer(tmp_path, private_stub.url, env="test") as server:
        message = message_of(server.client, "POST", "/sessions", 404, json={"model": "qwen3"})
    assert "There is no chat model 'qwen3'. " in message
    assert "ollama pull" not in message


def test_embedding_model_cannot_chat(api: Api) -> None:
    message = message_of(api, "POST", "/sessions", 404, json={"model": "embed"})
    assert message.startswith(
        "Model 'embed' is an embedding model and cannot chat. Choose one of the chat models"
    )
    assert "ollama pull" not in message


def test_unknown_agent_session_names_the_list_of_agent_sessions(api: Api) -> None:
    message = message_of(api, "GET", "/agents/chats/0123456789", 404)
    assert (
        message
        == "Session with ID '0123456789' not found. GET /api/v1/agents/chats lists the sessions "
        "of agents."
    )


@cases(
    ("method", "path", "advice"),
    [
        ("GET", "/sessions", "Use /api/v1/sessions."),
        ("POST", "/v1/sessions", "Use /api/v1/sessions."),
        ("GET", "/sessions/0123456789/messages", "Use /api/v1/sessions/0123456789/messages."),
        ("POST", "/api/chat", "Use /api/v1/chat/{session_id} or /v1/chat/completions."),
        ("POST", "/chat/completions", "Use /v1/chat/completions."),
        ("POST", "/v1/v1/chat/completions", "Use /v1/chat/completions."),
        ("POST", "/api/v1/chat/completions", "Use /v1/chat/completions."),
        ("POST", "/v1/chat/completion", "Use /v1/chat/completions."),
        ("GET", "/api/tags", "Use /api/v1/models or /v1/models."),
        ("GET", "/models", "Use /api/v1/models or /v1/models."),
        ("GET", "/nothing", "/openapi.json lists all routes."),
        (
            "POST",
            "/api/v1/chat//stream",
            "The session ID between two slashes is empty. Send the ID of a session.",
        ),
        ("GET", "/api/v1/sessions//nothing", "/openapi.json lists all routes."),
    ],
)
def test_unknown_path_names_the_route_that_it_may_mean(
    server: RunningServer, method: str, path: str, advice: str
) -> None:
    message = message_of(server.api(base_url=server.url), method, path, 404)
    assert message == f"There is no route {path!r}. {advice}"


@cases("path", ["/sessions", "/sessions/", "/models/", "/health/live/", "/tools/", "/agents/"])
def test_slash_at_the_end_of_a_path_is_ignored(api: Api, path: str) -> None:
    assert api.http.get(path).status_code == 200


def test_slash_at_the_end_of_a_posted_path_is_ignored(api: Api, server: RunningServer) -> None:
    session = api.ok(api.http.post("/sessions/", json={"model": "mochi"}), 201)["session_id"]
    stream = api.http.post(f"/chat/{session}/stream/", json={"message": "Hello!"})
    assert stream.text.endswith("\n\n")
    body = {"model": "mochi", "messages": [{"role": "user", "content": "Hi."}]}
    api.ok(api.http.post(f"{server.url}/v1/chat/completions/", json=body))
    assert api.http.get(f"{server.url}/docs/").status_code == 200
    assert api.http.get(f"{server.url}/docs/assets/").status_code == 404


def test_wrong_method_names_the_methods(api: Api) -> None:
    message = message_of(api, "POST", "/sessions/0123456789", 405)
    assert message == (
        "'/api/v1/sessions/0123456789' does not support POST. It supports DELETE, GET, HEAD, PATCH."
    )


@cases(
    ("field", "hint"),
    [
        *(
            (name, "Did you mean `message`?")
            for name in ("content", "input", "prompt", "query", "text", "messages")
        ),
        *(
            (name, "Set it with `PUT /api/v1/sessions/{session_id}/system-prompt`.")
            for name in ("system", "system_prompt")
        ),
        ("stream", "Omit it. `POST /api/v1/chat/{session_id}/stream` streams the answer."),
        (
            "tools",
            "It is a setting of the session: `PATCH /api/v1/sessions/{session_id}` with "
            '`{"tool_settings": {"tools": [...]}}`.',
        ),
        (
            "model",
            "It is a setting of the session: `PATCH /api/v1/sessions/{session_id}` with `model`.",
        ),
        ("regenerate", "Omit it. A request without `message` answers the last user message again."),
        (
            "message_id",
            "To change an earlier message, use "
            "`PUT /api/v1/sessions/{session_id}/messages/{message_index}`.",
        ),
    ],
)
def test_field_of_another_api_has_a_hint(api: Api, field: str, hint: str) -> None:
    session = api.create_session("mochi")["session_id"]
    message = message_of(api, "POST", f"/chat/{session}", 422, json={field: True})
    assert message == f"{field}: unknown field. {hint}"


@cases(
    ("field", "hint"),
    [
        *((name, "Did you mean `content`?") for name in ("message", "prompt", "text")),
        ("attachments", "An edited message keeps its files. Other files need a new message."),
    ],
)
def test_field_of_an_edit_has_a_hint(api: Api, field: str, hint: str) -> None:
    session = api.create_session("mochi")["session_id"]
    path = f"/sessions/{session}/messages/0"
    assert message_of(api, "PUT", path, 422, json={field: "Hello!"}) == (
        f"{field}: unknown field. {hint}"
    )


def test_tools_of_a_new_session_name_the_tool_settings(api: Api) -> None:
    body = {"model": "mochi", "tools": ["add"]}
    assert message_of(api, "POST", "/sessions", 422, json=body) == (
        'tools: unknown field. Send it in `tool_settings`: `{"tool_settings": {"tools": [...]}}`.'
    )


@cases(
    "path", ["cat.png", "./cat", "/home/ann/cat.jpg", "C:\\cat.gif", "https://example.com/cat.png"]
)
def test_path_in_place_of_an_image_is_named(api: Api, path: str) -> None:
    session = api.create_session("echo")["session_id"]
    body = {"message": "Describe it.", "images": [path]}
    assert message_of(api, "POST", f"/chat/{session}", 422, json=body) == (
        f"images.0: not an image, but a path or an address: {path!r}. Send the content of the file as "
        "base64"
    )


def test_unknown_prompt_and_confirmation_name_their_lists(api: Api) -> None:
    assert message_of(api, "GET", "/system-prompts/none.md", 404) == (
        "System prompt 'none.md' not found. GET /api/v1/system-prompts lists the prompt files."
    )
    session = api.create_session("mochi")["session_id"]
    decision = {"confirmation_id": "none", "approved": True}
    assert message_of(api, "POST", f"/chat/{session}/confirm-tool", 404, json=decision) == (
        "This session has no confirmation 'none'. "
        "GET /api/v1/chat/{session_id}/confirmations lists the calls that wait for approval."
    )


def test_wrong_key_differs_from_missing_key(private_stub: StubServer, tmp_path: Path) -> None:
    with RunningServer(tmp_path, private_stub.url, api_keys=("right",)) as server:
        messages = {
            name: message_of(
                server.client,
                "GET",
                "/sessions",
                401,
                headers={"Authorization": value} if value else {},
            )
            for name, value in {"none": "", "wrong": "Bearer wrong", "basic": "Basic right"}.items()
        }
    assert messages["wrong"].startswith(
        "The API key is wrong. Send one of the keys in MOCHI_API_KEYS"
    )
    assert messages["none"] == messages["basic"] != messages["wrong"]


def test_wrong_key_names_the_setting_of_the_keys_file(
    private_stub: StubServer, tmp_path: Path
) -> None:
    (tmp_path / "keys.yaml").write_text("[]")
    headers = {"Authorization": "Bearer wrong"}
    messages = []
    for keys in ((), ("right",)):
        with RunningServer(
            tmp_path, private_stub.url, api_keys=keys, api_keys_file="keys.yaml"
        ) as server:
            messages.append(message_of(server.client, "GET", "/sessions", 401, headers=headers))
    file = "in the file of MOCHI_API_KEYS_FILE, to which `mochi-server keys add NAME` adds keys."
    assert messages == [
        f"The API key is wrong. Send one of the keys {file}",
        f"The API key is wrong. Send one of the keys in MOCHI_API_KEYS or {file}",
    ]


@cases(
    ("setting", "name"),
    [
        ({}, "MOCHI_OLLAMA_HOST"),
        ({"ollama_hosts": ("http://127.0.0.1:9",)}, "MOCHI_OLLAMA_HOSTS"),
        ({"ollama_hosts": ("a=http://127.0.0.1:9", "b=http://127.0.0.1:7")}, "MOCHI_OLLAMA_HOSTS"),
    ],
)
def test_unreachable_host_names_its_setting(
    tmp_path: Path, setting: dict[str, Any], name: str
) -> None:
    with RunningServer(tmp_path, "http://127.0.0.1:9", **setting) as server:
        message = message_of(server.client, "POST", "/sessions", 502, json={"model": "mochi"})
    assert f"correct {name}." in message


@cases(
    ("headers", "scheme"),
    [
        ({}, "http"),
        ({"X-Forwarded-Proto": "https"}, "https"),
        ({"X-Forwarded-Proto": "https, http"}, "https"),
        ({"X-Forwarded-Proto": "http, https"}, "http"),
        ({"Forwarded": "proto=https"}, "https"),
        ({"Forwarded": 'for="[2001:db8::17]";Proto="HTTPS";by=203.0.113.43'}, "https"),
        ({"Forwarded": "for=192.0.2.60; proto=https, for=10.0.0.1;proto=http"}, "https"),
        ({"Forwarded": "for=192.0.2.60;proto=http, for=10.0.0.1;proto=https"}, "http"),
        ({"Forwarded": "for=192.0.2.60;x-proto=https"}, "http"),
    ],
    ids=str,
)
def test_foreign_host_names_the_setting_and_its_value(
    api: Api, headers: dict[str, str], scheme: str
) -> None:
    sent = {"Host": "chat.example:8000", **headers}
    message = message_of(api, "GET", "/sessions", 403, headers=sent)
    assert message.endswith(
        f"add the origin `{scheme}://chat.example:8000` to MOCHI_ALLOWED_ORIGINS."
    )


def test_import_of_a_later_version_is_refused(api: Api) -> None:
    message = message_of(api, "POST", "/sessions/import", 422, json=NEWER)
    assert message == (
        "Item 0 of the file has format version 2.0, and this server reads versions up to 1.4. "
        "Update mochi-server."
    )


def test_model_that_was_removed_after_the_session_was_created(
    private_stub: StubServer, tmp_path: Path
) -> None:
    with RunningServer(tmp_path, private_stub.url, env="test") as server:
        session = server.client.create_session("echo")["session_id"]
        httpx.request(
            "DELETE", f"{private_stub.url}/api/delete", json={"model": "echo"}
        ).raise_for_status()
        events = server.client.stream_message(session, "Hello")
        message = message_of(
            server.client, "POST", f"/chat/{session}", 404, json={"message": "Hello"}
        )
    assert message.startswith(
        "There is no chat model 'echo'. Choose one of the chat models: mochi, "
    )
    assert "ollama pull" not in message
    (told,) = [event.data["message"] for event in events if event.type == "error"]
    stored = " The message is stored: send the request without `message` to get the answer."
    assert told == message + stored


def test_session_file_of_a_later_version_is_refused(private_api: Api, tmp_path: Path) -> None:
    session = private_api.create_session("mochi")["session_id"]
    path = tmp_path / "chat_sessions" / f"{session}.json"
    path.write_text(path.read_text().replace('"format_version": "1.4"', '"format_version": "2.0"'))
    message = message_of(private_api, "GET", f"/sessions/{session}", 409)
    assert message == (
        f"The file of session '{session}' has format version 2.0, and this server reads versions "
        "up to 1.4. Update mochi-server."
    )
    assert (
        message_of(private_api, "POST", f"/chat/{session}", 409, json={"message": "Hello"})
        == message
    )
    assert private_api.ok(private_api.http.get("/sessions")) == {"sessions": []}
    assert private_api.http.delete(f"/sessions/{session}").status_code == 409
