"""`mochi-stub start`, `stop`, `restart`, `status`: a server in the background and its PID file."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from mochi_stub import StubServer

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="servers in the background need a POSIX system")

Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    """Runs the command with a folder of its own for PID files; what it leaves running is ended."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "mochi_stub", *arguments],
            env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )

    yield run
    for pid_file in tmp_path.rglob("*.pid"):
        run("stop", "--pid-file", str(pid_file))


def port_of(line: str) -> str:
    found = re.fullmatch(r"mochi-stub on http://127\.0\.0\.1:(\d+)\n", line)
    assert found, line
    return found[1]


def free_port() -> str:
    with StubServer() as stub:
        return str(stub.port)


def answers(port: str) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/health") as response:
            return bool(response.status == 200)
    except OSError:
        return False


def test_start_returns_when_the_server_answers_and_stop_when_it_is_gone(command: Command) -> None:
    started = command("start", "--port", "0")
    port = port_of(started.stdout)
    assert (started.returncode, started.stderr) == (0, "")
    assert answers(port)
    status = command("status", "--port", port)
    assert status.returncode == 0
    assert re.fullmatch(rf"mochi-stub on http://127\.0\.0\.1:{port} \(process \d+\)\n", status.stdout)
    stopped = command("stop", "--port", port)
    assert (stopped.returncode, stopped.stdout) == (0, f"mochi-stub on http://127.0.0.1:{port} has ended\n")
    assert not answers(port)
    assert command("status", "--port", port).returncode == 3


def test_the_options_of_start_reach_the_server(command: Command, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text('models:\n  mine:\n    - _default: "Hello."\n')
    port = port_of(command("start", "--port", "0", "--config", str(config), "--speed", "0").stdout)
    with urlopen(f"http://127.0.0.1:{port}/api/tags") as response:
        assert [model["name"] for model in json.load(response)["models"]] == ["mine:latest"]


def test_a_second_start_says_where_the_first_one_runs(command: Command) -> None:
    port = port_of(command("start", "--port", "0").stdout)
    again = command("start", "--port", port)
    assert (again.returncode, again.stdout) == (1, "")
    assert re.fullmatch(rf"mochi-stub: already running on http://127\.0\.0\.1:{port} \(process \d+\)\n", again.stderr)
    assert answers(port)


def test_restart_puts_a_new_process_in_the_place_of_the_old_one(command: Command) -> None:
    port = port_of(command("start", "--port", "0").stdout)
    before = command("status", "--port", port).stdout
    restarted = command("restart", "--port", port)
    assert (restarted.returncode, port_of(restarted.stdout)) == (0, port)
    assert command("status", "--port", port).stdout != before
    assert answers(port)


def test_restart_of_what_does_not_run_is_a_start(command: Command) -> None:
    port = free_port()
    assert port_of(command("restart", "--port", port).stdout) == port


def test_there_may_be_nothing_to_stop(command: Command) -> None:
    stopped = command("stop", "--port", "1")
    assert (stopped.returncode, stopped.stdout) == (1, "")
    assert stopped.stderr == "mochi-stub: nothing to stop: no server was started on port 1\n"


def test_a_port_in_use_is_one_line(command: Command) -> None:
    with StubServer() as stub:
        started = command("start", "--port", str(stub.port))
    assert (started.returncode, started.stdout) == (1, "")
    assert re.fullmatch(rf"mochi-stub: cannot listen on 127\.0\.0\.1:{stub.port}: .*in use\n", started.stderr)


def test_the_pid_file_of_a_server_that_was_killed_is_stale(command: Command, tmp_path: Path) -> None:
    pid_file = tmp_path / "mine.pid"
    place = ("--pid-file", str(pid_file))
    port = port_of(command("start", "--port", "0", *place).stdout)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        assert f"http://127.0.0.1:{port}" in command("status", *place).stdout
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
        waited = command("restart", "--port", port, *place)
        assert waited.returncode == 0
        command("stop", *place)
        assert [file.name for file in tmp_path.glob("mine.*")] == ["mine.log"]
        pid_file.write_text(f"{other.pid}\n")
        assert command("status", *place).returncode == 3
        assert not pid_file.exists()
        pid_file.write_text(str(other.pid))
        assert command("stop", *place).returncode == 1
        assert other.poll() is None
        other.communicate(b"\n")


@pytest.mark.parametrize("name", ["status", "start", "run"])
def test_a_file_that_is_no_pid_file_is_left_alone(command: Command, tmp_path: Path, name: str) -> None:
    precious = tmp_path / "notes.txt"
    precious.write_text("bread\nmilk\n")
    done = command(name, "--port", free_port(), "--pid-file", str(precious))
    assert (done.returncode, done.stderr) == (1, f"mochi-stub: {precious} is no PID file of mochi-stub\n")
    assert precious.read_text() == "bread\nmilk\n"


def test_the_log_has_the_name_of_the_port(command: Command, tmp_path: Path) -> None:
    port = port_of(command("start", "--port", "0").stdout)
    command("stop", "--port", port)
    assert [file.name for file in tmp_path.rglob("*.*")] == [f"{port}.log"]
    beside = tmp_path / "mine.log"
    command("start", "--port", "0", "--pid-file", str(beside))
    assert beside.read_text().splitlines()[0].isdigit()
    command("stop", "--pid-file", str(beside))


def test_a_pid_file_where_none_can_be_is_one_line(command: Command, tmp_path: Path) -> None:
    started = command("start", "--port", "0", "--pid-file", str(tmp_path / "no" / "folder.pid"))
    assert (started.returncode, started.stdout) == (1, "")
    assert re.fullmatch(r"mochi-stub: No such file or directory: .*\n", started.stderr)


def test_a_configuration_with_a_mistake_keeps_it_from_starting(command: Command, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("models: 5\n")
    started = command("start", "--port", "0", "--config", str(config))
    assert (started.returncode, started.stdout) == (1, "")
    assert re.fullmatch(r"mochi-stub: .*config\.yaml.*\n", started.stderr)


def test_a_restart_with_a_mistake_leaves_the_server_alone(command: Command, tmp_path: Path) -> None:
    port = port_of(command("start", "--port", "0").stdout)
    (tmp_path / "config.yaml").write_text("models: 5\n")
    restarted = command("restart", "--port", port, "--config", str(tmp_path / "config.yaml"))
    assert (restarted.returncode, restarted.stdout) == (1, "")
    assert re.fullmatch(r"mochi-stub: .*config\.yaml:1: expected .*\n", restarted.stderr)
    assert answers(port)


def test_check_tells_every_mistake_with_its_place(command: Command, tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text('models:\n  mine:\n    - _default: "Hello."\n')
    assert command("check", str(config)).returncode == 0
    config.write_text("models:\n  a:\n    - _inherit: b\n  b:\n    - _inherit: a\n")
    checked = command("check", str(config))
    assert (checked.returncode, checked.stdout) == (1, "")
    assert str(config) in checked.stderr
    assert command("check", str(tmp_path / "none.yaml")).returncode == 1
