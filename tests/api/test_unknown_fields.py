"""Requests with misspelt fields and parameters: rejected under `/api/v1`, and kept in imported
files.

`/v1` and the routes of the AI SDK and AG-UI ignore unknown fields.
"""

import json
from typing import Any

import httpx
import orjson
import pytest

from tests.support.api import Api, error_of
from tests.support.cases import cases
from tests.support.instructions import instruct, words
from tests.support.openapi import Route, document, routes
from tests.support.server import RunningServer

LENIENT = ("/import", "/ai-sdk", "/ag-ui")


def strict_routes() -> list[Route]:
    """Return the routes whose bodies cannot have unknown fields."""
    native = (
        route for route in routes() if route.schema is not None and route.path.startswith("/api/v1")
    )
    return [route for route in native if not route.path.endswith(LENIENT)]


def error_body(response: httpx.Response) -> dict[str, Any]:
    assert error_of(response) == (422, "VALIDATION_ERROR"), response.text
    error: dict[str, Any] = response.json()["error"]
    return error


@pytest.mark.parametrize("suffix", ["", "/stream"])
def test_misspelt_message_does_not_regenerate(api: Api, suffix: str) -> None:
    session_id = api.create_session("mochi")["session_id"]
    api.send_message(session_id, "Hello!")
    before = api.session(session_id)
    error = error_body(api.http.post(f"/chat/{session_id}{suffix}", json={"mesage": "hi"}))
    assert error["message"] == "mesage: unknown field. Did you mean `message`?"
    assert error["details"]["errors"][0]["loc"] == ["body", "mesage"]
    assert api.session(session_id) == before


@cases("body", [None, {}, {"message": None}], ids=str)
def test_absent_message_still_regenerates(api: Api, body: object) -> None:
    session_id = api.create_session("mochi")["session_id"]
    api.send_message(session_id, "Hello!")
    api.ok(api.http.post(f"/chat/{session_id}", json=body))
    assert [message["role"] for message in api.messages(session_id)] == ["user", "assistant"]


def test_every_request_body_rejects_unknown_fields(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    before = api.session(session_id)
    for route in strict_routes():
        path = route.path.removeprefix("/api/v1").format(
            session_id=session_id, message_index=0, filename="a.md", name="a"
        )
        error = error_body(
            api.http.request(route.method, path, json={**(route.body or {}), "zzz": 1})
        )
        assert error["message"].startswith("zzz: unknown field. Known fields: "), route
        assert api.session(session_id) == before, route


def test_openapi_document_allows_no_unknown_fields() -> None:
    schemas = document()["components"]["schemas"]
    for name in (
        "ChatRequest",
        "CompareRequest",
        "HistoryMessage",
        "SystemPromptUpdate",
        "ToolSettingsRequest",
    ):
        assert schemas[name]["additionalProperties"] is False
    for name in ("ToolSettings", "SessionFile", "CompletionRequest"):
        assert schemas[name].get("additionalProperties") is not False


def test_nearest_known_field_is_named(api: Api) -> None:
    for route in strict_routes():
        path = route.path.removeprefix("/api/v1").format(
            session_id="0123456789", message_index=0, filename="a.md", name="a"
        )
        assert route.schema
        name = next(iter(route.schema["properties"]))
        error = error_body(
            api.http.request(route.method, path, json={**(route.body or {}), f"{name}x": 1})
        )
        assert error["message"] == f"{name}x: unknown field. Did you mean `{name}`?", route


@cases(
    ("body", "message"),
    [
        (
            {"tool_settings": {"tols": []}},
            "tool_settings.tols: unknown field. Did you mean `tools`?",
        ),
        (
            {"agent_settings": {"enabled": []}},
            "agent_settings.enabled: unknown field. Did you mean `enabled_agents`?",
        ),
        (
            {"context_window": {"current_windw": 5}},
            "context_window.current_windw: unknown field. Did you mean `current_window`?",
        ),
        (
            {"options": {"temprature": 1}},
            "options.temprature: unknown option. Did you mean `temperature`?",
        ),
    ],
    ids=str,
)
def test_nested_objects_reject_unknown_fields(api: Api, body: dict[str, Any], message: str) -> None:
    session_id = api.create_session("mochi")["session_id"]
    before = api.session(session_id)
    assert error_body(api.http.patch(f"/sessions/{session_id}", json=body))["message"] == message
    assert api.session(session_id) == before


def test_messages_of_a_comparison_reject_unknown_fields(api: Api) -> None:
    history = [{"role": "user", "content": "Hi.", "contents": "Hi."}]
    body = {"modelIds": ["mochi"], "message": "Hello!", "chatHistory": history}
    error = error_body(api.http.post("/models/test", json=body))
    assert error["message"] == "chatHistory.0.contents: unknown field. Did you mean `content`?"


@cases("path", ["/sessions", "/models/test", "/chat/{session_id}", "/chat/{session_id}/stream"])
def test_unknown_options_are_rejected(api: Api, path: str) -> None:
    session_id = api.create_session("mochi")["session_id"]
    body: dict[str, Any] = {"options": {"temprature": 0.2}}
    if "chat" not in path:
        body |= (
            {"model": "mochi"}
            if path == "/sessions"
            else {"modelIds": ["mochi"], "message": "Hello!"}
        )
    error = error_body(api.http.post(path.format(session_id=session_id), json=body))
    assert error["message"] == "options.temprature: unknown option. Did you mean `temperature`?"
    assert error["details"]["errors"][0]["loc"] == ["body", "options", "temprature"]


def test_misspelt_required_field_is_reported_first(api: Api) -> None:
    error = error_body(api.http.post("/sessions", json={"modle": "mochi"}))
    assert error["message"] == "modle: unknown field. Did you mean `model`?"


def test_settings_of_a_session_can_be_sent_back(api: Api) -> None:
    settings = {"tools": ["add"], "execution_policy": "never_confirm", "approved_tools": ["add"]}
    session = api.create_session("mochi", tool_settings=settings)
    sent = {"tool_settings": session["tool_settings"], "agent_settings": session["agent_settings"]}
    changed = api.ok(api.http.patch(f"/sessions/{session['session_id']}", json=sent))
    assert changed["tool_settings"] == {**settings, "tool_group": None}
    assert (
        "approved_tools"
        not in api.create_session("mochi", tool_settings={"tools": ["add"]})["tool_settings"]
    )


def test_error_for_long_unknown_names_is_short(api: Api) -> None:
    body = {f"{number}{'x' * 10_000}": 1 for number in range(100)}
    response = api.http.post("/sessions", json={"model": "mochi", **body})
    assert "unknown field" in error_body(response)["message"]
    assert len(response.content) < 10_000


def test_lone_surrogate_in_a_name_is_422(api: Api) -> None:
    for body in (
        {"model": "mochi", "\ud800": 1},
        {"model": "mochi", "tool_settings": {"\ud800": 1}},
    ):
        headers = {"Content-Type": "application/json"}
        error_body(api.http.post("/sessions", content=json.dumps(body), headers=headers))


@cases(
    ("path", "message"),
    [
        ("/sessions?q=a&limt=1", "query.limt: unknown query parameter. Did you mean `limit`?"),
        (
            "/sessions/{session_id}?full=1",
            "query.full: unknown query parameter. Known query parameters: none.",
        ),
        (
            "/chat/{session_id}/stream?number=2",
            "query.number: unknown query parameter. Known query parameters: after.",
        ),
        (
            "/tools?group=math",
            "query.group: unknown query parameter. Known query parameters: none.",
        ),
    ],
    ids=str,
)
def test_unknown_query_parameters_are_rejected(api: Api, path: str, message: str) -> None:
    session_id = api.create_session("mochi")["session_id"]
    error = error_body(api.http.get(path.format(session_id=session_id)))
    assert error["message"] == message
    assert error["details"]["errors"][0]["loc"][0] == "query"


def test_unknown_query_parameter_does_not_regenerate(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    api.send_message(session_id, "Hello!")
    before = api.session(session_id)
    error_body(api.http.post(f"/chat/{session_id}?message=Hi"))
    assert api.session(session_id) == before


def test_health_checks_and_openai_routes_ignore_query_parameters(
    api: Api, server: RunningServer
) -> None:
    for url in (
        "/health/live?probe=1",
        f"{server.url}/v1/models?api-version=1",
        f"{server.url}/metrics?probe=1",
    ):
        api.http.get(url).raise_for_status()


def test_openai_routes_ignore_unknown_fields(api: Api, server: RunningServer) -> None:
    messages = [{"role": "user", "content": instruct(words(2)), "annotations": []}]
    body = {"model": "mochi", "messages": messages, "mesage": "hi", "verbosity": "low"}
    api.ok(api.http.post(f"{server.url}/v1/chat/completions", json=body))


def test_imported_files_keep_unknown_fields(api: Api) -> None:
    metadata = {
        "model": "mochi",
        "colour": "green",
        "options": {"mirostat": 1},
        "tool_settings": {"colour": "red"},
    }
    file = {
        "metadata": metadata,
        "messages": [{"role": "user", "content": "Hi.", "colour": "blue"}],
        "colour": "grey",
    }
    headers = {"Content-Type": "application/json"}
    (imported,) = api.ok(
        api.http.post("/sessions/import", content=orjson.dumps(file), headers=headers), 201
    )["sessions"]
    exported = api.ok(api.http.get(f"/sessions/{imported['session_id']}/export"))
    assert exported["metadata"]["colour"] == "green"
    assert exported["metadata"]["options"] == {"mirostat": 1}
    assert exported["metadata"]["tool_settings"]["colour"] == "red"
    assert exported["messages"][0]["colour"] == "blue"
