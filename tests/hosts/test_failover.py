"""Ollama hosts that fail, return, are added and are removed."""

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from mochi_stub import Model, Prompt, StubServer
from mochi_stub.reply import Failure, Gate, Reply, Text
from tests.hosts.conftest import Start
from tests.support.api import Api, error_of, text_of
from tests.support.holding import GatedStub
from tests.support.keys import headers, write_keys
from tests.support.ports import free_port
from tests.support.stub import chats
from tests.support.waiting import until

EMBEDDING = [Model("vectors", capabilities=("embedding",))]


def pinned_first(api: Api, name: str) -> str:
    """Return the ID of a session whose prompt the host holds, but which is not pinned any more."""
    session_id = str(api.create_session("mochi")["session_id"])
    api.ok(api.http.patch(f"/sessions/{session_id}", json={"ollama_host": name}))
    api.send_message(session_id, "Hello!")
    api.ok(api.http.patch(f"/sessions/{session_id}", json={"ollama_host": None}))
    return session_id


def state_of(api: Api, name: str) -> str | None:
    return next(
        (host["state"] for host in api.ok(api.http.get("/hosts"))["hosts"] if host["name"] == name),
        None,
    )


def test_turn_goes_to_the_next_host_if_one_refuses_connections(
    start: Start, stubs: list[StubServer]
) -> None:
    api = start(f"a={stubs[0].url}", f"b={stubs[1].url}").api()
    session_id = pinned_first(api, "a")
    stubs[0].stop()
    events = api.stream_message(session_id, "Are you there?")
    assert "message_complete" in [event.type for event in events]
    assert len(chats(stubs[1])) == 1
    assert state_of(api, "a") == "down"
    assert len(api.messages(session_id)) == 4


def test_each_host_may_halve_the_window_once(start: Start) -> None:
    def small(_: Prompt) -> Reply:
        return Reply([Failure("cudaMalloc failed: out of memory")])

    def large(prompt: Prompt) -> Reply:
        fits = prompt.options["num_ctx"] <= 4096
        return Reply.of("Fine.") if fits else small(prompt)

    with StubServer(speed=0, resolve=large) as other:
        replies = [Reply.of("Fine.")]
        with StubServer(
            speed=0, resolve=lambda prompt: replies.pop() if replies else small(prompt)
        ) as failing:
            api = start(f"a={failing.url}", f"b={other.url}").api()
            session_id = pinned_first(api, "a")
            assert text_of(api.stream_message(session_id, "And now?")) == "Fine."
        windows = [(exchange.body or {})["options"]["num_ctx"] for exchange in chats(other)]
    assert windows == [8192, 4096]


@pytest.mark.parametrize(
    "reply",
    [Reply([Failure("kaputt", 500)]), Reply([Failure("busy", 503)]), Reply([Gate(), Text("late")])],
)
def test_turn_goes_to_the_next_host_with_a_status_event(
    start: Start, stubs: list[StubServer], reply: Reply
) -> None:
    replies = [Reply.of("Fine.")]
    with StubServer(speed=0, resolve=lambda _: replies.pop() if replies else reply) as failing:
        server = start(f"a={failing.url}", f"b={stubs[1].url}")
        api = server.api()
        session_id = pinned_first(api, "a")
        server.app.state.services.fleet.hosts[
            0
        ].client._transport._stall_seconds = 0.5  # host b has time
        events = api.stream_message(session_id, "And now?")
        (failover,) = [
            event.data
            for event in events
            if event.type == "status" and event.data["state"] == "failover"
        ]
        assert failover["host"] == "b"
        assert text_of(events)
        status = api.ok(api.http.get(f"/sessions/{session_id}/status"))
        assert status["last_host"] == {"name": "b", "reason": "failover"}


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply([Gate(), Text("late")]), (502, "OLLAMA_ERROR")),
        (Reply([Failure("model 'mochi' not found", 404)]), (404, "MODEL_NOT_FOUND")),
    ],
    ids=["stall", "missing model"],
)
def test_hosts_that_stall_or_lack_the_model_are_tried_once(
    start: Start, reply: Reply, error: tuple[int, str]
) -> None:
    with (
        StubServer(speed=0, resolve=lambda _: reply) as first,
        StubServer(speed=0, resolve=lambda _: reply) as second,
    ):
        hosts = (f"a={first.url}", f"b={second.url}")
        api = start(*hosts, ollama_stall_timeout_seconds=0.5).api()
        session_id = api.create_session("mochi")["session_id"]
        response = api.http.post(f"/chat/{session_id}", json={"message": "Hello!"})
        assert error_of(response) == error
        assert (len(chats(first)), len(chats(second))) == (1, 1)


def test_lost_host_ends_an_answer_that_has_begun(
    start: Start, holding: GatedStub, stubs: list[StubServer]
) -> None:
    api = start(f"a={holding.stub.url}", f"b={stubs[1].url}").api()
    session_id = pinned_first(api, "a")
    with api.open_stream(session_id, "hold") as events:
        seen = [next(event for event in events if event.type == "content_delta")]
        holding.stub.stop()
        seen += events
    assert [event.data["code"] for event in seen if event.type == "error"] == ["OLLAMA_ERROR"]
    assert api.messages(session_id)[-1]["content"]
    api.send_message(session_id, "Next.")
    assert len(chats(stubs[1])) == 1


def test_requested_summary_goes_to_the_next_host(start: Start, stubs: list[StubServer]) -> None:
    api = start(f"a={stubs[0].url}", f"b={stubs[1].url}").api()
    session_id = pinned_first(api, "a")
    stubs[0].stop()
    summary = api.ok(api.http.post(f"/sessions/{session_id}/summarize"))
    assert "Hello!" in summary["summary"]
    assert len(chats(stubs[1])) == 1
    assert state_of(api, "a") == "down"


def test_requested_summary_names_the_failure_if_no_other_host_has_the_model(
    start: Start, stubs: list[StubServer]
) -> None:
    with StubServer(models=[Model("other")]) as other:
        api = start(f"a={stubs[0].url}", f"b={other.url}").api()
        session_id = pinned_first(api, "a")
        stubs[0].stop()
        response = api.http.post(f"/sessions/{session_id}/summarize")
    assert error_of(response) == (502, "OLLAMA_UNREACHABLE")


def test_requested_summary_names_the_failure_if_all_hosts_fail(
    start: Start, stubs: list[StubServer]
) -> None:
    api = start(f"a={stubs[0].url}", f"b={stubs[1].url}").api()
    session_id = pinned_first(api, "a")
    for stub in stubs:
        stub.stop()
    response = api.http.post(f"/sessions/{session_id}/summarize")
    assert error_of(response) == (502, "OLLAMA_UNREACHABLE")


def test_error_names_each_host_with_its_reason(start: Start) -> None:
    ports = [free_port(), free_port()]
    api = start(f"a=http://127.0.0.1:{ports[0]}", f"b=http://127.0.0.1:{ports[1]}").api()
    response = api.http.post("/sessions", json={"model": "mochi"})
    assert error_of(response) == (502, "OLLAMA_UNREACHABLE")
    error = response.json()["error"]
    assert set(error["details"]["hosts"]) == {"a", "b"}
    assert all(
        f"{name}: Cannot reach Ollama at http://127.0.0.1:{port}" in error["message"]
        for name, port in zip("ab", ports, strict=True)
    )
    assert api.ok(api.http.get("/health"))["ollama_connected"] is False


def test_busy_hosts_are_named_with_the_time_to_wait(start: Start) -> None:
    with ExitStack() as stack:
        busy = [
            stack.enter_context(
                StubServer(speed=0, resolve=lambda _: Reply([Failure("too many", 503)]))
            )
            for _ in "ab"
        ]
        api = start(*(f"{name}={stub.url}" for name, stub in zip("ab", busy, strict=True))).api()
        session_id = api.create_session("mochi")["session_id"]
        response = api.http.post(f"/chat/{session_id}", json={"message": "Hello!"})
    assert error_of(response) == (503, "OLLAMA_BUSY")
    assert response.headers["Retry-After"] == "2"
    error = response.json()["error"]
    assert error["message"].startswith("No Ollama host can answer. ")
    assert {*error["details"]["hosts"]} == {"a", "b"}


def test_host_that_cannot_be_resolved_is_down(start: Start, stubs: list[StubServer]) -> None:
    api = start("a=http://no-such-host.invalid:1", stubs[1]).api()
    session_id = api.create_session("mochi")["session_id"]
    api.send_message(session_id, "Hello!")
    assert state_of(api, "a") == "down"
    assert api.ok(api.http.get("/health"))["ollama_connected"] is True


def test_host_that_returns_gets_turns_again(
    start: Start, stubs: list[StubServer], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    port = free_port()
    api = start(f"a=http://127.0.0.1:{port}", f"b={stubs[1].url}").api()
    assert state_of(api, "a") == "down"
    with StubServer(port=port, speed=0):
        until(lambda: "Ollama host returned host=a" in caplog.messages)
        assert state_of(api, "a") == "up"
    assert any(text.startswith("Ollama host left host=a") for text in caplog.messages)


def test_file_of_hosts_is_read_again(
    start: Start,
    holding: GatedStub,
    stubs: list[StubServer],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    file = tmp_path / "hosts"
    file.write_text(f"# two hosts\na={holding.stub.url}\nb={stubs[1].url}\n")
    api = start(ollama_hosts=[f"@{file}"]).api()
    session_id = pinned_first(api, "a")
    with api.open_stream(session_id, "hold") as events:
        next(event for event in events if event.type == "content_delta")
        file.write_text(f"b={stubs[1].url}, c={stubs[0].url}")
        assert state_of(api, "a") == "draining"
        assert state_of(api, "c") == "up"
        other = api.create_session("mochi")["session_id"]
        api.send_message(other, "Hello!")
        holding.gate.open()
        assert "message_complete" in [event.type for event in events]
    assert len(chats(holding.stub)) == 2
    until(lambda: state_of(api, "a") is None)
    file.write_text("ftp://wrong")
    assert state_of(api, "c") == "up"
    assert any("ftp://wrong" in record.getMessage() for record in caplog.records)


@pytest.mark.slow
def test_host_that_does_not_respond_is_left(start: Start, stubs: list[StubServer]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        api = start(f"a=http://127.0.0.1:{silent.getsockname()[1]}", f"b={stubs[1].url}").api()
        session_id = api.create_session("mochi")["session_id"]
        api.send_message(session_id, "Hello!")
        assert state_of(api, "a") == "down"


def test_embedding_model_is_used_while_one_of_its_hosts_is_down(start: Start) -> None:
    with StubServer(models=EMBEDDING) as failing, StubServer(models=EMBEDDING) as other:
        server = start(f"a={failing.url}", f"b={other.url}")
        api = server.api()
        body = {"model": "vectors", "input": "Hello!"}
        api.ok(api.http.post(f"{server.url}/v1/embeddings", json=body))
        failing.stop()
        api.ok(api.http.get("/health"))
        assert state_of(api, "a") == "down"
        api.ok(api.http.post(f"{server.url}/v1/embeddings", json=body))
        response = api.http.post("/sessions", json={"model": "vectors"})
    assert error_of(response) == (404, "MODEL_NOT_FOUND")
    message = response.json()["error"]["message"]
    assert message == "Model 'vectors' is an embedding model and cannot chat."


def test_embedding_model_of_one_host_is_named_as_such(start: Start) -> None:
    with StubServer(models=[Model("chat")]) as first, StubServer(models=EMBEDDING) as second:
        api = start(f"a={first.url}", f"b={second.url}").api()
        response = api.http.post("/sessions", json={"model": "vectors"})
    assert error_of(response) == (404, "MODEL_NOT_FOUND")
    message = response.json()["error"]["message"]
    assert message == (
        "Model 'vectors' is an embedding model and cannot chat. Choose one of the chat models: "
        "chat."
    )


def test_model_that_a_key_may_not_use_is_unknown_while_a_host_is_down(
    start: Start, stubs: list[StubServer], tmp_path: Path
) -> None:
    keys = write_keys(tmp_path / "keys.yaml", few={"models": "[mochi]"}, root={"scope": "all"})
    hosts = (f"a={stubs[0].url}", f"b={stubs[1].url}")
    server = start(*hosts, api_keys_file=str(keys))
    few, root = (server.api(headers=headers(name)) for name in ("few", "root"))
    root.ok(root.http.get("/models"))  # the server knows the models of both hosts
    stubs[1].stop()
    root.ok(root.http.get("/health"))
    assert state_of(root, "b") == "down"
    requests = {
        "/sessions": {},
        "/models/test": {"message": "Hello"},
        f"{server.url}/v1/responses": {"input": "Hello"},
        f"{server.url}/v1/embeddings": {"input": "Hello"},
    }
    for path, body in requests.items():
        answers = []
        for model in ("echo", "absent"):
            field = {"modelIds": [model]} if path == "/models/test" else {"model": model}
            response = few.http.post(path, json={**body, **field})
            message = response.json()["error"]["message"].replace(model, "NAME")
            answers.append((response.status_code, message))
        assert answers[0] == answers[1], path
