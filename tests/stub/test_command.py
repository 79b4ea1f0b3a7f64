"""The `mochi-stub` command."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from urllib.request import urlopen

import pytest

from mochi_stub import StubServer
from tests.support.waiting import until

COMMAND = [sys.executable, "-m", "mochi_stub"]


def run(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


@contextmanager
def serving(*arguments: str, env: Mapping[str, str] | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The running command and the first line that it printed."""
    with subprocess.Popen(
        [*COMMAND, *arguments],
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout
            yield process, process.stdout.readline()
        finally:
            process.kill()


def answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/health") as response:
            return bool(response.status == 200)
    except OSError:
        return False


def test_it_prints_its_version() -> None:
    printed = run("--version")
    assert (printed.returncode, printed.stdout) == (0, f"mochi-stub {version('mochi-server')}\n")


def test_help_and_version_load_no_server() -> None:
    program = (
        "import sys\nfrom mochi_stub.__main__ import main\n"
        + "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        + "print([name for name in ('uvicorn', 'asyncio', 'orjson') if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.endswith("\n[]\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--port", "x"),
        ("--port", "70000"),
        ("--speed", "-1"),
        ("--speed", "nan"),
        ("--seed", "x"),
        ("--what",),
        ("begin",),
        ("start", "--what"),
        ("stop", "--port", "x"),
        ("check",),
        ("run", "--parallel", "-1"),
        ("run", "--record", "http://localhost:11434"),
        ("run", "--to", "recordings"),
    ],
)
def test_wrong_arguments_are_one_line_and_code_2(arguments: tuple[str, ...]) -> None:
    printed = run(*arguments)
    assert (printed.returncode, printed.stdout) == (2, "")
    assert re.fullmatch(r"mochi-stub: .*\n", printed.stderr)


def test_a_taken_port_is_one_line_and_code_1() -> None:
    with StubServer() as stub:
        printed = run("--port", str(stub.port))
    assert (printed.returncode, printed.stdout) == (1, "")
    assert re.fullmatch(rf"mochi-stub: cannot listen on 127\.0\.0\.1:{stub.port}: .*in use\n", printed.stderr)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_ends_it(number: signal.Signals) -> None:
    with serving("--port", "0") as (process, line):
        found = re.fullmatch(r"mochi-stub on (http://127\.0\.0\.1:\d+)\n", line)
        assert found
        with urlopen(f"{found[1]}/api/version") as response:
            assert response.status == 200
        process.send_signal(number)
        assert process.wait(5) == 0
        assert process.stderr
        assert process.stderr.read() == "INFO GET /api/version 200 finished, 0 chunks\n"


def test_a_reply_that_runs_is_let_end_and_a_second_signal_ends_it() -> None:
    with serving("--port", "0", "--speed", "8") as (process, line):
        url = line.split()[-1]
        words = '<|instruction_start|>{"messages": [{"text_message": {"length": 100}}]}<|instruction_end|>'
        with urlopen(f"{url}/api/generate", json.dumps({"model": "mochi", "prompt": words}).encode()) as response:
            assert response.readline()
            process.send_signal(signal.SIGTERM)
            assert json.loads(response.read().splitlines()[-1])["done"]
        assert process.wait(5) == 0
    with serving("--port", "0") as (process, line):
        url = line.split()[-1]
        with urlopen(f"{url}/api/generate", b'{"model": "paused-stream", "prompt": "hello"}') as response:
            assert response.readline()
            process.send_signal(signal.SIGTERM)
            until(lambda: not answers(url))
            process.send_signal(signal.SIGTERM)
            assert process.wait(3) == -signal.SIGTERM


def test_what_listens_everywhere_is_found_on_the_loopback() -> None:
    with serving("--port", "0", "--host", "0.0.0.0") as (_, line):  # noqa: S104  # what is tested
        assert re.fullmatch(r"mochi-stub on http://127\.0\.0\.1:\d+\n", line)
        assert answers(line.split()[-1])


def test_the_port_may_come_from_the_environment() -> None:
    with StubServer() as stub:
        port = stub.port
    with serving(env={"PORT": str(port)}) as (_, line):
        assert line == f"mochi-stub on http://127.0.0.1:{port}\n"
    assert run(env={"PORT": "x"}).returncode == 2


def test_what_cannot_be_recorded_is_one_line(tmp_path: Path) -> None:
    printed = run("run", "--port", "0", "--record", "nowhere", "--to", str(tmp_path))
    assert (printed.returncode, printed.stdout) == (1, "")
    assert printed.stderr == "mochi-stub: not the URL of a server: 'nowhere'\n"


def test_the_command_records_what_a_server_says(tmp_path: Path) -> None:
    with (
        StubServer(speed=0) as real,
        serving("run", "--port", "0", "--record", real.url, "--to", str(tmp_path)) as (_, line),
    ):
        body = b'{"model": "mochi", "messages": [{"role": "user", "content": "hello"}]}'
        with urlopen(f"{line.split()[-1]}/api/chat", body) as response:
            assert response.read().endswith(b"}\n")
    assert {path.suffix for path in tmp_path.iterdir()} == {".yaml"}
    assert len(list(tmp_path.iterdir())) == 2  # the recording, and a configuration that replays it


def test_a_stub_is_no_other_than_itself_and_what_is_not_there_cannot_be_compared() -> None:
    with StubServer(speed=0) as stub:
        assert run("verify", stub.url, "--model", "mochi").returncode == 0
        assert run("verify", stub.url, "--model", "nope").returncode == 2
