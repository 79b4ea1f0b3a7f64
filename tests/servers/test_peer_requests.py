"""Requests between servers: authorization, addresses, and errors for wrong addresses."""

import hmac
import json
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import psycopg
import pytest

from mochi_server.cluster.middleware import CONNECT_SECONDS
from tests.servers.conftest import Start
from tests.support.api import Api, error_of, read_events
from tests.support.cluster import Member
from tests.support.holding import GatedStub
from tests.support.keys import headers as headers_of
from tests.support.keys import write_keys
from tests.support.process import Command
from tests.support.relay import CuttingRelay
from tests.support.server import ThreadedServer
from tests.support.waiting import until

pytestmark = pytest.mark.slow

UNREACHABLE = "http://127.0.0.1:9"
SLACK_SECONDS = 20.0


def token_for(database: str, member: Member) -> str:
    """Return the token of a server as another server of the database creates it."""
    with psycopg.connect(database) as connection:
        process = connection.execute(
            "SELECT name FROM processes WHERE url = %s", [member.url]
        ).fetchone()
        secret = connection.execute("SELECT secret FROM peer_secret").fetchone()
    assert process is not None
    assert secret is not None
    return hmac.digest(secret[0].encode(), process[0].encode(), "sha256").hex()


def test_only_requests_with_the_secret_bypass_the_checks(start: Start, database: str) -> None:
    member, other = start(api_keys=("key",)), start(api_keys=("key",))
    foreign = {"Origin": "https://evil.example", "Host": "evil.example"}
    token = token_for(database, member)
    with httpx.Client(base_url=f"{member.url}/api/v1") as client:
        assert error_of(client.get("/tools")) == (401, "UNAUTHORIZED")
        assert error_of(client.get("/tools", headers=foreign)) == (403, "HOST_FORBIDDEN")
        assert client.get("/tools", headers={"Authorization": "Bearer key"}).status_code == 200
        for wrong in ("x", token_for(database, other), token[:-1], "é"):
            headers = {b"X-Mochi-Peer": wrong.encode(), b"Authorization": b"Bearer key"}
            assert error_of(client.get("/tools", headers=headers)) == (401, "UNAUTHORIZED")
        assert client.get("/tools", headers={"X-Mochi-Peer": token, **foreign}).status_code == 200


def test_caller_is_read_from_headers_of_each_version(start: Start, database: str) -> None:
    """The first one is that of version 1.0.0. Servers of a later version may send more."""
    member = start()
    with Api(member.url) as api:
        theirs = api.create_session("mochi")["session_id"]  # has no owner
    caller = {"key": "ann", "owner": "0123456789abcdef", "sees_all": False}
    limits = {"turns_at_a_time": None, "turns_per_minute": None}
    old = {"X-Mochi-Caller": json.dumps({**caller, **limits})}
    new = {**old, "X-Mochi-Caller-Limits": json.dumps({"tokens_per_day": 5})}
    with httpx.Client(base_url=f"{member.url}/api/v1") as client:
        client.headers["X-Mochi-Peer"] = token_for(database, member)
        for headers in (old, new):
            assert client.get("/tools", headers=headers).status_code == 200
            assert client.get(f"/sessions/{theirs}", headers=headers).status_code == 404
        for name, text in (
            ("X-Mochi-Caller", json.dumps({**caller, "a_later_field": 1})),
            ("X-Mochi-Caller", "{"),
            ("X-Mochi-Caller", "[]"),
            ("X-Mochi-Caller-Limits", json.dumps({"a_later_field": 1})),
            ("X-Mochi-Caller-Limits", json.dumps({"permissions": {"policy": "later"}})),
            ("X-Mochi-Caller-Limits", json.dumps({"sees_all": True})),
            ("X-Mochi-Caller-Limits", "3"),
        ):
            response = client.get("/tools", headers={**old, name: text})
            assert error_of(response) == (503, "SERVER_VERSIONS_DIFFER"), text
            assert "X-Mochi-Peer" in response.headers


def test_version_1_0_can_read_the_sent_caller(start: Start, tmp_path: Path) -> None:
    """It reads exactly these fields of one header, and ignores the other header."""
    keys = write_keys(tmp_path / "keys.yaml", ann={"tools": "[]", "tokens_per_day": 5000})
    received: list[Message] = []

    class Peer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            received.append(self.headers)
            self.send_error(404)

    with HTTPServer(("127.0.0.1", 0), Peer) as peer, ThreadPoolExecutor(1) as pool:
        running = start(
            api_keys_file=str(keys), advertise_url=f"http://127.0.0.1:{peer.server_port}"
        )
        other = start(api_keys_file=str(keys))
        with (
            Api(running.url, headers=headers_of("ann")) as ann,
            Api(other.url, headers=headers_of("ann")) as elsewhere,
        ):
            session_id = ann.create_session("mochi")["session_id"]
            with ann.open_stream(session_id, "hold") as events:
                next(events)
                serving = pool.submit(peer.handle_request)
                elsewhere.http.get(f"/chat/{session_id}/run")
                serving.result(60)
    (sent,) = received
    fields = {"key", "owner", "sees_all", "turns_at_a_time", "turns_per_minute"}
    assert json.loads(sent["X-Mochi-Caller"]).keys() == fields
    assert json.loads(sent["X-Mochi-Caller-Limits"])["permissions"]["tools"] == [[]]


def test_peer_requests_need_no_key_of_the_other_server(start: Start, holding: GatedStub) -> None:
    with (
        Api(start(api_keys=("a",)).url, headers={"Authorization": "Bearer a"}) as a,
        Api(start(api_keys=("b",)).url, headers={"Authorization": "Bearer b"}) as b,
    ):
        session_id = a.create_session("mochi")["session_id"]
        with a.open_stream(session_id, "hold") as events:
            next(events)
            headers = {"Origin": "http://localhost:3000"}
            response = b.http.get(
                f"/chat/{session_id}/run", headers={**headers, "X-Request-ID": "mine"}
            )
        assert b.ok(response)["state"] == "running"
        for name, value in {
            "Access-Control-Allow-Origin": headers["Origin"],
            "X-Request-ID": "mine",
        }.items():
            assert response.headers.get_list(name) == [value], (
                "of the server that was asked, and not of both"
            )
        assert "X-Mochi-Peer" not in response.headers


@pytest.fixture
def receiver(holding: GatedStub, database: str, tmp_path: Path) -> Iterator[Api]:
    """A server in this process, whose log can be read."""
    server = ThreadedServer(str(tmp_path), holding.stub.url, store_url=database)
    with server, Api(server.url) as api:
        yield api


@pytest.mark.parametrize("url", [UNREACHABLE, "http://server..internal"])
def test_unreachable_server_is_reported_with_its_address(
    start: Start, receiver: Api, caplog: pytest.LogCaptureFixture, url: str
) -> None:
    with Api(start(advertise_url=url).url) as a:
        session_id = a.create_session("mochi")["session_id"]
        with a.open_stream(session_id, "hold") as events, caplog.at_level(logging.ERROR):
            next(events)
            began = time.monotonic()
            response = receiver.http.post(f"/chat/{session_id}/stop")
            assert time.monotonic() - began < CONNECT_SECONDS + SLACK_SECONDS
            assert a.ok(a.http.get(f"/chat/{session_id}/run"))["state"] == "running"
    assert error_of(response) == (504, "SERVER_LOST")
    assert "MOCHI_ADVERTISE_URL" in response.json()["error"]["message"]
    assert f"url={url}" in caplog.text
    assert "Set MOCHI_ADVERTISE_URL of that server" in caplog.text


def test_server_without_an_address_is_reported(
    start: Start, receiver: Api, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    """During an upgrade, servers of the previous version have no address."""
    member = start()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("UPDATE processes SET url = '' WHERE url = %s", [member.url])
    with Api(member.url) as a:
        session_id = a.create_session("mochi")["session_id"]
        with a.open_stream(session_id, "hold") as events, caplog.at_level(logging.ERROR):
            next(events)
            assert error_of(receiver.http.get(f"/chat/{session_id}/run")) == (504, "SERVER_LOST")
            assert receiver.http.post("/tools/reload").status_code == 200
    assert caplog.text.count("peer unreachable") == 1


def test_address_that_leads_to_another_server_is_reported(
    start: Start, receiver: Api, caplog: pytest.LogCaptureFixture
) -> None:
    """For example the address of a load balancer.

    The request is neither handled there nor forwarded again.
    """
    with Api(start(advertise_url=str(receiver.http.base_url.copy_with(path="/"))).url) as a:
        session_id = a.create_session("mochi")["session_id"]
        with a.open_stream(session_id, "hold") as events, caplog.at_level(logging.ERROR):
            next(events)
            assert error_of(receiver.http.get(f"/chat/{session_id}/run")) == (504, "SERVER_LOST")
    assert "another server responds at this URL" in caplog.text


def test_server_that_restarts_at_its_address_responds_for_its_killed_process(
    start: Start,
) -> None:
    relay = CuttingRelay(UNREACHABLE)
    killed, replacement = (start(advertise_url=relay.url) for _ in range(2))
    relay.set_target(killed.url)
    with relay, Api(killed.url) as a, Api(replacement.url) as b:
        session_id = a.create_session("mochi")["session_id"]
        with a.open_stream(session_id, "hold") as events:
            run_id = next(events).id.partition(":")[0]
            killed.kill()
        relay.set_target(replacement.url)
        run = b.ok(b.http.get(f"/chat/{session_id}/run"))
    assert run == {"run_id": run_id, "state": "failed", "answer_id": None}


def test_requests_take_the_advertised_address(start: Start, holding: GatedStub) -> None:
    relay = CuttingRelay(UNREACHABLE)
    member = start(advertise_url=relay.url)
    relay.set_target(member.url)
    with relay, Api(member.url) as a, Api(start().url) as b:
        session_id = a.create_session("mochi")["session_id"]
        with a.open_stream(session_id, "hold") as mine:
            next(mine)
            with b.http.stream("GET", f"/chat/{session_id}/stream") as response:
                events = read_events(response)
                seen = [next(events) for _ in range(3)]
                assert relay.connections == 1
                relay.cut()
                seen += events
            holding.gate.open()
            assert list(mine)[-1].type == "done"
    assert [event.data.get("code") for event in seen[-2:]] == ["SERVER_LOST", None]
    assert [int(event.id.partition(":")[2]) for event in seen] == [1, 2, 3, 4, 5]


def test_stream_that_is_lost_before_its_first_event_ends_after_its_position(
    start: Start, holding: GatedStub
) -> None:
    relay = CuttingRelay(UNREACHABLE)
    member = start(advertise_url=relay.url)
    relay.set_target(member.url)
    with relay, Api(member.url) as a, Api(start().url) as b:
        session_id = a.create_session("mochi")["session_id"]
        with a.open_stream(session_id, "hold") as mine:
            latest = [next(mine) for _ in range(3)][-1]
            position = {"Last-Event-ID": latest.id}
            url = f"/chat/{session_id}/stream"
            with b.http.stream("GET", url, headers=position) as response:
                relay.cut()
                rest = list(read_events(response))
            holding.gate.open()
            assert list(mine)[-1].type == "done"
    run_id, _, number = latest.id.partition(":")
    assert [(event.id, event.data.get("code")) for event in rest] == [
        (f"{run_id}:{int(number) + 1}", "SERVER_LOST"),
        (f"{run_id}:{int(number) + 2}", None),
    ]


def test_stopped_server_refuses_the_requests_that_it_forwards(
    start: Start, holding: GatedStub
) -> None:
    running, stopped = start(), start(shutdown_grace_seconds=0)
    body, key = {"message": "hold"}, {"Idempotency-Key": "k1"}
    with ThreadPoolExecutor(1) as pool, Api(running.url) as a, Api(stopped.url) as b:
        session_id = a.create_session("mochi")["session_id"]
        with a.http.stream(
            "POST", f"/chat/{session_id}/stream", json=body, headers=key
        ) as response:
            events = read_events(response)
            next(events)
            forwarded = pool.submit(b.http.post, f"/chat/{session_id}", json=body, headers=key)
            until(lambda: "mochi_open_streams 2.0" in httpx.get(f"{running.url}/metrics").text)
            stopped.stop()
            assert error_of(forwarded.result()) == (503, "SHUTTING_DOWN")
            holding.gate.open()
            assert list(events)[-1].type == "done"


def test_each_worker_is_reached_at_the_advertised_host(
    holding: GatedStub, database: str, tmp_path: Path
) -> None:
    arguments = ("--port", "0", "--workers", "2", "--ollama-host", holding.stub.url)
    environment = {"MOCHI_STORE_URL": database, "MOCHI_ADVERTISE_URL": "http://localhost"}
    with Command("mochi_server", *arguments, cwd=tmp_path, **environment) as command:
        api = command.api(limits=httpx.Limits(max_keepalive_connections=0))
        session_id = api.create_session("mochi")["session_id"]
        with api.open_stream(session_id, "hold") as events:
            next(events)
            states = {api.ok(api.http.get(f"/chat/{session_id}/run"))["state"] for _ in range(12)}
            assert states == {"running"}
        with psycopg.connect(database) as connection:
            urls = {url for (url,) in connection.execute("SELECT url FROM processes")}
        ports = {url.removeprefix("http://localhost:") for url in urls}
        assert len(ports) == len(urls) >= 1
        assert all(port.isdecimal() for port in ports)
        assert f":{api.http.base_url.port}" not in urls
