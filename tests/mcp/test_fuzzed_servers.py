"""MCP servers that send generated answers to all requests."""

import os
import resource
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import StubServer
from tests.mcp.test_servers import called, session_with
from tests.support import latency
from tests.support.api import Api
from tests.support.instructions import instruct, words
from tests.support.mcp import by_hand, hostile, write_mcp
from tests.support.process import Command
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

HTTP_SEEDS, STDIO_SEEDS = range(1, 5), range(5, 9)
ANSWERS = int(os.environ.get("MOCHI_MCP_FUZZ_ANSWERS", "20"))
"""Number of generated answers of each MCP server.

Four servers use HTTP, and four use stdio. The full size is 500.
"""
WARM_UP_ANSWERS = min(200, 2 * ANSWERS)
"""Number of all generated answers before the memory is measured first."""
MIN_ANSWERS = ANSWERS // 10
"""Minimum number of generated answers to each kind of request."""
ANSWERS_PER_RELOAD = 100
"""Maximum average number of generated answers between reloads, which cause new connections and
lists of tools.
"""
CALLS = 10
"""Number of calls in each turn. Their arguments differ, because repeated calls are refused."""
STOP_SECONDS = 10


def test_generated_answers_disturb_nothing_else(stub: StubServer, tmp_path: Path) -> None:
    """At full size: two thousand answers over stdio and as many over HTTP, to all requests of the
    protocol.
    """
    with hostile_http(tmp_path) as remote, ThreadPoolExecutor(9) as pool:
        local = {
            f"random_{seed}": hostile(tmp_path, f"random_{seed}", seed=seed) for seed in STDIO_SEEDS
        }
        write_mcp(tmp_path, good=by_hand(tmp_path, "note"), **local, **remote)
        options = ["--port", "0", "--ollama-host", stub.url]
        with Command(
            "mochi_server", *options, cwd=tmp_path, MOCHI_TOOL_TIMEOUT_SECONDS="2"
        ) as command:
            api = command.api(timeout=60)
            until(lambda: "note" in api.ok(api.http.get("/tools"))["tools"])
            exit_code = pool.submit(
                command.wait
            )  # reads the log, because a full pipe would block the server
            with Watch(api, command.process.pid) as watch:
                call_all(api, tmp_path, watch, pool)
            counts = answers(tmp_path)
            figures = f"{dict(counts)}, {watch.longest:.3f} s, {watch.growth / 1024**2:.0f} MiB"
            assert set(counts) == {"s", "i", "l", "c"}  # server/discover, initialize, list, call
            assert min(counts.values()) >= MIN_ANSWERS, figures
            assert watch.longest < 0.25, figures
            assert watch.growth < 64 * 1024 * 1024, figures
            command.process.send_signal(signal.SIGTERM)
            assert exit_code.result(STOP_SECONDS) == 0
            assert "Traceback" not in "".join(command.output)


@contextmanager
def hostile_http(data_dir: Path) -> Iterator[dict[str, Any]]:
    """Run MCP servers in another process and yield their configuration entries."""
    program = [
        sys.executable,
        "-m",
        "tests.support.hostile_http",
        str(data_dir),
        *map(str, HTTP_SEEDS),
    ]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        url = f"http://127.0.0.1:{process.stdout.readline().strip()}"
        yield {
            f"random_{seed}": {"url": f"{url}/{seed}/{['json', 'events'][seed % 2]}"}
            for seed in HTTP_SEEDS
        }
        process.kill()


def answers(data_dir: Path, seed: int | str = "*") -> Counter[str]:
    """Return how many answers were generated for each request.

    A request is represented by its first letter.
    """
    return Counter("".join(journal.read_text() for journal in data_dir.glob(f"hostile-{seed}")))


def call_all(api: Api, data_dir: Path, watch: "Watch", pool: Executor) -> None:
    """Call the tools of all MCP servers until each of them has sent its answers.

    Calls of `note` must succeed.
    """
    reloads = Reloads(api)
    drivers = [
        pool.submit(call_often, api, data_dir, seed, reloads)
        for seed in (*HTTP_SEEDS, *STDIO_SEEDS)
    ]
    while not all(driver.done() for driver in drivers):
        with session_of(api, tool_group="good") as session_id:
            outcome = called(api, "note", session_id, text="on")
        assert outcome["result"] == "on", outcome
        total = answers(data_dir).total()
        if not watch.is_measuring and total >= WARM_UP_ANSWERS:
            watch.start_measuring()
        if total >= ANSWERS_PER_RELOAD * reloads.count:
            reloads.ensure(reloads.count)
    for driver in drivers:
        driver.result()


@contextmanager
def session_of(api: Api, **settings: Any) -> Iterator[str]:
    """Create a session, and delete it so that the server's memory has no cached conversations."""
    session_id = session_with(api, **settings)
    yield session_id
    assert api.http.delete(f"/sessions/{session_id}").status_code == 204


class Reloads:
    """Reloads of the tools by several threads."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._lock = threading.Lock()
        self.count = 0

    def ensure(self, seen: int) -> None:
        """Reload the tools unless another thread has done so since `count` was `seen`."""
        with self._lock:
            if self.count == seen:
                self._api.ok(self._api.http.post("/tools/reload"))
                self.count += 1


def call_often(api: Api, data_dir: Path, seed: int, reloads: Reloads) -> None:
    """Call the tool of an MCP server in many turns, with any outcome."""
    tool = f"random_{seed}"
    distinct = {
        "tool_call": [{"name": tool, "args": {"number": number}} for number in range(CALLS)]
    }
    while answers(data_dir, seed).total() < ANSWERS:
        seen = reloads.count
        with session_of(api, tool_group=None, tools=[tool]) as session_id:
            answer = api.send_message(session_id, instruct(distinct, words(2)))
        if answer["tool_calls_executed"][-1]["error_code"] == "TOOL_NOT_FOUND":
            reloads.ensure(seen)


class Watch:
    """Health checks of a server by another process, and measurement of the server's memory."""

    def __init__(self, api: Api, pid: int) -> None:
        self._command = [
            sys.executable,
            "-m",
            latency.__name__,
            str(api.http.base_url.port),
            str(pid),
        ]
        self._statm = Path(f"/proc/{pid}/statm")
        self._first_size = 0
        self.longest = 0.0
        """Duration of the longest health check in seconds, without the time for which it waited for a CPU."""
        self.growth = 0
        """Growth of the resident memory since `start_measuring`, in bytes."""

    def __enter__(self) -> "Watch":
        self._checks = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        output, _unused = self._checks.communicate()
        self.longest = float(output)
        self.growth = self._size() - self._first_size

    @property
    def is_measuring(self) -> bool:
        return self._first_size > 0

    def start_measuring(self) -> None:
        self._first_size = self._size()

    def _size(self) -> int:
        return int(self._statm.read_text().split()[1]) * resource.getpagesize()
