"""Rolling restarts of two servers behind the nginx of the production page."""

import json
import signal
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from mochi_stub import StubServer
from tests.docs_tooling import proxies
from tests.docs_tooling.pages import ROOT
from tests.docs_tooling.proxies import SITE, Proxy, replaced
from tests.support.api import read_events
from tests.support.holding import GatedStub
from tests.support.instructions import instruct, words
from tests.support.ports import free_port
from tests.support.process import Command
from tests.support.waiting import until

pytestmark = pytest.mark.slow

CONFIGURATION = ROOT / "docs" / "examples" / "deploy" / "nginx.conf"
GRACE_SECONDS = 60
"""Grace period that no test waits for: a server must end before, as soon as its turns have ended.
"""
MESSAGE = instruct(words(20))


@dataclass
class Site:
    """Two servers that share a database, behind nginx."""

    directory: Path
    ollama: StubServer
    database: str
    grace_seconds: int = GRACE_SECONDS
    ports: list[int] = field(default_factory=lambda: [free_port(), free_port()])
    servers: list[Command] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator[Proxy]:
        """Run the servers and nginx with the configuration of the production page."""
        block = replaced(CONFIGURATION.read_text(), "10.0.0.5:8000", f"127.0.0.1:{self.ports[0]}")
        block = replaced(block, "10.0.0.6:8000", "127.0.0.1:8000")  # which `nginx` replaces
        with ExitStack() as stack:
            self._stack = stack
            self.servers = [self.start(port) for port in self.ports]
            yield stack.enter_context(
                proxies.nginx(block, self.directory, f"127.0.0.1:{self.ports[1]}")
            )

    def start(self, port: int) -> Command:
        # The test reads no more output, and a full pipe would stop the server.
        arguments = (
            "--port",
            str(port),
            "--ollama-host",
            self.ollama.url,
            "--log-level",
            "WARNING",
        )
        settings = {
            "MOCHI_STORE_URL": self.database,
            "MOCHI_ALLOWED_ORIGINS": f"https://{SITE}",
            "MOCHI_SHUTDOWN_GRACE_SECONDS": str(self.grace_seconds),
        }
        command = Command("mochi_server", *arguments, cwd=self.directory, **settings)
        self._stack.enter_context(command)
        command.read_until("curl -N")
        return command

    def client(self, proxy: Proxy) -> httpx.Client:
        trusted = ssl.create_default_context(cafile=self.directory / "site.crt")
        trusted.check_hostname = False
        url = f"https://127.0.0.1:{proxy.port}"
        return httpx.Client(
            base_url=url, headers={"Host": SITE}, verify=trusted, timeout=120, trust_env=False
        )


class Client:
    """Client that sends one message after another.

    Each method sends one and checks that its answer is complete.
    """

    def __init__(self, http: httpx.Client) -> None:
        self.http = http
        self.turns = 0
        self.session_id: str = self._ok(
            http.post("/api/v1/sessions", json={"model": "mochi"}), 201
        )["session_id"]

    def collect(self) -> None:
        self._ok(self.http.post(f"/api/v1/chat/{self.session_id}", json={"message": MESSAGE}))

    def stream(self) -> None:
        path = f"/api/v1/chat/{self.session_id}/stream"
        with self.http.stream("POST", path, json={"message": MESSAGE}) as response:
            kinds = [event.type for event in read_events(self._opened(response))]
        assert kinds[-2:] == ["message_complete", "done"], kinds

    def resume(self) -> None:
        """Start a turn in the background, and read its stream in two parts.

        If the server of the turn has ended in between, the second part begins with a snapshot. If
        it has ended even before the first part, no server has the events of the turn.
        """
        body = {"message": MESSAGE, "background": True}
        self._ok(self.http.post(f"/api/v1/chat/{self.session_id}", json=body), 202)
        path = f"/api/v1/chat/{self.session_id}/stream"
        with self.http.stream("GET", path) as response:
            if response.status_code == 204:
                run = self._ok(self.http.get(f"/api/v1/chat/{self.session_id}/run"))
                assert run["state"] == "completed"
                return
            first = next(read_events(self._opened(response)))
        with self.http.stream("GET", path, headers={"Last-Event-ID": first.id}) as response:
            rest = list(read_events(self._opened(response)))
        run_id, _, read = first.id.partition(":")
        begin = int(read) + 1
        if rest[0].type == "snapshot":
            _, _, number = rest[0].id.partition(":")
            assert int(number) >= begin
            begin = int(number)
        expected = [f"{run_id}:{number}" for number in range(begin, begin + len(rest))]
        assert [event.id for event in rest] == expected
        assert [event.type for event in rest[-2:]] == ["message_complete", "done"]

    def complete(self) -> None:
        """Stream a chat completion in the session."""
        self._complete({"X-Mochi-Session": self.session_id})

    def complete_without_session(self) -> None:
        self._complete({})

    def _complete(self, headers: dict[str, str]) -> None:
        body: dict[str, Any] = {
            "model": "mochi",
            "messages": [{"role": "user", "content": MESSAGE}],
            "stream": True,
        }
        with self.http.stream(
            "POST", "/v1/chat/completions", json=body, headers=headers
        ) as response:
            *chunks, last = [
                line.removeprefix("data: ") for line in self._opened(response).iter_lines() if line
            ]
        assert last == "[DONE]"
        assert json.loads(chunks[-1])["choices"][0]["finish_reason"] == "stop"

    @staticmethod
    def _opened(response: httpx.Response) -> httpx.Response:
        if response.status_code != 200:
            response.read()
            raise AssertionError((response.status_code, response.text))
        return response

    @staticmethod
    def _ok(response: httpx.Response, status: int = 200) -> dict[str, Any]:
        assert response.status_code == status, response.text
        found: dict[str, Any] = response.json()
        return found


KINDS: list[Callable[[Client], None]] = [
    Client.collect,
    Client.stream,
    Client.resume,
    Client.complete,
    Client.complete_without_session,
]


@pytest.mark.parametrize("of_each_kind", [1, pytest.param(4, marks=pytest.mark.nightly)])
def test_rolling_restart_fails_no_message_and_cuts_no_stream(
    tmp_path: Path, database: str, of_each_kind: int
) -> None:
    """Clients send messages during the restarts.

    Each server ends as soon as its last turn has ended.
    """
    kinds = KINDS * of_each_kind
    stopped = Event()
    running: list[Client] = []

    def talk(
        http: httpx.Client, send: Callable[[Client], None]
    ) -> tuple[int, list[dict[str, Any]]]:
        client = Client(http)
        running.append(client)
        while not stopped.is_set():
            send(client)
            client.turns += 1
        messages = client._ok(http.get(f"/api/v1/sessions/{client.session_id}"))["messages"]
        return client.turns, messages

    with ThreadPoolExecutor(len(kinds)) as pool, StubServer(speed=2) as stub, ExitStack() as stack:
        site = Site(tmp_path, stub, database)
        proxy = stack.enter_context(site.running())
        stack.callback(stopped.set)
        talks = [pool.submit(talk, stack.enter_context(site.client(proxy)), kind) for kind in kinds]

        def all_have_answers(number: int) -> bool:
            failed = [each for each in talks if each.done()]
            assert not failed, failed[0].result()
            return len(running) == len(kinds) and all(client.turns >= number for client in running)

        until(lambda: all_have_answers(1), 120)
        for server, port in zip(site.servers, site.ports, strict=True):
            began = time.monotonic()
            assert server.end() == 0
            assert time.monotonic() - began < GRACE_SECONDS
            site.start(port)
            done = max(client.turns for client in running)
            until(partial(all_have_answers, done + 1), 120)
        stopped.set()
        for kind, ended in zip(kinds, talks, strict=True):
            turns, messages = ended.result(120)
            stored = 0 if kind is Client.complete_without_session else turns
            assert [each["role"] for each in messages] == ["user", "assistant"] * stored
            assert not any(each.get("interrupted") for each in messages)


def test_message_of_an_ended_turn_is_sent_on_and_stored_once(
    holding: GatedStub, tmp_path: Path, database: str
) -> None:
    """The server has stored the message and a partial answer, and responds with 503.

    The client sends no key.
    """
    site = Site(tmp_path, holding.stub, database, grace_seconds=0)
    with site.running() as proxy, site.client(proxy) as http, ThreadPoolExecutor(1) as pool:
        session_id = Client(http).session_id
        answer = pool.submit(http.post, f"/api/v1/chat/{session_id}", json={"message": "hold"})

        def runs_a_turn(port: int) -> bool:
            return "mochi_running_turns 1.0" in httpx.get(f"http://127.0.0.1:{port}/metrics").text

        until(lambda: any(runs_a_turn(port) for port in site.ports))
        first = 0 if runs_a_turn(site.ports[0]) else 1
        site.servers[first].process.send_signal(signal.SIGTERM)
        until(lambda: runs_a_turn(site.ports[1 - first]))
        holding.gate.open()
        response = answer.result()
        assert response.status_code == 200, response.text
        assert response.json()["message"]["content"] == "one two three four"
        messages = http.get(f"/api/v1/sessions/{session_id}").json()["messages"]
        assert [each["content"] for each in messages] == ["hold", "one two three four"]
        assert site.servers[first].wait() == 0
