"""Turns that run at one server and are controlled from another."""

import json
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import httpx
import pytest

from mochi_stub import StubServer
from mochi_stub.reply import Failure, Reply
from tests.servers.conftest import Start
from tests.support.api import Api, Event, error_of, read_events, text_of, types_of
from tests.support.cluster import Member
from tests.support.holding import GatedStub
from tests.support.process import Command
from tests.support.stub import chats
from tests.support.waiting import until

pytestmark = pytest.mark.slow

A_SECOND_IN_HOURS = 1 / 3600


@contextmanager
def open_subscription(api: Api, session_id: str, **headers: str) -> Iterator[Iterator[Event]]:
    with api.http.stream("GET", f"/chat/{session_id}/stream", headers=headers) as response:
        assert response.status_code == 200
        yield read_events(response)


def test_session_is_the_same_on_every_server(a: Api, b: Api) -> None:
    session_id = a.create_session("mochi", title="Ours")["session_id"]
    b.send_message(session_id, "Hello")
    a.send_message(session_id, "Again")
    assert a.session(session_id) == b.session(session_id)
    assert [message["content"] for message in b.messages(session_id)] == [
        "Hello",
        "Fine.",
        "Again",
        "Fine.",
    ]


def test_running_turn_is_resumed_at_another_server(a: Api, b: Api, holding: GatedStub) -> None:
    session_id = a.create_session("mochi")["session_id"]
    with a.open_stream(session_id, "hold") as events:
        first = [next(events) for _ in range(2)]
        with (
            open_subscription(b, session_id) as whole,
            open_subscription(b, session_id, **{"Last-Event-ID": first[0].id}) as rest,
        ):
            assert [next(whole).id, next(whole).id, next(rest).id] == [
                first[0].id,
                first[1].id,
                first[1].id,
            ]
            holding.gate.open()
            first += events
            assert [*first[2:]] == list(whole) == list(rest)
    with open_subscription(b, session_id) as ended:
        assert list(ended) == first
    assert text_of(first) == "one two three four"


def test_turn_is_stopped_by_another_server(a: Api, b: Api) -> None:
    session_id = a.create_session("mochi")["session_id"]
    with a.open_stream(session_id, "hold") as events:
        next(events)
        run = b.ok(b.http.get(f"/chat/{session_id}/run"))
        assert run["state"] == "running"
        stopped = b.ok(b.http.post(f"/chat/{session_id}/stop"))
        assert (stopped["run_id"], stopped["state"]) == (run["run_id"], "stopped")
        assert list(events)[-1].type == "done"
    assert b.messages(session_id)[-1]["interrupted"]


def test_manual_window_is_set_and_removed_at_another_server(
    a: Api, b: Api, holding: GatedStub
) -> None:
    session_id = a.create_session("mochi")["session_id"]
    for api, size in ((a, 4096), (b, None), (a, 16384)):
        api.ok(
            api.http.patch(
                f"/sessions/{session_id}", json={"context_window": {"current_window": size}}
            )
        )
        for server in (b, a):
            status = server.ok(server.http.get(f"/sessions/{session_id}/status"))["context_window"]
            assert status["manual_override_session_id"] == (size and session_id)
            server.send_message(session_id, "Hello!")
    windows = [exchange.body["options"]["num_ctx"] for exchange in chats(holding.stub)]
    assert windows == [4096, 4096, 8192, 8192, 16384, 16384]


def test_only_the_server_of_the_latest_turn_shows_its_host(start: Start) -> None:
    with (
        StubServer(speed=0) as one,
        StubServer(speed=0) as two,
        Api(start(one.url).url) as a,
        Api(start(two.url).url) as b,
    ):
        session_id = a.create_session("mochi")["session_id"]
        path = f"/sessions/{session_id}/status"
        shown = []
        for api in (a, b, a):
            api.send_message(session_id, "Hello!")
            shown += [server.ok(server.http.get(path))["last_host"] for server in (a, b)]
    first, second = (
        {"name": stub.url.removeprefix("http://"), "reason": "only_host"} for stub in (one, two)
    )
    assert shown == [first, None, None, second, first, None]


def test_only_the_server_of_the_latest_turn_writes_a_summary(start: Start) -> None:
    with StubServer(speed=0) as stub:
        settings = {"summarization_interval_seconds": 10}  # the turn at B begins earlier than that
        with Api(start(stub.url, **settings).url) as a, Api(start(stub.url, **settings).url) as b:
            session_id = a.create_session("mochi")["session_id"]
            for api in (a, b):
                api.send_message(session_id, "Hello!")
            until(lambda: a.session(session_id)["summary"])
        assert [len(exchange.body["messages"]) for exchange in chats(stub)] == [1, 3, 5]


def test_server_whose_turn_failed_writes_no_summary(start: Start) -> None:
    replies = iter([Reply((Failure("broken"),))])
    with StubServer(speed=0, resolve=lambda _: next(replies, None)) as stub:
        failing, answering = (
            start(stub.url, summarization_interval_seconds=seconds) for seconds in (0.5, 1.5)
        )
        with Api(failing.url) as a, Api(answering.url) as b:
            session_id = a.create_session("mochi")["session_id"]
            assert a.http.post(f"/chat/{session_id}", json={"message": "Hello!"}).status_code == 502
            b.send_message(session_id)
            until(lambda: b.session(session_id)["summary"])
        assert [len(exchange.body["messages"]) for exchange in chats(stub)] == [1, 1, 3]


def test_message_waits_for_the_turn_of_another_server(a: Api, b: Api, holding: GatedStub) -> None:
    session_id = a.create_session("mochi")["session_id"]
    with ThreadPoolExecutor(1) as pool:
        with (
            a.open_stream(session_id, "hold") as events,
            open_subscription(b, session_id) as others,
        ):
            assert [next(events).id] == [next(others).id]
            waiting = pool.submit(b.send_message, session_id, "Next", if_busy="wait")
            assert b.ok(b.http.post(f"/chat/{session_id}/stop"))["state"] == "stopped"
            assert list(events) == list(others)
        assert waiting.result()["message"]["content"] == "Fine."
    texts = [message["content"] for message in a.messages(session_id)]
    assert texts == ["hold", "one two three ", "Next", "Fine."]


def test_session_running_on_another_server_is_busy(a: Api, b: Api, holding: GatedStub) -> None:
    session_id = a.create_session("mochi")["session_id"]
    with ThreadPoolExecutor(1) as pool, a.open_stream(session_id, "hold") as events:
        run_id = next(events).id.partition(":")[0]
        for response in (
            b.http.post(f"/chat/{session_id}", json={"message": "Hi"}),
            b.http.put(f"/sessions/{session_id}/messages/0", json={"content": "Hi"}),
        ):
            assert error_of(response) == (409, "SESSION_BUSY")
            assert response.json()["error"]["details"]["run_id"] == run_id
        waiting = pool.submit(b.send_message, session_id, "Next", if_busy="wait")
        holding.gate.open()
        list(events)
        assert waiting.result()["message"]["content"] == "Fine."
    assert [message["role"] for message in a.messages(session_id)] == ["user", "assistant"] * 2


def test_session_is_deleted_by_another_server_during_a_turn(
    a: Api, b: Api, holding: GatedStub
) -> None:
    session_id = a.create_session("mochi")["session_id"]
    with a.open_stream(session_id, "hold") as events:
        next(event for event in events if event.type == "content_delta")
        assert b.http.delete(f"/sessions/{session_id}").status_code == 204
        assert types_of(events) == ["content_delta"] * 2 + ["stopped", "done"]
    assert holding.chats("cancelled")
    for api in (a, b):
        assert error_of(api.http.get(f"/sessions/{session_id}")) == (404, "SESSION_NOT_FOUND")
        assert error_of(api.http.get(f"/chat/{session_id}/stream")) == (404, "SESSION_NOT_FOUND")


def test_server_of_the_running_turn_deletes_its_session(
    a: Api, b: Api, start: Start, holding: GatedStub
) -> None:
    with Api(start().url) as c:
        for deleting in (a, c):
            session_id = a.create_session("mochi")["session_id"]
            b.send_message(session_id, "Hello")
            with a.open_stream(session_id, "hold") as events:
                next(event for event in events if event.type == "content_delta")
                assert deleting.http.delete(f"/sessions/{session_id}").status_code == 204
                assert types_of(events) == ["content_delta"] * 2 + ["stopped", "done"]
            gone = deleting.http.delete(f"/sessions/{session_id}")
            assert error_of(gone) == (404, "SESSION_NOT_FOUND")
    assert holding.chats("cancelled")


def test_no_server_returns_the_text_of_an_expired_session(a: Api, start: Start) -> None:
    session_id = a.create_session("mochi", temporary=True)["session_id"]
    path, body, key = f"/chat/{session_id}", {"message": "Hello"}, {"Idempotency-Key": "k1"}
    first, *_ = a.stream_message(session_id, "Hello")
    a.ok(a.http.post(path, json=body, headers=key))
    start(temporary_session_hours=A_SECOND_IN_HOURS)
    until(lambda: a.http.get(f"/sessions/{session_id}").status_code == 404)
    run_id = first.id.partition(":")[0]
    for response in (
        a.http.get(f"{path}/stream", params={"after": f"{run_id}:0"}),
        a.http.post(path, json=body, headers=key),
        a.http.post(f"{path}/stream", json=body, headers=key),
    ):
        assert error_of(response) == (404, "SESSION_NOT_FOUND")


def test_repeated_request_joins_turn_of_another_server(a: Api, b: Api, holding: GatedStub) -> None:
    session_id = a.create_session("mochi")["session_id"]
    body, key = {"message": "hold"}, {"Idempotency-Key": "k1"}
    with ThreadPoolExecutor(2) as pool:
        answers = [
            pool.submit(api.http.post, f"/chat/{session_id}", json=body, headers=key)
            for api in (a, b)
        ]
        assert holding.stub.wait_for(
            lambda exchanges: any(e.path == "/api/chat" for e in exchanges)
        )
        holding.gate.open()
        first, second = (answer.result().json() for answer in answers)
    assert first == second
    assert len(a.messages(session_id)) == 2
    other = b.http.post(f"/chat/{session_id}", json={"message": "Other"}, headers=key)
    assert error_of(other) == (422, "IDEMPOTENCY_KEY_REUSED")


@pytest.mark.parametrize("repeats_at_third", [False, True])
def test_repeated_request_that_denies_calls_joins_its_turn(
    a: Api, b: Api, start: Start, holding: GatedStub, *, repeats_at_third: bool
) -> None:
    """The server of the session's latest turn executes the turn, not the one with the request."""
    session_id = a.create_session("mochi")["session_id"]
    a.send_message(session_id, "Hello")
    body, key = {"message": "hold", "if_waiting": "deny"}, {"Idempotency-Key": "k1"}
    path = f"/chat/{session_id}/stream"
    with (
        Api(start().url) as c,
        b.http.stream("POST", path, json=body, headers=key) as first,
    ):
        first_events = read_events(first)
        seen = [next(first_events)]
        other = c if repeats_at_third else a
        with other.http.stream("POST", path, json=body, headers=key) as second:
            assert (first.status_code, second.status_code) == (200, 200)
            repeated = read_events(second)
            seen_again = [next(repeated)]
            holding.gate.open()
            assert seen_again + list(repeated) == seen + list(first_events)
    assert len(a.messages(session_id)) == 4


REQUESTS: dict[str, dict[str, object]] = {
    "chat/completions": {"messages": [{"role": "user", "content": "hold"}]},
    "completions": {"prompt": "hold"},
    "responses": {"input": "hold"},
    "messages": {"messages": [{"role": "user", "content": "hold"}], "max_tokens": -1},
}


def open_completion(
    member: Member, session_id: str, route: str
) -> AbstractContextManager[httpx.Response]:
    """Send a streamed request under `/v1` with an idempotency key."""
    headers = {"X-Mochi-Session": session_id, "Idempotency-Key": "k1"}
    body = {"model": "mochi", "stream": True, **REQUESTS[route]}
    return httpx.stream("POST", f"{member.url}/v1/{route}", json=body, headers=headers, timeout=60)


@pytest.mark.parametrize("route", REQUESTS)
def test_repeated_openai_request_joins_turn_of_another_server(
    a: Api, servers: tuple[Member, Member], holding: GatedStub, route: str
) -> None:
    session_id = a.create_session("mochi")["session_id"]
    with (
        open_completion(servers[0], session_id, route) as first,
        open_completion(servers[1], session_id, route) as second,
    ):
        assert (first.status_code, second.status_code) == (200, 200)
        request_ids = second.headers.get_list("request-id")
        assert request_ids == (
            second.headers.get_list("x-request-id") if route == "messages" else []
        )
        holding.gate.open()
        assert all("four" in response.read().decode() for response in (first, second))
    assert [message["content"] for message in a.messages(session_id)] == [
        "hold",
        "one two three four",
    ]


def test_repeated_whole_completion_is_answered_once(
    a: Api, servers: tuple[Member, Member], holding: GatedStub
) -> None:
    session_id = a.create_session("mochi")["session_id"]
    headers = {"X-Mochi-Session": session_id, "Idempotency-Key": "k1"}
    body = {"model": "mochi", **REQUESTS["chat/completions"]}
    urls = [f"{member.url}/v1/chat/completions" for member in servers]
    with ThreadPoolExecutor(2) as pool:
        answers = [
            pool.submit(httpx.post, url, json=body, headers=headers, timeout=60) for url in urls
        ]
        assert holding.stub.wait_for(
            lambda exchanges: any(e.path == "/api/chat" for e in exchanges)
        )
        holding.gate.open()
        first, second = (answer.result().json() for answer in answers)
    assert (first["id"], first["choices"]) == (second["id"], second["choices"])
    other = httpx.post(
        urls[1], json={**body, "messages": [{"role": "user", "content": "Other"}]}, headers=headers
    )
    assert (other.status_code, other.json()["error"]["code"]) == (400, "idempotency_key_reused")


@pytest.mark.parametrize("ended", [0, 1], ids=["owner", "forwarder"])
def test_forwarded_openai_stream_ends_with_an_error(start: Start, ended: int) -> None:
    """A stream that just ends would be a complete answer for an OpenAI client."""
    servers = start(), start(shutdown_grace_seconds=0)
    with Api(servers[0].url) as a:
        session_id = a.create_session("mochi")["session_id"]
    route = "chat/completions"
    with (
        open_completion(servers[0], session_id, route),
        open_completion(servers[1], session_id, route) as response,
    ):
        assert response.status_code == 200
        end = servers[ended].kill if ended == 0 else servers[ended].stop
        end()
        *_, error, done, rest = response.read().decode().split("\n\n")
    code = "server_lost" if ended == 0 else "shutting_down"
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == code
    assert (done, rest) == ("data: [DONE]", "")


def test_server_behind_a_proxy_forwards_requests(
    start: Start, holding: GatedStub, database: str, tmp_path: Path
) -> None:
    """The proxy removes its prefix from the path."""
    owner = start()
    arguments = ("--port", "0", "--ollama-host", holding.stub.url)
    with (
        Api(owner.url) as a,
        Command("mochi_server", *arguments, cwd=tmp_path, MOCHI_STORE_URL=database) as command,
    ):
        b = command.api(headers={"X-Forwarded-Prefix": "/api"})
        session_id = a.create_session("mochi")["session_id"]
        with a.open_stream(session_id, "hold") as events:
            next(events)
            assert b.ok(b.http.post(f"/chat/{session_id}/stop"))["state"] == "stopped"
        body = {"model": "mochi", "stream": True, "messages": [{"role": "user", "content": "hold"}]}
        headers = {"X-Mochi-Session": session_id, "Idempotency-Key": "k1"}
        with (
            httpx.stream("POST", f"{owner.url}/v1/chat/completions", json=body, headers=headers),
            b.http.stream("POST", "../../v1/chat/completions", json=body, headers=headers) as sent,
        ):
            assert sent.status_code == 200
            owner.kill()
            *_, error, done, rest = sent.read().decode().split("\n\n")
    assert "server_lost" in error
    assert (done, rest) == ("data: [DONE]", "")


def test_repeated_request_that_denies_calls_runs_once_after_a_later_turn(start: Start) -> None:
    servers = start(), start(), start()
    with Api(servers[0].url) as a, Api(servers[1].url) as b, Api(servers[2].url) as c:
        session_id = a.create_session("mochi")["session_id"]
        first = {"message": "x", "if_waiting": "deny"}
        path, key = f"/chat/{session_id}", {"Idempotency-Key": "k1"}
        a.send_message(session_id, "w")
        a.ok(b.http.post(path, json=first, headers=key))
        b.send_message(session_id, "y")
        c.ok(c.http.post(path, json=first, headers=key))
        sent = [message["content"] for message in a.messages(session_id)]
    assert sent == ["w", "Fine.", "x", "Fine.", "y", "Fine."]


def test_turn_ends_with_its_last_subscriber_on_any_server(
    a: Api, b: Api, holding: GatedStub
) -> None:
    session_id = a.create_session("mochi")["session_id"]
    with open_remote_subscription(a, b, session_id) as events:
        next(events)
        assert b.ok(b.http.get(f"/chat/{session_id}/run"))["state"] == "running"
    assert holding.chats("cancelled")


@contextmanager
def open_remote_subscription(a: Api, b: Api, session_id: str) -> Iterator[Iterator[Event]]:
    """Subscribe at B to a turn at A whose own client has disconnected."""
    with a.open_stream(session_id, "hold") as mine:
        next(mine)
        context = open_subscription(b, session_id)
        events = context.__enter__()
        next(events)
    try:
        yield events
    finally:
        context.__exit__(None, None, None)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_ended_server_unlocks_its_sessions_at_once(
    a: Api, b: Api, servers: tuple[Member, Member], how: str
) -> None:
    session_id = a.create_session("mochi")["session_id"]
    with ThreadPoolExecutor(1) as pool, a.open_stream(session_id, "hold") as events:
        next(events)
        waiting = pool.submit(b.send_message, session_id, "Next", if_busy="wait")
        threading.Thread(target=getattr(servers[0], how)).start()
        assert waiting.result(60)["message"]["content"] == "Fine."
    assert b.http.get(f"/chat/{session_id}/run").status_code == 200


def test_subscriber_gets_server_lost_when_the_server_is_killed(
    a: Api, b: Api, servers: tuple[Member, Member]
) -> None:
    session_id = a.create_session("mochi")["session_id"]
    b.send_message(session_id, "Before")
    with a.open_stream(session_id, "hold") as mine, open_subscription(b, session_id) as events:
        next(mine)
        seen = [next(events) for _ in range(3)]
        servers[0].kill()
        seen += events
    run_id = seen[0].id.partition(":")[0]
    assert [event.id for event in seen] == [f"{run_id}:{number}" for number in range(1, 6)]
    assert [(event.type, event.data.get("code")) for event in seen[-2:]] == [
        ("error", "SERVER_LOST"),
        ("done", None),
    ]
    rest = b.http.get(f"/chat/{session_id}/stream")
    assert (rest.status_code, rest.content) == (204, b""), "what the turn before it said"
    with open_subscription(b, session_id, **{"Last-Event-ID": seen[0].id}) as events:
        assert [event.type for event in events] == ["snapshot", "error", "done"]
    for status in (b.http.get(f"/chat/{session_id}/run"), b.http.post(f"/chat/{session_id}/stop")):
        assert b.ok(status) == {"run_id": run_id, "state": "failed", "answer_id": None}


def test_stream_of_a_stopped_server_resumes_at_another(
    start: Start, a: Api, holding: GatedStub
) -> None:
    stopped = start(shutdown_grace_seconds=0)
    session_id = a.create_session("mochi")["session_id"]
    with (
        Api(stopped.url) as other,
        a.open_stream(session_id, "hold") as mine,
        open_subscription(other, session_id) as events,
    ):
        seen = [next(events) for _ in range(3)]
        stopped.stop()
        assert list(events) == []
        with (
            Api(start().url) as c,
            open_subscription(c, session_id, **{"Last-Event-ID": seen[-1].id}) as rest,
        ):
            holding.gate.open()
            assert seen + list(rest) == list(mine)


def test_killed_server_leaves_one_turn_for_one_idempotency_key(
    start: Start, holding: GatedStub
) -> None:
    body, key = {"message": "hold"}, {"Idempotency-Key": "k1"}
    killed, other = start(), start()
    with (
        ThreadPoolExecutor(2) as pool,
        Api(killed.url) as a,
        Api(other.url) as b,
        Api(start().url) as c,
    ):
        session_id = a.create_session("mochi")["session_id"]
        with a.http.stream(
            "POST", f"/chat/{session_id}/stream", json=body, headers=key
        ) as response:
            events = read_events(response)
            next(events)
            answers = [
                pool.submit(api.http.post, f"/chat/{session_id}", json=body, headers=key)
                for api in (b, c)
            ]
            until(lambda: "mochi_open_streams 3.0" in httpx.get(f"{killed.url}/metrics").text)
            killed.kill()
            holding.gate.open()
        first, second = (answer.result() for answer in answers)
        assert (first.status_code, first.json()) == (200, second.json())
        assert [message["content"] for message in b.messages(session_id)] == [
            "hold",
            "one two three four",
        ]


def test_invalid_idempotency_key_is_refused(a: Api) -> None:
    session_id = a.create_session("mochi")["session_id"]
    body, key = {"message": "Hello"}, {"Idempotency-Key": secrets.token_urlsafe(6000)}
    assert error_of(a.http.post(f"/chat/{session_id}", json=body, headers=key)) == (
        422,
        "VALIDATION_ERROR",
    )


def test_tools_are_reloaded_on_every_server(a: Api, b: Api, tmp_path_factory: object) -> None:
    assert b.ok(b.http.get("/tools"))["tools"] == {}
    a.ok(a.http.post("/tools/reload"))
    assert b.ok(b.http.get("/tools"))["tools"] == {}


def test_new_server_continues_session_of_killed_servers(
    start: Start, a: Api, servers: tuple[Member, Member]
) -> None:
    session_id = a.create_session("mochi")["session_id"]
    a.send_message(session_id, "Hello")
    for member in servers:
        member.kill()
    with Api(start().url) as c:
        assert len(c.messages(session_id)) == 2
        assert c.send_message(session_id, "Again")["message"]["content"] == "Fine."
