"""Keys with names at two servers: a forwarded request carries the owner."""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from mochi_stub import Gate, StubServer
from tests.servers.conftest import Start
from tests.support.agents import new_agent_chat, work_until, write_agent
from tests.support.api import Api, error_of
from tests.support.keys import headers, write_keys
from tests.support.waiting import until

pytestmark = pytest.mark.slow


def test_forwarded_requests_carry_the_owner(start: Start, tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys.yaml", ann={}, bob={}, root={"scope": "all"})
    first, second = (start(api_keys_file=str(keys)) for _ in range(2))
    ann, elsewhere, bob, user = (
        Api(server.url, headers=sent)
        for server, sent in (
            (first, headers("ann")),
            (second, headers("ann")),
            (second, headers("bob", **{"X-Mochi-Caller": '{"key": "ann"}'})),
            (second, headers("root", **{"X-Mochi-User": "one"})),
        )
    )
    session_id = ann.create_session("mochi")["session_id"]
    with ann, elsewhere, bob, user, ann.open_stream(session_id, "hold") as events:
        run_id = next(events).id.partition(":")[0]
        for api in (bob, user):
            for method, path in (
                ("GET", "run"),
                ("POST", "stop"),
                ("GET", "stream"),
                ("GET", "confirmations"),
            ):
                response = api.http.request(method, f"/chat/{session_id}/{path}")
                assert error_of(response) == (404, "SESSION_NOT_FOUND"), path
            for sent in ({}, {"Idempotency-Key": "a-key"}):
                response = api.http.post(
                    f"/chat/{session_id}", json={"message": "Hello"}, headers=sent
                )
                assert error_of(response) == (404, "SESSION_NOT_FOUND")
            decision = {"confirmation_id": "conf_0", "approved": True}
            assert (
                api.http.post(f"/chat/{session_id}/confirm-tool", json=decision).status_code == 404
            )
            assert error_of(api.http.delete(f"/sessions/{session_id}")) == (
                404,
                "SESSION_NOT_FOUND",
            )
            assert api.ok(api.http.get("/sessions")) == {"sessions": []}
            session = {**dict(api.http.headers), "X-Mochi-Session": session_id}
            body = {"model": "mochi", "messages": [{"role": "user", "content": "Hello"}]}
            assert (
                api.http.post(
                    f"{second.url}/v1/chat/completions", json=body, headers=session
                ).status_code
                == 404
            )
        assert elsewhere.ok(elsewhere.http.get(f"/chat/{session_id}/run")) == {
            "run_id": run_id,
            "state": "running",
            "answer_id": None,
        }
        assert elsewhere.ok(elsewhere.http.post(f"/chat/{session_id}/stop"))["state"] == "stopped"


def wait_for_next_second() -> None:
    now = time.time()
    until(lambda: int(time.time()) > now)


def test_repeated_request_to_an_agent_joins_the_turn_of_its_owner(
    start: Start, tmp_path: Path
) -> None:
    gate = Gate()
    write_agent(tmp_path)
    keys = write_keys(tmp_path / "keys.yaml", ann={"agents": "[helper]"})
    settings = {"api_keys_file": str(keys), "agents_dir": str(tmp_path / "agents")}
    with StubServer(speed=0, resolve=work_until(gate)) as stub, ExitStack() as stack:
        first, second = (start(stub.url, **settings) for _ in range(2))
        api = stack.enter_context(Api(first.url, headers=headers("ann")))
        chat = new_agent_chat(api)
        body = {
            "model": "agent:helper",
            "messages": [{"role": "user", "content": "Work."}],
            "stream": True,
        }
        sent = headers("ann", **{"X-Mochi-Session": chat, "Idempotency-Key": "k1"})
        streams = []
        for server in (first, second):
            url = f"{server.url}/v1/chat/completions"
            stream = api.http.stream("POST", url, json=body, headers=sent)
            streams.append(stack.enter_context(stream))
            wait_for_next_second()  # the streams have the time of their turn
        assert [stream.status_code for stream in streams] == [200, 200]
        gate.open()
        texts = [stream.read().decode() for stream in streams]
    assert texts[0] == texts[1]
