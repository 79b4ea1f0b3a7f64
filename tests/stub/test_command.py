"""The `mochi-stub` command."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from importlib.metadata import version
from urllib.request import urlopen

import pytest

from mochi_stub import StubServer
from tests.stub.commands import COMMAND, call_command, run_command
from tests.support.cases import cases
from tests.support.waiting import until


@contextmanager
def run_server(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The running command and the first line that it printed."""
    with subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout
            yield process, process.stdout.readline()
        finally:
            process.kill()


def is_healthy(url: str) -> bool:
    try:
        with urlopen(f"{url}/health") as response:
            return bool(response.status == 200)
    except OSError:
        return False


def test_version_is_printed() -> None:
    printed = call_command("--version")
    assert (printed.returncode, printed.stdout) == (0, f"mochi-stub {version('mochi-server')}\n")


def test_help_and_version_load_no_server() -> None:
    program = (
        "import sys\nfrom mochi_stub.__main__ import main\n"
        + "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        + "print([name for name in ('uvicorn', 'asyncio', 'orjson') if name in sys.modules])"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert printed.endswith("\n[]\n")


@cases(
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
    ],
)
def test_wrong_arguments_print_one_line_and_exit_2(arguments: tuple[str, ...]) -> None:
    printed = call_command(*arguments)
    assert (printed.returncode, printed.stdout) == (2, "")
    assert re.fullmatch(r"mochi-stub: .*\n", printed.stderr)


def test_process_exits_with_the_code_of_the_command() -> None:
    printed = run_command("--port", "x")
    assert (printed.returncode, printed.stdout, printed.stderr.count("\n")) == (2, "", 1)


def test_used_port_prints_one_line_and_exits_1() -> None:
    with StubServer() as stub:
        printed = call_command("--port", str(stub.port))
    assert (printed.returncode, printed.stdout) == (1, "")
    assert re.fullmatch(
        rf"mochi-stub: cannot listen on 127\.0\.0\.1:{stub.port}: .*in use\. .*port\n",
        printed.stderr,
    )


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGINT]
)
def test_signal_ends_a_server_on_all_addresses(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StubServer() as stub:
        port = stub.port
    monkeypatch.setenv("PORT", str(port))
    with run_server("run", "--host", "0.0.0.0", "--speed", "0") as (process, line):  # noqa: S104
        assert line == f"mochi-stub on http://127.0.0.1:{port}\n"
        body = b'{"model": "mochi", "messages": [{"role": "user", "content": "hello"}]}'
        with urlopen(f"http://127.0.0.1:{port}/api/chat", body) as response:
            assert response.read().endswith(b"}\n")
        process.send_signal(number)
        assert process.wait(5) == 0
        assert process.stderr
        expected = r"INFO POST /api/chat status=200 outcome=finished chunks=\d+ mode=text\n"
        assert re.fullmatch(expected, process.stderr.read())


def test_model_stays_loaded_for_the_time_of_the_option() -> None:
    with run_server("run", "--port", "0", "--speed", "0", "--keep-alive", "7") as (_, line):
        url = line.split()[-1]
        with urlopen(f"{url}/api/generate", b'{"model": "mochi", "prompt": "hello"}') as response:
            response.read()
        with urlopen(f"{url}/stub/state") as response:
            (model,) = json.load(response)["models"]
    assert model["keep_alive"] == 7


def test_invalid_port_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "x")
    printed = call_command()
    problem = "mochi-stub: PORT must be a number from 0 to 65535, not 'x'\n"
    assert (printed.returncode, printed.stderr) == (2, problem)


def stream_reply(url: str, model: str, prompt: str) -> HTTPResponse:
    """Start a reply and return it when its first line has arrived."""
    response: HTTPResponse = urlopen(
        f"{url}/api/generate", json.dumps({"model": model, "prompt": prompt}).encode()
    )
    assert response.readline()
    return response


def word_instruction(number: int) -> str:
    return (
        f'<|instruction_start|>{{"messages": [{{"text_message": {{"length": '
        f"{number}}}}}]}}<|instruction_end|>"
    )


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_ends_the_server_after_running_reply(second: signal.Signals) -> None:
    with run_server("--port", "0") as (process, line):
        url = line.split()[-1]
        with (
            stream_reply(url, "mochi", word_instruction(15)) as short,
            stream_reply(url, "paused-stream", "hello"),
        ):
            process.send_signal(signal.SIGTERM)
            assert json.loads(short.read().splitlines()[-1])["done"]
            until(lambda: not is_healthy(url))
            process.send_signal(second)
            assert process.wait(3) == -second


@pytest.mark.slow
def test_server_exits_when_its_running_reply_has_ended() -> None:
    with run_server("--port", "0", "--speed", "8") as (process, line):
        with stream_reply(line.split()[-1], "mochi", word_instruction(100)) as response:
            process.send_signal(signal.SIGTERM)
            assert json.loads(response.read().splitlines()[-1])["done"]
        assert process.wait(5) == 0
