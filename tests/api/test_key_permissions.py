"""Permissions of API keys: what a key may not use does not exist for it, on any route.

The operations come from the OpenAPI document, so a new route is attacked without new code here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mochi_server.chat.limits import RunLimits
from mochi_server.container import Components
from mochi_stub import StubServer
from tests.support.agents import delegate, nested, write_agent
from tests.support.api import Api, Event, error_of, read_events
from tests.support.cases import cases
from tests.support.instructions import calls, instruct, words
from tests.support.keys import headers, write_keys
from tests.support.server import RunningServer
from tests.support.tools import write_tools
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.support.openapi import Route

pytestmark = pytest.mark.two_servers

_TOOLS = '''
    def note(text: str) -> str:
        """Write a note."""
        return text

    def hidden_tool(text: str) -> str:
        """Do what a restricted key may not do."""
        return "hidden " + text

    __all__ = ["note", "hidden_tool"]
    __secret_group__ = ["hidden_tool"]
    __read_only__ = ["note"]
'''
_SESSIONS = re.compile("/(sessions|chats)")
HIDDEN = {"tool": "hidden_tool", "agent": "hidden_agent", "model": "echo"}
UNKNOWN = {"tool": "absent_tool", "agent": "absent_agent", "model": "absent"}
LITTLE = {"tools": "[note, look]", "agents": "[helper]", "models": "[mochi, mochi-em*]"}


@pytest.fixture(scope="module")
def shared_server(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server with keys that may use little, and `root`, which may use everything."""
    data_dir = tmp_path_factory.mktemp("permissions")
    write_tools(data_dir, _TOOLS)
    write_agent(data_dir)
    write_agent(data_dir, HIDDEN["agent"])
    keys = write_keys(
        data_dir / "keys.yaml",
        default={"models": "[mochi]", "agents": "[]"},
        few=LITTLE,
        strict={"policy": "confirm_destructive", "agents": "[helper]"},
        always={"policy": "always_confirm", "agents": "[helper]"},
        usual={},
        root={"scope": "all"},
        app={"scope": "all", **LITTLE},
    )
    settings = {"api_keys_file": str(keys), "summarization_enabled": False}
    with RunningServer(data_dir, shared_stub.url, **settings) as server:
        yield server


def as_key(server: RunningServer, name: str, **others: str) -> Api:
    return server.api(headers=headers(name, **others))


def attacks(route: Route, kind: str, name: str, session_id: str) -> Iterator[dict[str, Any]]:
    """Yield requests of a route that name a tool, an agent or a model wherever they can."""
    values = {"session_id": session_id, "message_index": "1", f"{kind}_name": name}
    path = re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], "1"), route.path)
    yield {"url": path, "json": route.example}
    if not isinstance(route.example, dict):
        return
    named = f"agent:{name}" if kind == "agent" else name
    fields: dict[str, Any] = {
        "model": named,
        "summary_model": named,
        "modelIds": [name],
        "tool_settings": {"tools": [name], "tool_group": "secret_group"},
        "agent_settings": {"enabled_agents": [name]},
    }
    for field, value in fields.items():
        if field in route.properties:
            yield {"url": path, "json": {**route.example, field: value}}
    if "X-Mochi-Tools" in route.headers:
        yield {"url": path, "json": route.example, "headers": {"X-Mochi-Tools": name}}


def seen(text: str, name: str, session_id: str) -> str:
    """Return a response without what differs between two equal requests."""
    text = text.replace(name, "NAME").replace(session_id, "ID")
    return re.sub(r"\b[0-9a-f]{8,}\b|\d+(\.\d+)?", "N", text)


@cases("kind", ["tool", "agent", "model"])
def test_what_a_key_may_not_use_is_unknown_on_every_route(server: RunningServer, kind: str) -> None:
    from tests.support.openapi import routes

    api = as_key(server, "app")
    compared = 0
    for route in routes():
        answers: list[list[tuple[int, str]]] = []
        for name in (HIDDEN[kind], UNKNOWN[kind]):
            session_id = api.create_session("mochi")["session_id"]
            answers.append([])
            for request in attacks(route, kind, name, session_id):
                is_named = name in json.dumps(request)
                request["url"] = str(api.http.base_url.join(request["url"]))
                response = api.http.request(route.method, **request)
                for secret in HIDDEN.values():
                    # Sessions contain the settings that earlier requests have sent.
                    is_sent = secret in json.dumps(request) or _SESSIONS.search(route.path)
                    assert is_sent or secret not in response.text, (route, request)
                if is_named:  # other responses may list sessions
                    told = seen(response.text, name, session_id)
                    answers[-1].append((response.status_code, told))
        assert answers[0] == answers[1], route
        compared += len(answers[0])
    assert compared > 5


def test_attack_would_succeed_for_a_key_that_may_use_everything(server: RunningServer) -> None:
    root = as_key(server, "root")
    for path in (f"/tools/{HIDDEN['tool']}", f"/agents/{HIDDEN['agent']}", "/models/echo"):
        root.ok(root.http.get(path))
    assert "secret_group" in root.http.get("/tools").text


def test_default_of_the_file_holds_only_for_scope_own(server: RunningServer) -> None:
    usual, root = as_key(server, "usual"), as_key(server, "root")
    assert [each["name"] for each in _models(usual)] == ["mochi:latest"]
    assert len(_models(root)) > 1
    assert usual.ok(usual.http.get("/agents")) == {"agents": {}}
    assert "hidden_tool" in usual.http.get("/tools").text


def test_allowed_model_may_have_its_full_name(server: RunningServer) -> None:
    usual = as_key(server, "usual")
    usual.ok(usual.http.get("/models/registry.ollama.ai/library/mochi:latest"))
    response = usual.http.get("/models/library/echo")
    assert error_of(response) == (404, "MODEL_NOT_FOUND")


def _models(api: Api) -> list[dict[str, Any]]:
    models: list[dict[str, Any]] = api.ok(api.http.get("/models"))["models"]
    return models


def test_stored_settings_give_no_more(server: RunningServer) -> None:
    """An import and a session that another key has changed name what the key may not use."""
    few, root = as_key(server, "few"), as_key(server, "root")
    tools = {"tools": ["hidden_tool"], "execution_policy": "never_confirm"}
    agents = {"enabled_agents": [HIDDEN["agent"], "helper"]}
    body = {
        "metadata": {"model": "mochi", "tool_settings": tools, "agent_settings": agents},
        "messages": [],
    }
    (imported,) = few.ok(few.http.post("/sessions/import", json=body), 201)["sessions"]
    changed = few.create_session("mochi")["session_id"]
    change = {"tool_settings": tools, "agent_settings": agents}
    root.ok(root.http.patch(f"/sessions/{changed}", json=change))
    forked = few.ok(few.http.post(f"/sessions/{changed}/fork"), 201)["session_id"]
    message = instruct(calls("hidden_tool", text="x"), words(3))
    for session_id in (imported["session_id"], changed, forked):
        for api in (few, root):  # the owner's key limits a turn of another key, too
            answer = api.send_message(session_id, message)
            (call,) = answer["tool_calls_executed"]
            assert "There is no tool named 'hidden_tool'" in call["error_message"]
        answer = few.send_message(session_id, instruct(delegate(agent=HIDDEN["agent"]), words(3)))
        assert "Available agents: helper." in json.dumps(few.messages(session_id))


def test_own_tools_of_an_agent_are_limited(server: RunningServer) -> None:
    few = as_key(server, "few")
    agent = few.ok(few.http.get("/agents/helper"))
    assert agent["tools"] == ["note", "look"]
    settings = {"execution_policy": "never_confirm"}
    session_id = few.create_session(
        "mochi", tool_settings=settings, agent_settings={"enabled_agents": ["helper"]}
    )["session_id"]
    few.send_message(session_id, nested(delegate(words(1), calls("much"), words(2)), words(3)))
    assert "x" * 3000 not in json.dumps(few.messages(session_id))  # what `much` returns


@cases("path", ["/sessions", "/sessions/{session_id}"])
def test_weaker_policy_is_refused(server: RunningServer, path: str) -> None:
    strict = as_key(server, "strict")
    session_id = strict.create_session("mochi")["session_id"]
    method = "PATCH" if "{" in path else "POST"
    body = {"tool_settings": {"tools": ["note"], "execution_policy": "never_confirm"}}
    created = body if method == "PATCH" else {"model": "mochi", **body}
    response = strict.http.request(method, path.format(session_id=session_id), json=created)
    assert error_of(response) == (422, "VALIDATION_ERROR")
    (problem,) = response.json()["error"]["details"]["errors"]
    assert problem["loc"] == ["body", "tool_settings", "execution_policy"]
    assert problem["msg"].endswith("use 'confirm_destructive' or a stricter policy")


def test_weaker_policy_in_a_header_is_refused(server: RunningServer) -> None:
    named = {"X-Mochi-Tools": "note", "X-Mochi-Tool-Policy": "never_confirm"}
    strict = as_key(server, "strict", **named)
    body = {"model": "mochi", "messages": [{"role": "user", "content": "Hello"}]}
    response = strict.http.post(f"{server.url}/v1/chat/completions", json=body)
    assert response.status_code == 400
    assert "X-Mochi-Tool-Policy" in response.text


def test_stored_policy_and_approvals_do_not_weaken_the_policy_of_the_key(
    server: RunningServer,
) -> None:
    always = as_key(server, "always")
    tools = {
        "tools": ["note"],
        "execution_policy": "never_confirm",
        "approved_tools": ["note"],
    }
    body = {"metadata": {"model": "mochi", "tool_settings": tools}, "messages": []}
    (imported,) = always.ok(always.http.post("/sessions/import", json=body), 201)["sessions"]
    session_id = imported["session_id"]
    message = instruct(calls("note", text="x"), words(3))
    for _ in range(2):  # the first approval is for the session, and the second call needs another
        with always.open_stream(session_id, message) as events:
            asked = next(e for e in events if e.type == "tool_call_confirmation_required")
            decision = {
                "confirmation_id": asked.data["confirmation_id"],
                "approved": True,
                "remember": "session",
            }
            always.ok(always.http.post(f"/chat/{session_id}/confirm-tool", json=decision))
            assert next(e for e in events if e.type == "tool_result").data["success"]
            assert [*events][-1].type == "done"


def test_status_shows_the_policy_and_tools_of_turns_of_the_caller(server: RunningServer) -> None:
    """The owner's key limits turns of another key, too."""
    root = as_key(server, "root")
    tools = {"tools": ["note", "hidden_tool"], "execution_policy": "confirm_destructive"}
    for owner, policy, missing in (
        ("always", "always_confirm", []),
        ("usual", "confirm_destructive", []),
        ("few", "confirm_destructive", ["hidden_tool"]),
    ):
        session_id = as_key(server, owner).create_session("mochi")["session_id"]
        patched = root.ok(root.http.patch(f"/sessions/{session_id}", json={"tool_settings": tools}))
        assert len(patched["warnings"]) == len(missing)
        for api in (as_key(server, owner), root):
            status = api.ok(api.http.get(f"/sessions/{session_id}/status"))
            assert (status["execution_policy"], status["missing_tools"]) == (policy, missing)


@pytest.mark.parametrize(("key", "is_called"), [("strict", True), ("always", False)])
def test_agent_as_a_model_follows_the_policy_of_the_key(
    server: RunningServer, shared_stub: StubServer, key: str, is_called: bool
) -> None:
    api = as_key(server, key)
    message = instruct(words(1), calls("look"), words(3))
    body = {"model": "agent:helper", "messages": [{"role": "user", "content": message}]}
    api.ok(api.http.post(f"{server.url}/v1/chat/completions", json=body))
    prompts = [each.body for each in shared_stub.exchanges() if each.path == "/api/chat"]
    assert ("This call was denied" not in json.dumps(prompts[-1])) == is_called


def test_parked_turn_continues_with_the_permissions_of_its_owner(
    private_stub: StubServer, tmp_path: Path
) -> None:
    """The key loses a tool while its turn waits, and another key approves the call."""
    write_tools(tmp_path, _TOOLS)
    keys = tmp_path / "keys.yaml"
    write_keys(keys, ann={}, root={"scope": "all"})
    settings = {"api_keys_file": str(keys), "park_seconds": 0}
    with RunningServer(tmp_path, private_stub.url, **settings) as server:
        ann, root = as_key(server, "ann"), as_key(server, "root")
        tools = {"tools": ["hidden_tool"], "execution_policy": "always_confirm"}
        session_id = ann.create_session("mochi", tool_settings=tools)["session_id"]
        body = {"message": instruct(calls("hidden_tool", text="x"), words(3))}
        with ann.http.stream("POST", f"/chat/{session_id}/stream", json=body) as response:
            asked = next(
                e for e in read_events(response) if e.type == "tool_call_confirmation_required"
            )
        write_keys(keys, ann={"tools": "[note]"}, root={"scope": "all"})
        decision = {"confirmation_id": asked.data["confirmation_id"], "approved": True}
        root.ok(root.http.post(f"/chat/{session_id}/confirm-tool", json=decision))
        until(lambda: root.ok(root.http.get(f"/chat/{session_id}/run"))["state"] == "completed")
        assert "There is no tool named 'hidden_tool'" in json.dumps(ann.messages(session_id))


@cases(
    "end",
    ["approved", "timeout", "approved after the key was revoked", "the file has no default"],
)
def test_parked_turn_continues_with_the_permissions_of_its_sender(
    private_stub: StubServer, tmp_path: Path, end: str
) -> None:
    """A key that may use little sends a turn to the session of a key that may use everything."""
    write_tools(tmp_path, _TOOLS)
    little = {"tools": "[note]"}
    default = None if end == "the file has no default" else little
    other_keys: dict[str, Any] = {"ann": {"tools": '["*"]'}, "root": {"scope": "all"}}
    bot = {"scope": "all", "policy": "always_confirm", **little}
    keys = write_keys(tmp_path / "keys.yaml", default=default, bot=bot, **other_keys)
    settings = {"api_keys_file": str(keys), "park_seconds": 0, "summarization_enabled": False}
    if end == "timeout":
        settings["tool_confirmation_timeout_seconds"] = 1
    components = Components(runs=RunLimits(scan_seconds=0.05))
    with RunningServer(tmp_path, private_stub.url, components, **settings) as server:
        ann, root = as_key(server, "ann"), as_key(server, "root")
        tools = {"tools": ["note", "hidden_tool"]}
        session_id = ann.create_session("mochi", tool_settings=tools)["session_id"]
        plan = instruct(calls("note", text="x"), calls("hidden_tool", text="x"), words(3))
        chat = f"/chat/{session_id}"
        sent = as_key(server, "bot").http.post(chat, json={"message": plan, "background": True})
        root.ok(sent, 202)
        if end != "timeout":
            confirmations = f"{chat}/confirmations"
            until(lambda: ann.ok(ann.http.get(confirmations))["confirmations"])
            (asked,) = ann.ok(ann.http.get(confirmations))["confirmations"]
            if end != "approved":
                write_keys(keys, default=default, **other_keys)
            decision = {"confirmation_id": asked["confirmation_id"], "approved": True}
            ann.ok(ann.http.post(f"{chat}/confirm-tool", json=decision))
        until(lambda: ann.ok(ann.http.get(f"{chat}/run"))["state"] == "completed")
        assert "There is no tool named 'hidden_tool'" in json.dumps(ann.messages(session_id))
        used = root.ok(root.http.get("/usage"))["usage"]
        assert {entry["key"] for entry in used} == {"bot"}


@cases(
    ("fields", "expected"),
    [
        ({"tools": "[note]"}, "There is no tool named 'hidden_tool'"),
        ({"agents": "[]"}, "There is no tool named 'agent'"),
    ],
)
def test_decision_continues_a_live_turn_with_the_permissions_of_now(
    private_stub: StubServer, tmp_path: Path, fields: dict[str, Any], expected: str
) -> None:
    """The key loses a tool or its agents while its turn waits with an open stream."""
    write_tools(tmp_path, _TOOLS)
    write_agent(tmp_path)
    keys = write_keys(tmp_path / "keys.yaml", ann={})
    with RunningServer(tmp_path, private_stub.url, api_keys_file=str(keys)) as server:
        ann = as_key(server, "ann")
        session_id = ann.create_session(
            "mochi",
            tool_settings={"tools": ["hidden_tool"], "execution_policy": "confirm_destructive"},
            agent_settings={"enabled_agents": ["helper"]},
        )["session_id"]
        plan = instruct(calls("hidden_tool", text="x"), delegate(words(2)), words(3))
        with ann.open_stream(session_id, plan) as events:
            decision = _approval_of_next(events)
            write_keys(keys, ann=fields)
            ann.ok(ann.http.post(f"/chat/{session_id}/confirm-tool", json=decision))
            assert [*events][-1].type == "done"
        assert expected in json.dumps(ann.messages(session_id))


def test_unknown_decision_does_not_suspend_a_live_turn_whose_permissions_changed(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_tools(tmp_path, _TOOLS)
    keys = write_keys(tmp_path / "keys.yaml", ann={"turns_at_a_time": 1})
    with RunningServer(tmp_path, private_stub.url, api_keys_file=str(keys)) as server:
        ann = as_key(server, "ann")
        tools = {"tools": ["hidden_tool"], "execution_policy": "confirm_destructive"}
        session_id, other = (
            ann.create_session("mochi", tool_settings=tools)["session_id"] for _ in range(2)
        )
        plan = instruct(calls("hidden_tool", text="x"), words(3))
        with ann.open_stream(session_id, plan) as events:
            decision = _approval_of_next(events)
            write_keys(keys, ann={"tools": "[note]", "turns_at_a_time": 1})
            unknown = {**decision, "confirmation_id": decision["confirmation_id"][:-1]}
            response = ann.http.post(f"/chat/{session_id}/confirm-tool", json=unknown)
            assert error_of(response) == (404, "CONFIRMATION_NOT_FOUND")
            # A suspended turn would not count.
            refused = ann.http.post(f"/chat/{other}", json={"message": "Hi"})
            assert error_of(refused) == (429, "RATE_LIMITED")
            ann.ok(ann.http.post(f"/chat/{session_id}/confirm-tool", json=decision))
            assert [*events][-1].type == "done"


def test_decision_continues_a_live_turn_with_the_policy_of_now(
    private_stub: StubServer, tmp_path: Path
) -> None:
    """The key gets a stricter policy while its turn waits, and the next call needs approval."""
    write_tools(tmp_path, _TOOLS)
    keys = write_keys(tmp_path / "keys.yaml", ann={})
    tools = {"tools": ["note", "hidden_tool"], "execution_policy": "confirm_destructive"}
    with RunningServer(tmp_path, private_stub.url, api_keys_file=str(keys)) as server:
        ann = as_key(server, "ann")
        session_id = ann.create_session("mochi", tool_settings=tools)["session_id"]
        plan = instruct(calls("hidden_tool", text="x"), calls("note", text="x"), words(3))
        with ann.open_stream(session_id, plan) as events:
            decision = _approval_of_next(events)
            write_keys(keys, ann={"policy": "always_confirm"})
            ann.ok(ann.http.post(f"/chat/{session_id}/confirm-tool", json=decision))
            decision = _approval_of_next(events)
            ann.ok(ann.http.post(f"/chat/{session_id}/confirm-tool", json=decision))
            assert [*events][-1].type == "done"


def _approval_of_next(events: Iterator[Event]) -> dict[str, Any]:
    """Return the decision that approves the next call that waits."""
    asked = next(e for e in events if e.type == "tool_call_confirmation_required")
    return {"confirmation_id": asked.data["confirmation_id"], "approved": True}


def test_embedding_model_that_a_key_may_not_use_is_unknown(server: RunningServer) -> None:
    few, usual = as_key(server, "few"), as_key(server, "usual")
    body = {"model": "mochi-embed", "input": "Hello"}
    few.ok(few.http.post(f"{server.url}/v1/embeddings", json=body))
    refused = usual.http.post(f"{server.url}/v1/embeddings", json=body)
    unknown = usual.http.post(f"{server.url}/v1/embeddings", json={**body, "model": "absent-embed"})
    assert refused.status_code == unknown.status_code == 404
    assert refused.text.replace("mochi-", "absent-").split("req")[0] == unknown.text.split("req")[0]
