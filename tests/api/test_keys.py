"""API keys with names: the keys file, scopes and users of backends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from mochi_server.app import create_app
from mochi_server.services.keys import KeysFileInvalid
from mochi_stub import StubServer
from tests.support.agents import delegate, write_agent
from tests.support.api import Api, error_of
from tests.support.cases import cases
from tests.support.instructions import instruct, words
from tests.support.keys import headers, write_keys
from tests.support.server import RunningServer
from tests.support.tools import NOTE_TOOL, write_tools

pytestmark = pytest.mark.two_servers

_GOOD = "sha256:" + "ab" * 32
_CHANGES_OF_ALL = [
    ("POST", "/tools/reload", None),
    ("POST", "/agents/reload", None),
    ("POST", "/mcp/servers/none/authorize", None),
    ("DELETE", "/mcp/servers/none/authorize", None),
    ("POST", "/mcp/servers/a%2Fb/authorize", None),
    ("DELETE", "/mcp/servers/a%2Fb/authorize", None),
    ("POST", "/system-prompts", {"filename": "x.md", "content": "x"}),
    ("PUT", "/system-prompts/x.md", {"content": "x"}),
    ("DELETE", "/system-prompts/x.md", None),
    ("GET", "/metrics", None),
    ("GET", "../../metrics", None),
    ("GET", "/metrics%0A", None),
    ("POST", "/tools/reload%0A", None),
    ("DELETE", "/mcp/servers/%0Anone/authorize%0A", None),
    ("POST", "/system-prompts%0A", {"filename": "x.md", "content": "x"}),
    ("PUT", "/system-prompts/x%0A.md", {"content": "x"}),
]


@pytest.fixture(scope="module")
def keys_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    keys = {"ann": {}, "bob": {"scope": "own"}, "root": {"scope": "all"}, "app": {"scope": "all"}}
    limits = {"few": {"turns_per_minute": 2}, "one": {"turns_at_a_time": 1}}
    data_dir = tmp_path_factory.mktemp("keys")
    write_tools(data_dir, NOTE_TOOL)
    write_agent(data_dir)
    return write_keys(data_dir / "keys.yaml", **keys, **limits)


@pytest.fixture(scope="module")
def shared_server(shared_stub: StubServer, keys_file: Path) -> Iterator[RunningServer]:
    settings = {"api_keys_file": "keys.yaml", "api_keys": ("old",), "summarization_enabled": False}
    with RunningServer(keys_file.parent, shared_stub.url, **settings) as server:
        yield server


def as_key(server: RunningServer, name: str, **others: str) -> Api:
    return server.api(headers=headers(name, **others))


def listed(api: Api, **query: str) -> list[str]:
    return [
        each["session_id"] for each in api.ok(api.http.get("/sessions", params=query))["sessions"]
    ]


def test_key_is_required_on_loopback(server: RunningServer) -> None:
    assert error_of(server.api().http.get("/sessions")) == (401, "UNAUTHORIZED")
    assert error_of(as_key(server, "unknown").http.get("/sessions")) == (401, "UNAUTHORIZED")
    assert httpx.get(f"{server.url}/api/v1/health/live").status_code == 200


def test_scope_own_lists_only_its_sessions(server: RunningServer) -> None:
    ann, bob, root = (as_key(server, name) for name in ("ann", "bob", "root"))
    session_id = ann.create_session("mochi")["session_id"]
    assert session_id in listed(ann)
    assert session_id not in listed(bob)
    assert int(bob.http.get("/sessions").headers["X-Total-Count"]) == len(listed(bob))
    (entry,) = [
        s for s in root.ok(root.http.get("/sessions"))["sessions"] if s["session_id"] == session_id
    ]
    assert session_id in listed(root, owner=entry["owner"])
    assert session_id not in listed(root, owner="another")
    assert listed(bob, owner=entry["owner"]) == []


def test_keys_of_the_settings_see_everything(server: RunningServer) -> None:
    old = server.api(headers={"X-API-Key": "old"})
    without_owner = old.create_session("mochi")["session_id"]
    session_id = as_key(server, "ann").create_session("mochi")["session_id"]
    assert {without_owner, session_id} <= {*listed(old)}
    assert without_owner in listed(as_key(server, "root"))
    assert without_owner not in listed(as_key(server, "ann"))


def test_user_of_a_backend_sees_only_own_sessions(server: RunningServer) -> None:
    one, two = (as_key(server, "root", **{"X-Mochi-User": user}) for user in ("one@x", "two@x"))
    session_id = one.create_session("mochi")["session_id"]
    assert listed(one) == [session_id]
    assert listed(two) == []
    assert error_of(two.http.get(f"/sessions/{session_id}")) == (404, "SESSION_NOT_FOUND")
    assert listed(as_key(server, "app", **{"X-Mochi-User": "one@x"})) == []
    assert session_id in listed(as_key(server, "root"))
    with_old_key = server.api(headers={"X-API-Key": "old", "X-Mochi-User": "one@x"})
    assert listed(with_old_key) == []
    assert (
        listed(with_old_key) != [with_old_key.create_session("mochi")["session_id"]] != listed(one)
    )


@cases("user", ["", "a b", "ä", "x" * 129])
def test_user_with_an_invalid_name_is_refused(server: RunningServer, user: str) -> None:
    sent = [(b"Authorization", b"Bearer root secret"), (b"X-Mochi-User", user.encode())]
    assert error_of(httpx.get(f"{server.url}/api/v1/sessions", headers=sent)) == (
        400,
        "BAD_REQUEST",
    )


def test_user_header_requires_scope_all(
    server: RunningServer, tmp_path: Path, stub: StubServer
) -> None:
    sent = {"X-Mochi-User": "one"}
    assert error_of(as_key(server, "ann", **sent).http.get("/sessions")) == (403, "FORBIDDEN")
    assert error_of(server.api(headers=sent).http.get("/sessions")) == (403, "FORBIDDEN")
    assert error_of(as_key(server, "unknown", **sent).http.get("/sessions"))[0] == 401
    with RunningServer(tmp_path, stub.url) as without_keys:
        assert error_of(without_keys.api(headers=sent).http.get("/sessions")) == (403, "FORBIDDEN")


def test_cors_does_not_allow_the_user_header(server: RunningServer) -> None:
    asked = {"Origin": "http://localhost:3000", "Access-Control-Request-Method": "GET"}
    for names, status in (("authorization", 200), ("authorization,X-Mochi-User", 403)):
        sent = {**asked, "Access-Control-Request-Headers": names}
        response = httpx.options(f"{server.url}/api/v1/sessions", headers=sent)
        assert response.status_code == status
        assert "mochi-user" not in response.headers.get("Access-Control-Allow-Headers", "").lower()


def test_shared_routes_require_scope_all(server: RunningServer) -> None:
    root = as_key(server, "root")
    others = (as_key(server, "ann"), as_key(server, "root", **{"X-Mochi-User": "one"}))
    for method, path, body in _CHANGES_OF_ALL:
        for api in others:
            assert error_of(api.http.request(method, path, json=body)) == (403, "FORBIDDEN")
        assert root.http.request(method, path, json=body).status_code in (200, 201, 204, 404)


def test_fork_keeps_the_owner_and_import_belongs_to_the_importer(server: RunningServer) -> None:
    ann, root = as_key(server, "ann"), as_key(server, "root")
    session_id = ann.create_session("mochi")["session_id"]
    forked = root.ok(root.http.post(f"/sessions/{session_id}/fork"), 201)["session_id"]
    assert forked in listed(ann)
    exported = ann.ok(ann.http.get(f"/sessions/{session_id}/export"))
    (imported,) = root.ok(root.http.post("/sessions/import", json=exported), 201)["sessions"]
    assert imported["session_id"] not in listed(ann)
    assert imported["owner"] not in (None, exported["metadata"]["owner"])


def test_agent_chat_belongs_to_the_owner_of_the_session(server: RunningServer) -> None:
    ann, root = as_key(server, "ann"), as_key(server, "root")
    session_id = ann.create_session("mochi", agent_settings={"enabled_agents": ["helper"]})[
        "session_id"
    ]
    root.send_message(session_id, instruct(delegate(), words(3)))
    assert len(ann.ok(ann.http.get("/agents/chats"))["sessions"]) == 1
    assert as_key(server, "bob").ok(as_key(server, "bob").http.get("/agents/chats")) == {
        "sessions": []
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            f"- name: a\n  hash: {_GOOD}\n  scop: own\n",
            "line 3: unknown field 'scop'; did you mean 'scope'?",
        ),
        (
            "# keys\n- name: a\n  hash: md5:900150983cd24fb0d6963f7d28e17f72\n",
            "line 3: `hash` is a weak hash",
        ),
        ("- name: a\n  hash: a plain text\n", "line 2: `hash` is a weak hash"),
        (
            f"- {{name: a, hash: '{_GOOD}'}}\n- name: a\n  hash: {_GOOD}0\n",
            "line 2: an earlier key has the same name",
        ),
        (
            f"- name: a\n  hash: {_GOOD}\n- name: b\n  hash: {_GOOD}\n",
            "line 4: an earlier key has the same hash",
        ),
        (f"- name: a\n  hash: {_GOOD}\n  scope: some\n", "line 3: `scope` is neither"),
        (
            f"- name: a\n  hash: {_GOOD}\n  turns_per_minute: 0\n",
            "line 3: `turns_per_minute` is not a positive number",
        ),
        (
            f"- name: a\n  hash: {_GOOD}\n  expires: soon\n",
            "line 3: `expires` is neither a date such as",
        ),
        (
            f"- name: a\n  hash: {_GOOD}\n  expires: 2027-13-01\n",
            "line 3: `expires` is not a date: 2027-13-01",
        ),
        (
            f"- name: a\n  hash: {_GOOD}\n  tools: read_file\n",
            "line 3: `tools` is not a list of names or patterns",
        ),
        (
            f"- name: a\n  hash: {_GOOD}\n  policy: sometimes\n",
            "line 3: `policy` is none of always_confirm, never_confirm, confirm_destructive",
        ),
        (
            f"- default: {{scope: own}}\n- name: a\n  hash: {_GOOD}\n",
            "line 1: `default` has the field 'scope'. It can have tools, agents, models, policy",
        ),
        ("- default: []\n", "line 1: `default` is not a mapping"),
        ("- name: a\n", "line 1: the key has no `name` or no `hash`"),
        ("keys: 1\n", "line 1: not a list of keys"),
        ("- name: [\n", "line 2: "),
        ("- a\n", "line 1: not a list of keys"),
    ],
)
def test_app_with_an_invalid_file_does_not_start(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "keys.yaml"
    path.write_text(text)
    with pytest.raises(KeysFileInvalid) as raised:
        create_app(data_dir=str(tmp_path), api_keys_file="keys.yaml")
    assert f"{path}, {problem}" in raised.value.message
    assert "plain text" not in raised.value.message


def test_name_of_a_key_of_the_settings_is_refused_in_the_file(tmp_path: Path) -> None:
    """Turns continue with the permissions of the key that has the sender's name."""
    path = tmp_path / "keys.yaml"
    path.write_text(f"- name: key-2\n  hash: {_GOOD}\n  tools: []\n")
    create_app(data_dir=str(tmp_path), api_keys_file="keys.yaml", api_keys=["one"])
    with pytest.raises(KeysFileInvalid) as raised:
        create_app(data_dir=str(tmp_path), api_keys_file="keys.yaml", api_keys=["one", "two"])
    problem = "'key-2' is the name of a key of MOCHI_API_KEYS. Rename the key in the file"
    assert raised.value.message == f"{path}: {problem}"


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        KeysFileInvalid, match=r"keys\.yaml does not exist\. `mochi-server keys add"
    ):
        create_app(data_dir=str(tmp_path), api_keys_file="keys.yaml")


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "keys.yaml").mkdir()
    with pytest.raises(KeysFileInvalid, match=r"cannot read .*keys\.yaml: Is a directory"):
        create_app(data_dir=str(tmp_path), api_keys_file="keys.yaml")
