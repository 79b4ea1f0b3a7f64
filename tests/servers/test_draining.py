"""A server that shuts down refuses new sessions and turns, and still serves requests about turns of
other servers.
"""

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from mochi_stub import StubServer
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Gate, Reply, Text
from tests.servers.conftest import Start
from tests.servers.test_approvals import TOOLS
from tests.support.agents import write_agent
from tests.support.api import Api, error_of, read_events, text_of
from tests.support.holding import GatedStub
from tests.support.instructions import calls, instruct, words
from tests.support.process import Command
from tests.support.tools import write_tools
from tests.support.waiting import until

pytestmark = pytest.mark.slow

GRACE_SECONDS = 120
"""Grace period that no test waits for: a server must end before, as soon as its turns have ended.
"""
HI = [{"role": "user", "content": "Hi"}]
USER = {"id": "m", "role": "user", "content": "Hi"}
UI_USER = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "Hi"}]}
NEW_TURNS: dict[str, tuple[str, dict[str, Any]]] = {
    "session": ("/api/v1/sessions", {"model": "mochi"}),
    "fork": ("/api/v1/sessions/{id}/fork", {}),
    "collected": ("/api/v1/chat/{id}", {"message": "Hi"}),
    "stream": ("/api/v1/chat/{id}/stream", {"message": "Hi"}),
    "waiting-stream": ("/api/v1/chat/{id}/stream", {"message": "Hi", "if_busy": "wait"}),
    "denying": ("/api/v1/chat/{id}/stream", {"message": "Hi", "if_waiting": "deny"}),
    "background": ("/api/v1/chat/{id}", {"message": "Hi", "background": True}),
    "regenerate": ("/api/v1/chat/{id}", {}),
    "ag-ui": ("/api/v1/chat/{id}/ag-ui", {"threadId": "t", "runId": "r", "messages": [USER]}),
    "ai-sdk": ("/api/v1/chat/{id}/ai-sdk", {"id": "c", "messages": [UI_USER]}),
    "comparison": ("/models/test", {"modelIds": ["mochi"], "message": "Hi"}),
    "chat": ("/v1/chat/completions", {"model": "mochi", "messages": HI}),
    "chat-stream": ("/v1/chat/completions", {"model": "mochi", "messages": HI, "stream": True}),
    "text": ("/v1/completions", {"model": "mochi", "prompt": "Hi"}),
    "response": ("/v1/responses", {"model": "mochi", "input": "Hi"}),
    "background-response": (
        "/v1/responses",
        {"model": "mochi", "input": "Hi", "background": True, "store": True},
    ),
    "message": ("/v1/messages", {"model": "mochi", "max_tokens": 9, "messages": HI}),
    "agent": ("/v1/chat/completions", {"model": "agent:helper", "messages": HI}),
}


class GatedTexts:
    """Resolver of a stub: each text in ``gates`` is answered when its gate opens, and any other
    text at once.
    """

    def __init__(self, *texts: str) -> None:
        self.gates = {text: Gate() for text in texts}

    def __call__(self, prompt: Prompt) -> Reply | None:
        gate = self.gates.get(prompt.user_text)
        return Reply([Text(["one "]), gate, Text("two")]) if gate else None


class Server:
    """A server process that a test sends SIGTERM."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.api = command.api()

    @property
    def root(self) -> str:
        return str(self.api.http.base_url).removesuffix("/api/v1/")

    def begin_draining(self) -> None:
        self._began = time.monotonic()
        self.command.process.send_signal(signal.SIGTERM)
        ready = f"{self.root}/api/v1/health/ready"
        until(lambda: httpx.get(ready).status_code == 503)

    def wait(self) -> None:
        """Wait for the end of the server, which must not use the whole grace period."""
        assert self.command.wait() == 0
        assert time.monotonic() - self._began < GRACE_SECONDS


@contextmanager
def serving(ollama: StubServer, database: str, directory: Path) -> Iterator[Server]:
    arguments = ("--port", "0", "--ollama-host", ollama.url)
    settings = {"MOCHI_STORE_URL": database, "MOCHI_SHUTDOWN_GRACE_SECONDS": str(GRACE_SECONDS)}
    with Command("mochi_server", *arguments, cwd=directory, **settings) as command:
        yield Server(command)


@contextmanager
def draining(holding: GatedStub, database: str, directory: Path) -> Iterator[Server]:
    """A draining server with a running turn.

    At the end of the block, the turn ends, and then the server must end.
    """
    with serving(holding.stub, database, directory) as server, ExitStack() as stack:
        own = server.command.api()
        events = stack.enter_context(
            own.open_stream(own.create_session("mochi")["session_id"], "hold")
        )
        next(events)
        server.begin_draining()
        yield server
        holding.gate.open()
        assert list(events)[-1].type == "done"
        stack.close()
        server.wait()


def test_draining_server_refuses_new_sessions_and_turns(
    start: Start, holding: GatedStub, database: str, tmp_path: Path
) -> None:
    """Another server is live, and the last turn of the session ran there."""
    write_agent(tmp_path, "helper")
    with draining(holding, database, tmp_path) as server, Api(start().url) as b:
        session_id = b.create_session("mochi")["session_id"]
        b.send_message(session_id, "Before")
        before, messages = b.ok(b.http.get("/sessions"))["sessions"], b.messages(session_id)
        holding.stub.clear_exchanges()
        for name, (path, body) in NEW_TURNS.items():
            url = server.root + path.format(id=session_id)
            in_session = {"X-Mochi-Session": session_id} if name != "agent" else {}
            for headers in ({}, in_session, {**in_session, "Idempotency-Key": name}):
                _check_refusal(name, httpx.post(url, json=body, headers=headers))
        assert b.ok(b.http.get("/sessions"))["sessions"] == before
        assert b.messages(session_id) == messages
        chats = [
            each.body["messages"] for each in holding.stub.exchanges() if each.path == "/api/chat"
        ]
        assert not [sent for sent in chats if sent[-1]["content"] == "Hi"]
        with psycopg.connect(database) as connection:
            assert connection.execute("SELECT key FROM idempotency_keys").fetchall() == []


def _check_refusal(name: str, response: httpx.Response) -> None:
    assert response.status_code == 503, (name, response.text)
    assert int(response.headers["retry-after"]) > 0, name
    assert response.headers["connection"] == "close", name
    error, path = response.json()["error"], response.url.path
    if path == "/v1/messages":
        assert error["type"] == "overloaded_error"
    elif path.startswith("/v1/"):
        assert (error["type"], error["code"]) == ("server_error", "shutting_down"), name
    else:
        assert error["code"] == "SHUTTING_DOWN", name


def test_all_servers_are_draining(holding: GatedStub, database: str, tmp_path: Path) -> None:
    directories = tmp_path / "first", tmp_path / "second"
    for directory in directories:
        directory.mkdir()
    with (
        draining(holding, database, directories[0]) as first,
        draining(holding, database, directories[1]) as second,
    ):
        for server in (first, second):
            refused = server.api.http.post("/sessions", json={"model": "mochi"})
            assert error_of(refused) == (503, "SHUTTING_DOWN")


def test_draining_server_forwards_requests_about_turns(
    start: Start, database: str, tmp_path: Path
) -> None:
    """After the end of its own turns, it completes the streams that it forwards, and accepts no
    further ones.
    """
    write_tools(tmp_path, TOOLS)
    texts = GatedTexts("own", "other", "stopped")
    ask = instruct(calls("note", text="x"), words(2))
    with StubServer(speed=0, resolve=texts) as stub, ExitStack() as stack:
        server = stack.enter_context(serving(stub, database, tmp_path))
        a, b = server.api, stack.enter_context(Api(start(stub.url).url))
        own, other, stopped = (a.create_session("mochi")["session_id"] for _ in range(3))
        decided = b.create_session("mochi", tool_settings={"tools": ["note"]})["session_id"]
        key, body = {"Idempotency-Key": "k"}, {"message": "other"}
        opened = b.http.stream("POST", f"/chat/{other}/stream", json=body, headers=key)
        direct = read_events(stack.enter_context(opened))
        before = stack.enter_context(
            a.http.stream("POST", f"/chat/{other}/stream", json=body, headers=key)
        )
        for session_id, message in ((stopped, "stopped"), (decided, ask)):
            b.ok(
                b.http.post(f"/chat/{session_id}", json={"message": message, "background": True}),
                202,
            )
        until(lambda: b.ok(b.http.get(f"/chat/{decided}/confirmations"))["confirmations"])
        (asked,) = b.ok(b.http.get(f"/chat/{decided}/confirmations"))["confirmations"]

        running = stack.enter_context(server.command.api().open_stream(own, "own"))
        next(running)
        server.begin_draining()
        attached = stack.enter_context(a.http.stream("GET", f"/chat/{other}/stream"))
        repeated = stack.enter_context(
            a.http.stream("POST", f"/chat/{other}/stream", json=body, headers=key)
        )
        assert a.ok(a.http.get(f"/chat/{other}/run"))["state"] == "running"
        assert a.ok(a.http.post(f"/chat/{stopped}/stop"))["state"] == "stopped"
        decision = {"confirmation_id": asked["confirmation_id"], "approved": True}
        a.ok(a.http.post(f"/chat/{decided}/confirm-tool", json=decision))

        texts.gates["own"].open()
        assert list(running)[-1].type == "done"
        until(lambda: _refuses_stream(server.root, other))
        assert a.ok(a.http.get(f"/chat/{other}/run"))["state"] == "running"
        texts.gates["other"].open()
        expected = list(direct)
        assert expected[-1].type == "done"
        for stream in (before, attached, repeated):
            assert list(read_events(stream)) == expected
        server.wait()


def test_draining_servers_do_not_wait_for_each_others_suspended_turns(
    database: str, tmp_path: Path
) -> None:
    """Each forwards the stream of a turn that waits for approval at the other one."""
    write_tools(tmp_path, TOOLS)
    ask = {"message": instruct(calls("note", text="x"), words(2)), "background": True}
    with StubServer(speed=0) as stub, ExitStack() as stack:
        servers = [stack.enter_context(serving(stub, database, tmp_path)) for _ in range(2)]
        streams = []
        for server, other in zip(servers, reversed(servers), strict=True):
            api = server.api
            tools = {"tool_settings": {"tools": ["note"]}}
            session_id = api.create_session("mochi", **tools)["session_id"]
            api.ok(api.http.post(f"/chat/{session_id}", json=ask), 202)
            opened = other.command.api().http.stream("GET", f"/chat/{session_id}/stream")
            stream = read_events(stack.enter_context(opened))
            assert "tool_call_confirmation_required" in (event.type for event in stream)
            streams.append(stream)
        began = time.monotonic()
        for server in servers:
            server.command.process.send_signal(signal.SIGTERM)
        for server in servers:
            assert server.command.wait() == 0
        assert time.monotonic() - began < GRACE_SECONDS
        assert [list(stream) for stream in streams] == [[], []]


def _refuses_stream(root: str, session_id: str) -> bool:
    with httpx.stream("GET", f"{root}/api/v1/chat/{session_id}/stream") as response:
        return response.status_code == 503


def test_peer_starts_no_turn_for_a_draining_server(
    start: Start, holding: GatedStub, database: str, tmp_path: Path
) -> None:
    """The peer has claimed the key, but runs no turn with it, because it refused the request."""
    with draining(holding, database, tmp_path) as server, Api(start().url) as b:
        session_id = b.create_session("mochi")["session_id"]
        key, body = {"Idempotency-Key": "k"}, {"message": "Hi"}
        with b.open_stream(session_id, "hold") as events:
            next(events)
            busy = b.http.post(f"/chat/{session_id}", json=body, headers=key)
            assert error_of(busy) == (409, "SESSION_BUSY")
            for extra in ({}, {"if_busy": "wait"}):
                refused = server.api.http.post(
                    f"/chat/{session_id}/stream", json=body | extra, headers=key
                )
                assert error_of(refused) == (503, "SHUTTING_DOWN")
            b.ok(b.http.post(f"/chat/{session_id}/stop"))
        sent = b.ok(b.http.post(f"/chat/{session_id}", json=body, headers=key))
        assert sent["message"]["content"] == "Fine."


def test_refused_message_denies_no_waiting_call(
    start: Start, holding: GatedStub, database: str, tmp_path: Path
) -> None:
    write_tools(tmp_path, TOOLS)
    ask = instruct(calls("note", text="x"), words(2))
    with (
        StubServer(speed=0) as stub,
        draining(holding, database, tmp_path) as server,
        Api(start(stub.url).url) as b,
    ):
        session_id = b.create_session("mochi", tool_settings={"tools": ["note"]})["session_id"]
        b.ok(b.http.post(f"/chat/{session_id}", json={"message": ask, "background": True}), 202)
        until(lambda: b.ok(b.http.get(f"/chat/{session_id}/confirmations"))["confirmations"])
        for path, body in (NEW_TURNS["denying"], NEW_TURNS["ai-sdk"]):
            refused = httpx.post(server.root + path.format(id=session_id), json=body)
            assert error_of(refused) == (503, "SHUTTING_DOWN")
        assert b.ok(b.http.get(f"/chat/{session_id}/run"))["state"] == "waiting_for_approval"


def test_waiting_messages_are_refused_when_draining_begins(
    start: Start, holding: GatedStub, database: str, tmp_path: Path
) -> None:
    """They wait for turns of the draining server and of the other one, and the other server then
    takes them.
    """
    with (
        serving(holding.stub, database, tmp_path) as server,
        ExitStack() as stack,
        Api(start().url) as b,
    ):
        a, pool = server.api, stack.enter_context(ThreadPoolExecutor(4))
        sessions = [a.create_session("mochi")["session_id"] for _ in range(4)]
        streams = []
        for session_id, api in zip(sessions, (a, a, b, b), strict=True):
            streams.append(stack.enter_context(api.open_stream(session_id, "hold")))
            next(streams[-1])
        paths = [
            f"/chat/{session_id}{path}"
            for session_id, path in zip(sessions, ("", "/stream") * 2, strict=True)
        ]

        def send(api: Api, path: str) -> httpx.Response:
            return api.http.post(
                path, json={"message": "Hi", "if_busy": "wait"}, headers={"Idempotency-Key": "k"}
            )

        waiting = [pool.submit(send, a, path) for path in paths]
        with psycopg.connect(database, autocommit=True) as connection:
            keys = "SELECT key FROM idempotency_keys"
            until(lambda: len(connection.execute(keys).fetchall()) == len(paths))
        server.begin_draining()
        for response in waiting:
            assert error_of(response.result()) == (503, "SHUTTING_DOWN")
        taken = [pool.submit(send, b, path) for path in paths]
        holding.gate.open()
        for stream in streams:
            assert list(stream)[-1].type == "done"
        assert [response.result().status_code for response in taken] == [200] * 4
        for session_id in sessions:
            assert [each["content"] for each in b.messages(session_id)][::2] == ["hold", "Hi"]
        stack.close()
        server.wait()


def test_repeated_request_gets_the_turn_of_a_draining_server(
    start: Start, holding: GatedStub, database: str, tmp_path: Path
) -> None:
    key, body = {"Idempotency-Key": "k"}, {"message": "hold"}
    with (
        serving(holding.stub, database, tmp_path) as server,
        ExitStack() as stack,
        Api(start().url) as b,
    ):
        a = server.api
        session_id = a.create_session("mochi")["session_id"]
        path = f"/chat/{session_id}/stream"
        first = stack.enter_context(a.http.stream("POST", path, json=body, headers=key))
        events = read_events(first)
        seen = [next(events)]
        server.begin_draining()
        bodies = (body, body | {"if_busy": "wait"})
        requests = [(api, each) for api in (a, b) for each in bodies]
        repeated = [
            stack.enter_context(api.http.stream("POST", path, json=each, headers=key))
            for api, each in requests
        ]
        assert [response.status_code for response in repeated] == [200] * 4
        holding.gate.open()
        seen += events
        assert text_of(seen) == "one two three four"
        for response in repeated:
            assert list(read_events(response)) == seen
        stack.close()
        server.wait()
