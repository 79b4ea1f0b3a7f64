"""SIGTERM: running turns complete, new ones are refused, and the process ends in time."""

import json
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from mochi_stub import StubServer
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Gate, Reply, Text
from tests.support.api import Api, error_of, read_events, text_of, types_of
from tests.support.holding import GatedStub
from tests.support.instructions import calls, instruct, words
from tests.support.process import Command
from tests.support.tools import write_tools
from tests.support.waiting import until

COMPARISON = {"modelIds": ["mochi", "mochi-chat"], "message": "hold"}
USER = {"id": "m", "role": "user", "content": "Hi"}
ASKED = "tool_call_confirmation_required"
WHOLE = ["metadata", "start", "end", "done"]


@pytest.fixture
def stub(holding: GatedStub) -> StubServer:
    return holding.stub


def environment(stub: StubServer, grace: float) -> dict[str, str]:
    return {
        "MOCHI_SHUTDOWN_GRACE_SECONDS": str(grace),
        "MOCHI_OLLAMA_HOST": stub.url,
        "MOCHI_PORT": "0",
    }


@contextmanager
def compare_models(api: Api) -> Iterator[Iterator[str]]:
    """Yield the event types of a comparison that the model holds back."""
    with api.http.stream("POST", "/models/test", json=COMPARISON) as response:
        yield (
            line.removeprefix("event: ")
            for line in response.iter_lines()
            if line.startswith("event: ")
        )


def stored(folder: Path, session_id: str) -> list[dict[str, object]]:
    session: dict[str, list[dict[str, object]]] = json.loads(
        (folder / "chat_sessions" / f"{session_id}.json").read_text()
    )
    return session["messages"]


def test_shutdown_completes_running_turns_and_refuses_new_ones(
    tmp_path: Path, stub: StubServer, holding: GatedStub
) -> None:
    with Command("mochi_server", cwd=tmp_path, **environment(stub, 30)) as command:
        api = command.api()
        late = command.api()
        running, other = (api.create_session("mochi")["session_id"] for _ in range(2))
        with api.open_stream(running, "hold") as events, compare_models(command.api()) as compared:
            seen = [next(events) for _ in range(3)]
            next(kind for kind in compared if kind == "chunk")
            command.process.send_signal(signal.SIGTERM)
            refused = [
                late.http.post(f"/chat/{other}{path}", json={"message": "Hi"})
                for path in ("", "/stream")
            ]
            while refused[0].status_code == 200:  # until the signal has arrived
                refused = [
                    late.http.post(f"/chat/{other}{path}", json={"message": "Hi"})
                    for path in ("", "/stream")
                ]
            assert late.http.get("/health").status_code == 200
            assert late.http.get("/health/live").status_code == 200
            assert error_of(late.http.get("/health/ready")) == (503, "SHUTTING_DOWN")
            assert error_of(late.http.post("/models/test", json=COMPARISON)) == (
                503,
                "SHUTTING_DOWN",
            )
            fresh = command.api()  # a new connection
            assert fresh.http.get("/health").headers["connection"] == "close"
            before, messages = late.ok(late.http.get("/sessions"))["sessions"], late.messages(other)
            for path, body in {
                "/sessions": {"model": "mochi"},
                f"/sessions/{other}/fork": {},
                f"/chat/{other}": {"message": "Hi"},
                f"/chat/{other}/stream": {"message": "Hi", "if_busy": "wait"},
                f"/chat/{other}/ag-ui": {"threadId": other, "runId": "r", "messages": [USER]},
            }.items():
                response = late.http.post(path, json=body)
                assert error_of(response) == (503, "SHUTTING_DOWN"), path
                assert int(response.headers["retry-after"]) > 0
                assert response.headers["connection"] == "close"
            assert late.ok(late.http.get("/sessions"))["sessions"] == before
            assert late.messages(other) == messages
            assert late.ok(late.http.get(f"/chat/{running}/run"))["state"] == "running"
            with late.http.stream("GET", f"/chat/{running}/stream") as attached:
                assert attached.headers.get_list("connection") == ["close"]
                assert next(read_events(attached)) == seen[0]
            holding.gate.open()
            seen.extend(events)
            assert [kind for kind in compared if kind != "chunk"] == [
                *WHOLE[2:],
                *WHOLE,
                "complete",
            ]
        assert command.wait() == 0
    assert [error_of(response) for response in refused] == [(503, "SHUTTING_DOWN")] * 2
    assert text_of(seen) == "one two three four"
    assert types_of(seen[-2:]) == ["message_complete", "done"]
    assert "interrupted" not in stored(tmp_path, running)[-1]


def test_shutdown_parks_a_turn_that_waits_for_approval(tmp_path: Path) -> None:
    write_tools(
        tmp_path, "def look() -> str:\n    \"Look.\"\n    return 'Nothing'\n__all__ = ['look']\n"
    )
    with StubServer(speed=0) as stub:
        with Command("mochi_server", cwd=tmp_path, **environment(stub, 30)) as command:
            api = command.api()
            session_id = api.create_session("mochi", tool_settings={"tools": ["look"]})[
                "session_id"
            ]
            with (
                suppress(httpx.HTTPError),
                api.open_stream(session_id, instruct(calls("look"), words(2))) as events,
            ):
                for event in events:
                    if event.type == ASKED:
                        asked = event
                        command.process.send_signal(signal.SIGTERM)
            assert command.wait() == 0
        with Command("mochi_server", cwd=tmp_path, **environment(stub, 0)) as command:
            api = command.api()
            decision = {"confirmation_id": asked.data["confirmation_id"], "approved": True}
            api.ok(api.http.post(f"/chat/{session_id}/confirm-tool", json=decision))
            until(
                lambda: (
                    api.messages(session_id)[-1]["role"] == "assistant"
                    and len(api.messages(session_id)) == 4
                )
            )
    assert stored(tmp_path, session_id)[2]["content"] == "Nothing"


def _waiting_session(api: Api) -> str:
    """Return the ID of a session whose turn waits for approval."""
    session_id: str = api.create_session("mochi", tool_settings={"tools": ["look"]})["session_id"]
    body = {"message": instruct(calls("look"), words(2)), "background": True}
    api.ok(api.http.post(f"/chat/{session_id}", json=body), 202)
    until(lambda: _asked(api, session_id))
    return session_id


def _asked(api: Api, session_id: str) -> list[str]:
    entries = api.ok(api.http.get(f"/chat/{session_id}/confirmations"))["confirmations"]
    return [entry["confirmation_id"] for entry in entries]


def test_decision_during_a_shutdown_is_stored_for_the_next_server(tmp_path: Path) -> None:
    write_tools(
        tmp_path, "def look() -> str:\n    \"Look.\"\n    return 'Nothing'\n__all__ = ['look']\n"
    )
    gate = Gate()

    def resolve(prompt: Prompt) -> Reply | None:
        return Reply([Text(["one "]), gate]) if prompt.user_text == "hold" else None

    with StubServer(speed=0, resolve=resolve) as stub:
        with Command("mochi_server", cwd=tmp_path, **environment(stub, 30)) as command:
            api, late = command.api(), command.api()
            decided, stopped = _waiting_session(api), _waiting_session(api)
            with api.open_stream(api.create_session("mochi")["session_id"], "hold") as events:
                next(events)
                command.process.send_signal(signal.SIGTERM)
                until(lambda: late.http.get("/health/ready").status_code == 503)
                decision = {"confirmation_id": _asked(late, decided)[0], "approved": True}
                late.ok(late.http.post(f"/chat/{decided}/confirm-tool", json=decision), 202)
                again = late.http.post(f"/chat/{decided}/confirm-tool", json=decision)
                assert error_of(again) == (409, "CONFIRMATION_RESOLVED")
                with command.api().http.stream("GET", f"/chat/{stopped}/stream") as attached:
                    assert late.ok(late.http.post(f"/chat/{stopped}/stop"))["state"] == "stopped"
                    assert types_of(list(read_events(attached))) == [
                        ASKED,
                        "tool_result",
                        "stopped",
                        "done",
                    ]
                with command.api().http.stream("GET", f"/chat/{decided}/stream") as attached:
                    gate.open()
                    # A client resumes it at the next server.
                    assert types_of(list(read_events(attached))) == [ASKED]
                assert list(events)[-1].type == "done"
            assert command.wait() == 0
        with Command("mochi_server", cwd=tmp_path, **environment(stub, 0)) as command:
            api = command.api()
            with api.http.stream("GET", f"/chat/{decided}/stream") as response:
                response.read()  # until the turn has ended
            assert len(api.messages(decided)) == 4
    assert stored(tmp_path, decided)[2]["content"] == "Nothing"


def test_shutdown_without_turns_is_immediate(tmp_path: Path, stub: StubServer) -> None:
    with Command("mochi_server", cwd=tmp_path, **environment(stub, 60)) as command:
        api = command.api()
        api.stream_message(api.create_session("mochi")["session_id"], "Hi")
        begun = time.monotonic()
        assert command.end() == 0
        assert time.monotonic() - begun < 30  # half the grace period


def test_disconnect_from_a_comparison_does_not_delay_shutdown(
    tmp_path: Path, stub: StubServer
) -> None:
    with Command("mochi_server", cwd=tmp_path, **environment(stub, 60)) as command:
        with compare_models(command.api()) as compared:
            next(kind for kind in compared if kind == "chunk")
        begun = time.monotonic()
        assert command.end() == 0
        assert time.monotonic() - begun < 30  # half the grace period


@pytest.mark.skipif(
    signal.getsignal(signal.SIGHUP) == signal.SIG_IGN,
    reason="the server inherits the ignored signal",
)
def test_closed_terminal_stores_partial_answers(tmp_path: Path, stub: StubServer) -> None:
    with Command("mochi_server", cwd=tmp_path, **environment(stub, 0)) as command:
        api = command.api()
        session_id = api.create_session("mochi")["session_id"]
        with api.open_stream(session_id, "hold") as events:
            seen = [next(events) for _ in range(3)]
            command.process.send_signal(signal.SIGHUP)
            seen.extend(events)
        assert command.wait() == 0
    assert types_of(seen[-2:]) == ["error", "done"]
    answer = stored(tmp_path, session_id)[-1]
    assert (answer["content"], answer["interrupted"]) == (text_of(seen), True)


def test_second_signal_ends_running_turns(tmp_path: Path, stub: StubServer) -> None:
    with Command("mochi_server", cwd=tmp_path, **environment(stub, 60)) as command:
        api = command.api()
        session_id = api.create_session("mochi")["session_id"]
        with (
            api.open_stream(session_id, "hold") as events,
            compare_models(command.api()) as compared,
        ):
            seen = [next(events) for _ in range(3)]
            next(kind for kind in compared if kind == "chunk")
            command.process.send_signal(signal.SIGTERM)
            late = command.api()
            while late.http.post(f"/chat/{session_id}", json={"message": "Hi"}).status_code != 503:
                pass
            command.process.send_signal(signal.SIGTERM)
            seen.extend(events)
            remaining = [kind for kind in compared if kind != "chunk"]
        assert command.wait() == 0
    assert types_of(seen[-2:]) == ["error", "done"]
    assert remaining == ["error", "metadata", "start", "error", "complete"]
    assert not [line for line in command.output if " ERROR " in line]
    assert stored(tmp_path, session_id)[-1]["interrupted"] is True


@pytest.mark.slow
def test_shutdown_ends_a_requested_summary_with_an_error(tmp_path: Path) -> None:
    gate = Gate()

    def resolve(prompt: Prompt) -> Reply:
        return Reply([gate]) if prompt.format else Reply.of("Fine.")

    with (
        StubServer(speed=0, resolve=resolve) as stub,
        Command("mochi_server", cwd=tmp_path, **environment(stub, 0)) as command,
        ThreadPoolExecutor() as pool,
    ):
        api = command.api()
        session_id = api.create_session("mochi")["session_id"]
        api.send_message(session_id, "Hello!")
        answer = pool.submit(api.http.post, f"/sessions/{session_id}/summarize")
        stub.wait_for(lambda exchanges: exchanges[-1].outcome == "running")
        assert command.end() == 0
        gate.open()
        assert error_of(answer.result()) == (503, "SHUTTING_DOWN")


@pytest.mark.slow
def test_stalled_clients_do_not_delay_shutdown(tmp_path: Path) -> None:
    def resolve(prompt: Prompt) -> Reply:
        del prompt
        return Reply.of(["0123456789 " * 1000] * 2000)

    with (
        StubServer(speed=0, resolve=resolve) as stub,
        Command("mochi_server", cwd=tmp_path, **environment(stub, 0.1)) as command,
    ):
        api = command.api()
        session_id = api.create_session("mochi")["session_id"]
        address = urlsplit(str(api.http.base_url))
        body = b'{"message": "Hi"}'
        head = b"POST /api/v1/chat/%s/stream HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        unread, unfinished, silent, compared = (
            socket.create_connection((address.hostname or "", address.port or 0)) for _ in range(4)
        )
        unread.sendall(
            head % session_id.encode() + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        unfinished.sendall(head % session_id.encode() + b"Content-Length: 1000\r\n\r\n{")
        silent.sendall(b"GET /api/v1/he")
        comparison = json.dumps(COMPARISON).encode()
        head = (
            b"POST /models/test HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        )
        compared.sendall(head + b"Content-Length: %d\r\n\r\n%s" % (len(comparison), comparison))
        assert unread.recv(12) == compared.recv(12) == b"HTTP/1.1 200"
        begun = time.monotonic()
        assert command.end() == 0
        assert time.monotonic() - begun < 60
        assert not any("Traceback" in line for line in command.output)
        for connection in (unread, unfinished, silent, compared):
            connection.close()
