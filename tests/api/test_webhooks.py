"""Webhooks about runs: what is sent, repeats, and restarts."""

import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pydantic import ValidationError
from standardwebhooks import Webhook

from mochi_server.config import MochiServerSettings
from mochi_server.telemetry.webhooks import PAUSES
from mochi_stub import Cut, Gate, Prompt, Reply, StubServer, Text
from tests.support.instructions import calls, instruct
from tests.support.server import RunningServer
from tests.support.tools import write_tools
from tests.support.waiting import until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TOOL = """
def one() -> str:
    "One."
    return "1"

__all__ = ["one"]
"""


class Receiver:
    """HTTP server that records webhooks. It answers with ``statuses`` in turn, and then with 204."""

    def __init__(self) -> None:
        self.received: list[tuple[dict[str, str], bytes]] = []
        self.statuses: list[int] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.received.append(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(receiver.statuses.pop(0) if receiver.statuses else 204)
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def wait(self, count: int) -> list[dict[str, Any]]:
        """Wait for ``count`` webhooks, verify their signatures and return their bodies."""
        until(lambda: len(self.received) >= count)
        return [Webhook(SECRET).verify(body, headers) for headers, body in self.received]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def resolve(prompt: Prompt) -> Reply | None:
    if prompt.user_text == "hold":
        return Reply([Text(["one "]), Gate()])
    return Reply([Text(["one "]), Cut()]) if prompt.user_text == "fail" else None


@pytest.fixture(scope="module")
def own_stub() -> Iterator[StubServer]:
    with StubServer(speed=0, resolve=resolve) as stub:
        yield stub


def hooks(receiver: Receiver) -> dict[str, Any]:
    return {"webhook_url": receiver.url, "webhook_secret": SECRET, "summarization_enabled": False}


def test_ended_and_waiting_runs_are_reported(tmp_path: Path, own_stub: StubServer, receiver: Receiver) -> None:
    write_tools(tmp_path, TOOL)
    with RunningServer(tmp_path, own_stub.url, **hooks(receiver)) as server:
        api = server.client
        session_id = api.create_session("mochi", tool_settings={"tools": ["one"]})["session_id"]
        path = f"/chat/{session_id}"
        api.ok(api.http.post(path, json={"message": instruct(calls("one")), "background": True}), 202)
        (waits,) = receiver.wait(1)
        run_id = api.ok(api.http.get(f"{path}/run"))["run_id"]
        assert waits["type"] == "run.waiting_for_approval"
        assert waits["data"] == {"session_id": session_id, "run_id": run_id}
        (call,) = api.ok(api.http.get(f"{path}/confirmations"))["confirmations"]
        api.ok(
            api.http.post(f"{path}/confirm-tool", json={"confirmation_id": call["confirmation_id"], "approved": True})
        )
        assert receiver.wait(2)[1]["type"] == "run.completed"
        assert receiver.wait(2)[1]["data"] == {"session_id": session_id, "run_id": run_id}
        assert api.http.post(path, json={"message": "fail"}).status_code == 502
        assert receiver.wait(3)[2]["type"] == "run.failed"
    texts = b"".join(body for _, body in receiver.received)
    assert all(text not in texts for text in (b"fail", b"one", b"instruction")[1:])


def test_stopped_run_is_not_reported(tmp_path: Path, own_stub: StubServer, receiver: Receiver) -> None:
    with RunningServer(tmp_path, own_stub.url, **hooks(receiver)) as server:
        api = server.client
        session_id = api.create_session("mochi")["session_id"]
        api.ok(api.http.post(f"/chat/{session_id}", json={"message": "hold", "background": True}), 202)
        api.ok(api.http.post(f"/chat/{session_id}/stop"))
        api.send_message(session_id, "Hi")
        assert [event["type"] for event in receiver.wait(1)] == ["run.completed"]
        run_id = api.ok(api.http.get(f"/chat/{session_id}/run"))["run_id"]
        assert receiver.wait(1)[0]["data"]["run_id"] == run_id


@pytest.mark.parametrize("status", [500, 302])
def test_refused_webhook_is_repeated_with_its_id(
    tmp_path: Path, own_stub: StubServer, receiver: Receiver, status: int
) -> None:
    receiver.statuses = [status]
    with RunningServer(tmp_path, own_stub.url, **hooks(receiver)) as server:
        session_id = server.client.create_session("mochi")["session_id"]
        server.client.send_message(session_id, "Hi")
        first, second = receiver.wait(2)
    assert first == second
    assert len({headers["webhook-id"] for headers, _ in receiver.received}) == 1
    assert len(receiver.received) == 2  # the redirect was not followed


def test_webhook_is_sent_after_a_restart(tmp_path: Path, own_stub: StubServer, receiver: Receiver) -> None:
    receiver.statuses = [500]
    with RunningServer(tmp_path, own_stub.url, **hooks(receiver)) as server:
        session_id = server.client.create_session("mochi")["session_id"]
        server.client.send_message(session_id, "Hi")
        receiver.wait(1)
    with RunningServer(tmp_path, own_stub.url, **hooks(receiver)):
        first, second = receiver.wait(2)
        assert first == second
    with RunningServer(tmp_path, own_stub.url, **hooks(receiver)) as server:
        server.client.send_message(session_id, "Hi")
        assert len(receiver.wait(3)) == 3


def test_pauses_grow_and_last_an_hour() -> None:
    assert sorted(set(PAUSES)) == PAUSES
    assert PAUSES[0] <= 5
    assert sum(PAUSES) >= 3600


@pytest.mark.parametrize("url", ["ftp://example.com", "example.com/hook", "http://", "https:///path"])
def test_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="not an http:// or https:// URL"):
        MochiServerSettings(webhook_url=url, webhook_secret=SECRET)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_no base64!", "whsec_c2hvcnQ=", "päss"])
def test_invalid_secret_is_refused(secret: str) -> None:
    with pytest.raises(ValidationError, match="webhook_secret"):
        MochiServerSettings(webhook_url="https://example.com/hook", webhook_secret=secret)


def test_settings_do_not_print_the_secret() -> None:
    settings = MochiServerSettings(webhook_url="https://example.com/hook", webhook_secret=SECRET)
    assert SECRET not in repr(settings)


@pytest.mark.slow
def test_missing_secret_stops_the_start_with_one_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mochi_server", "--data-dir", str(tmp_path)]
    environment = {"MOCHI_WEBHOOK_URL": "https://example.com/hook", "PATH": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert len(done.stderr.strip().splitlines()) == 1
    assert "MOCHI_WEBHOOK_SECRET" in done.stderr
