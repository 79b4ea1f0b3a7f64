"""An attack with two keys of the scope `own`, over every operation of the OpenAPI document.

The operations come from the document, so a new route is attacked without new code here.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mochi_stub import StubServer
from tests.support.agents import delegate, write_agent
from tests.support.api import Api, Event, error_of, read_events
from tests.support.cases import cases
from tests.support.images import PNG, base64_image, numbered_image, sha256_of
from tests.support.instructions import calls, instruct, words
from tests.support.keys import headers, write_keys
from tests.support.server import RunningServer
from tests.support.tools import NOTE_TOOL, write_tools
from tests.support.waiting import until

if TYPE_CHECKING:
    from tests.support.openapi import Route

CANARY = "canary-of-ann"
UNKNOWN = "0123456789"
KEY = "key-of-ann"
FILE = f"{CANARY} in a file".encode()


@pytest.fixture(scope="module")
def shared_server(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server with the keys `ann` and `bob` of the scope `own`, and `root` of the scope `all`."""
    data_dir = tmp_path_factory.mktemp("owned")
    write_tools(data_dir, NOTE_TOOL)
    write_agent(data_dir)
    keys = write_keys(data_dir / "keys.yaml", ann={}, bob={}, root={"scope": "all"})
    with RunningServer(
        data_dir, shared_stub.url, api_keys_file=str(keys), summarization_enabled=False
    ) as server:
        yield server


@pytest.fixture(scope="module")
def victim(shared_server: RunningServer) -> Victim:
    return Victim(shared_server.api(headers=headers("ann")))


class Victim:
    """Everything that `ann` owns: two waiting turns, a session with an image, a file and a version, an agent's
    chat and a stored response.

    One of the turns is parked: its client has disconnected.
    """

    def __init__(self, api: Api) -> None:
        self.api = api
        settings = {"tools": ["note"], "execution_policy": "always_confirm"}
        self.asking, self.parked = (
            self._session("mochi", tool_settings=settings) for _ in range(2)
        )
        self.asked = self._ask(self.asking, on_disconnect="continue")
        self.also_asked = self._ask(self.parked)
        self.shown = self._session(
            "echo",
            tool_settings={**settings, "execution_policy": "never_confirm"},
            tags=[CANARY],
        )
        file = {"name": "secret.txt", "data": b64encode(FILE).decode()}
        api.send_message(self.shown, CANARY, images=[base64_image(PNG)], attachments=[file])
        api.send_message(self.shown)  # the first answer becomes a version
        self.message = api.messages(self.shown)[-1]["message_id"]
        versions = self.url(f"/api/v1/sessions/{self.shown}/versions?message_id={self.message}")
        self.version = api.ok(api.http.get(versions))["versions"][0]["version_id"]
        called = self._session(
            "mochi", tool_settings={**settings, "execution_policy": "never_confirm"}
        )
        api.send_message(called, instruct(calls("note", text=CANARY), words(3)))
        delegating = self._session("mochi", agent_settings={"enabled_agents": ["helper"]})
        api.send_message(delegating, instruct(delegate(), words(3), label=CANARY))
        self.agent_chat = api.ok(api.http.get("/agents/chats"))["sessions"][0]["session_id"]
        request = {"model": "mochi", "input": CANARY}
        stored = api.ok(api.http.post(self.url("/v1/responses"), json=request))
        self.response, self.item = stored["id"], stored["output"][-1]["id"]
        named, in_background = (
            {"X-Mochi-Session": self._session("mochi")},
            {**request, "background": True},
        )
        self.background = api.ok(
            api.http.post(self.url("/v1/responses"), json=in_background, headers=named)
        )["id"]
        background = self.url(f"/v1/responses/{self.background}")
        until(
            lambda: api.ok(api.http.get(background))["status"] == "completed"
        )  # its end changes the session
        self.owner = api.ok(api.http.get("/sessions"))["sessions"][0]["owner"]

    @property
    def sessions(self) -> list[str]:
        return [self.asking, self.parked, self.shown, self.agent_chat]

    @property
    def secrets(self) -> list[str]:
        both = (self.asked, self.also_asked)
        named = [
            name
            for each in both
            for name in (each.id.partition(":")[0], each.data["confirmation_id"])
        ]
        return [CANARY, self.owner, self.item, *self.sessions, *named]

    def asked_in(self, session_id: str) -> Event:
        """Return the request for approval that an attack on a session names."""
        return self.also_asked if session_id == self.parked else self.asked

    def snapshot(self) -> dict[str, Any]:
        """Return what must not change during an attack."""
        paths = [
            "/sessions",
            "/agents/chats",
            "/tools/executions",
            f"/agents/chats/{self.agent_chat}",
        ]
        chats = (self.asking, self.parked, self.shown)
        paths += [path for each in chats for path in (f"/sessions/{each}", f"/chat/{each}/run")]
        paths += [f"/chat/{each}/confirmations" for each in (self.asking, self.parked)]
        return {path: self.api.ok(self.api.http.get(path)) for path in paths}

    def _session(self, model: str, **fields: Any) -> str:
        created = self.api.create_session(model, title=CANARY, system_prompt=CANARY, **fields)
        return str(created["session_id"])

    def _ask(self, session_id: str, **fields: Any) -> Event:
        """Send a message, and disconnect when a call needs approval."""
        body = {"message": instruct(calls("note", text=CANARY), words(3)), **fields}
        sent = {"Idempotency-Key": KEY}
        with self.api.http.stream(
            "POST", f"/chat/{session_id}/stream", json=body, headers=sent
        ) as response:
            return next(
                e for e in read_events(response) if e.type == "tool_call_confirmation_required"
            )

    def url(self, path: str) -> str:
        return str(self.api.http.base_url.join(path))


def attacks(route: Route, victim: Victim, session_id: str) -> Iterator[dict[str, Any]]:
    """Yield requests of an operation that name a session, and everything else of the victim,
    wherever they can.
    """
    values = {
        "session_id": session_id,
        "message_index": "1",
        "sha256": sha256_of(FILE if "/files/" in route.path else PNG),
        "model_name": "mochi",
        "version_id": victim.version,
    }
    path = victim.url(re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], "none"), route.path))
    sent = {"X-Mochi-Session": session_id}
    asked = victim.asked_in(session_id)
    queries = {"q": CANARY, "owner": victim.owner, "after": asked.id}
    required = {"message_id": victim.message} if "message_id" in route.queries else {}
    params = {name: value for name, value in queries.items() if name in route.queries}
    everything = {
        "params": {**params, **required},
        "headers": {**sent, "Idempotency-Key": KEY, "Last-Event-ID": asked.id},
    }
    for body in bodies(route, victim, asked.data["confirmation_id"]):
        yield {"url": path, "json": body, "params": required}
        yield {"url": path, "json": body, **everything}


def bodies(route: Route, victim: Victim, confirmation: str) -> list[Any]:
    """Return valid bodies of a route, among them decisions about the waiting call and references to
    the response.
    """
    by_path: dict[str, list[Any]] = {
        "confirm-tool": [{"confirmation_id": confirmation, "approved": True}],
        "ai-sdk": [{"messages": [{"role": "assistant", "parts": [_approval(confirmation)]}]}],
        "ag-ui": [
            {"threadId": "t", "runId": "r", "messages": [], "resume": [_resume(confirmation)]}
        ],
        "responses": [
            {"model": "mochi", "input": "x", "previous_response_id": victim.response},
            {"model": "mochi", "input": [{"type": "item_reference", "id": victim.item}]},
        ],
        "import": [
            {
                "metadata": {"model": "mochi", "owner": victim.owner},
                "messages": [_message_with_image()],
            }
        ],
    }
    return [route.example, *by_path.get(route.path.rpartition("/")[2], [])]


def _approval(confirmation: str) -> dict[str, Any]:
    approval = {"id": confirmation, "approved": True}
    return {"type": "tool-note", "state": "approval-responded", "approval": approval}


def _resume(confirmation: str) -> dict[str, Any]:
    return {"interruptId": confirmation, "status": "resolved", "payload": {"approved": True}}


def _message_with_image() -> dict[str, Any]:
    """Return a message with an image and a file."""
    reference = {"sha256": sha256_of(PNG), "media_type": "image/png"}
    file = {
        "name": "secret.txt",
        "media_type": "text/plain",
        "size": len(FILE),
        "sha256": sha256_of(FILE),
        "text_sha256": sha256_of(FILE),
        "characters": len(FILE),
    }
    return {"role": "user", "content": "Look.", "images": [reference], "attachments": [file]}


def seen(response: httpx.Response, session_id: str) -> tuple[int, str]:
    """Return what a response tells, without the ID that the request has sent and without the
    request ID.
    """
    text = re.sub(r'"request_id": "\w+"', "", response.text.replace(session_id, "ID"))
    return response.status_code, text


def sessions_to_name(route: Route, victim: Victim) -> list[str]:
    """Return the sessions that the attacks on a route name.

    A native route without a session in its path ignores the header that names one.
    """
    is_native = route.path.startswith("/api/v1")
    return [victim.asking] if is_native and "session_id" not in route.path else victim.sessions


def requests_of(route: Route, victim: Victim) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield each session and each request that names it, with the number of the request among those
    of the session.

    Requests that name nothing else are sent only for one session.
    """
    sent: list[dict[str, Any]] = []
    for session_id in sessions_to_name(route, victim):
        for number, request in enumerate(attacks(route, victim, session_id)):
            is_plain = "headers" not in request
            is_repeated = is_plain and session_id != victim.asking
            if request in sent or is_repeated:
                continue
            sent.append(request)
            yield session_id, number, request


def test_no_operation_reaches_what_another_key_owns(server: RunningServer, victim: Victim) -> None:
    from tests.support.openapi import routes

    bob = server.api(headers=headers("bob"))
    before = victim.snapshot()
    for route in routes():
        unknown = list(attacks(route, victim, UNKNOWN))
        answers: dict[int, tuple[int, str]] = {}
        for session_id, number, request in requests_of(route, victim):
            response = bob.http.request(route.method, **request)
            told = seen(response, session_id)
            leaked = [
                secret
                for secret in victim.secrets
                if secret in told[1] and secret not in str(request)
            ]
            assert not leaked, (route, request, response.text)
            if "session_id" in route.path or told[0] == 404:
                if number not in answers:
                    answers[number] = seen(
                        bob.http.request(route.method, **unknown[number]), UNKNOWN
                    )
                assert told == answers[number], (route, request)
    assert victim.snapshot() == before


@cases("kind", ["response", "background"])
def test_responses_of_another_key_cannot_be_read_or_cancelled(
    server: RunningServer, victim: Victim, kind: str
) -> None:
    bob, response_id = server.api(headers=headers("bob")), getattr(victim, kind)
    for method, path in (("GET", ""), ("POST", "/cancel")):
        response, unknown = (
            bob.http.request(method, victim.url(f"/v1/responses/{each}{path}"))
            for each in (response_id, "resp_none")
        )
        assert response.status_code == 404
        assert response.text.replace(response_id, "resp_none") == unknown.text
    assert victim.api.http.get(victim.url(f"/v1/responses/{response_id}")).status_code == 200


@pytest.mark.two_servers
def test_turn_that_continues_alone_creates_sessions_of_its_owner(
    private_stub: StubServer, tmp_path: Path
) -> None:
    write_tools(tmp_path, NOTE_TOOL)
    write_agent(tmp_path)
    keys = write_keys(tmp_path / "keys.yaml", ann={}, bob={})
    settings = {
        "api_keys_file": str(keys),
        "park_seconds": 0,
        "tool_confirmation_timeout_seconds": 1,
    }
    with RunningServer(tmp_path, private_stub.url, **settings) as server:
        ann, bob = (server.api(headers=headers(name)) for name in ("ann", "bob"))
        tools = {"tools": ["note"], "execution_policy": "always_confirm"}
        agents = {"enabled_agents": ["helper"]}
        session_id = ann.create_session("mochi", tool_settings=tools, agent_settings=agents)[
            "session_id"
        ]
        message = instruct(calls("note", text="x"), delegate(), words(3))
        ann.ok(
            ann.http.post(f"/chat/{session_id}", json={"message": message, "background": True}), 202
        )
        private_stub.wait_for(lambda exchanges: [e.path for e in exchanges].count("/api/chat") == 4)
        until(lambda: ann.ok(ann.http.get(f"/chat/{session_id}/run"))["state"] == "completed")
        (session,) = ann.ok(ann.http.get("/sessions"))["sessions"]
        (created,) = ann.ok(ann.http.get("/agents/chats"))["sessions"]
        assert created["owner"] == session["owner"] is not None
        assert bob.ok(bob.http.get("/agents/chats"))["sessions"] == []


@cases("field", ["previous_response_id", "item_reference"])
def test_stored_response_of_another_key_is_unknown(
    server: RunningServer, victim: Victim, field: str
) -> None:
    requests = {
        "previous_response_id": {"input": "x", "previous_response_id": victim.response},
        "item_reference": {"input": [{"type": "item_reference", "id": victim.item}]},
    }
    url, body = victim.url("/v1/responses"), {"model": "mochi", **requests[field]}
    assert victim.api.http.post(url, json=body).status_code == 200
    assert server.api(headers=headers("bob")).http.post(url, json=body).status_code == 400


@pytest.mark.two_servers
def test_import_gives_no_access_to_images_of_another_key(
    server: RunningServer, victim: Victim
) -> None:
    bob = server.api(headers=headers("bob"))
    body = {
        "metadata": {"model": "mochi", "owner": victim.owner},
        "messages": [_message_with_image() | {"message_id": "a"}],
        "versions": [{"version_id": "v", "message_id": "a", "messages": [_message_with_image()]}],
    }
    answer = bob.ok(bob.http.post("/sessions/import", json=body), 201)
    assert [(each["code"], each["message"]) for each in answer["warnings"]] == [
        ("CONTENT_LEFT_OUT", "The import left out images: 2."),
        ("CONTENT_LEFT_OUT", "The import left out files: 2."),
    ]
    (imported,) = answer["sessions"]
    assert imported["owner"] != victim.owner
    path = f"/sessions/{imported['session_id']}"
    assert error_of(bob.http.get(f"{path}/blobs/{sha256_of(PNG)}")) == (404, "BLOB_NOT_FOUND")
    assert error_of(bob.http.get(f"{path}/files/{sha256_of(FILE)}")) == (404, "BLOB_NOT_FOUND")
    assert base64_image(PNG) not in bob.http.get(f"{path}/export?versions=true").text
    bob.ok(bob.http.post(f"{path}/versions/v/select"))
    assert error_of(bob.http.get(f"{path}/blobs/{sha256_of(PNG)}")) == (404, "BLOB_NOT_FOUND")
    assert base64_image(PNG) in victim.api.http.get(f"/sessions/{victim.shown}/export").text


def test_import_keeps_the_images_that_the_file_contains(
    server: RunningServer, victim: Victim
) -> None:
    bob = server.api(headers=headers("bob"))
    own = numbered_image(7)
    message = _message_with_image()
    (foreign,) = message["images"]
    kept = {"sha256": sha256_of(own), "media_type": "image/png"}
    body = {
        "metadata": {"model": "mochi"},
        "messages": [message | {"images": [kept, foreign]}],
        "blobs": {sha256_of(own): base64_image(own)},
    }
    answer = bob.ok(bob.http.post("/sessions/import", json=body), 201)
    assert "The import left out images: 1." in [each["message"] for each in answer["warnings"]]
    (imported,) = answer["sessions"]
    (stored,) = bob.messages(imported["session_id"])
    assert stored["images"] == [kept]
    assert victim.owner != imported["owner"]


@cases("images", [["x"], [None], [{"sha256": ["x"]}], [{"media_type": "image/png"}], "x"])
def test_import_with_invalid_images_is_no_error_of_the_server(
    server: RunningServer, images: object
) -> None:
    bob = server.api(headers=headers("bob"))
    message = _message_with_image() | {"message_id": "a"}
    version = {"version_id": "v", "message_id": "a", "messages": [message | {"images": images}]}
    for messages, versions in (([message | {"images": images}], []), ([message], [version])):
        body = {"metadata": {"model": "mochi"}, "messages": messages, "versions": versions}
        assert bob.http.post("/sessions/import", json=body).status_code in (201, 422)


def test_attack_would_succeed_for_the_owner(victim: Victim) -> None:
    from tests.support.openapi import routes

    for route in (
        route for route in routes() if route.method == "GET" and "session_id" in route.path
    ):
        request = next(
            attacks(route, victim, victim.agent_chat if "agents" in route.path else victim.shown)
        )
        assert victim.api.http.request(route.method, **request).status_code < 400, route
    for path in (f"/sessions?q={CANARY}", "/tools/executions", f"/sessions/{victim.shown}/export"):
        assert CANARY in victim.api.http.get(path).text, path
