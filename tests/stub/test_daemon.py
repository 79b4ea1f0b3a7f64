"""`mochi-stub start`, `stop`, `restart`, `status`: a server in the background and its PID file."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import pytest

from mochi_stub import StubServer
from tests.stub.commands import Finished, call_command, run_command
from tests.support import ports
from tests.support.cases import cases

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="servers in the background need a POSIX system"
)

CONFIG = 'models:\n  mine:\n    - _default: "Hello."\n'


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    """The output of a `start` whose server runs during this module's tests.

    Its directory is XDG_RUNTIME_DIR.
    """
    folder = tmp_path_factory.mktemp("runtime")
    (folder / "config.yaml").write_text(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        yield run_command(
            "start", "--port", "0", "--config", str(folder / "config.yaml"), "--speed", "0"
        )
        end_servers(folder)


@pytest.fixture
def port(started: Finished) -> str:
    """The port of the server that runs in the background."""
    return port_of(started)


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder for PID files. Servers that run when the test ends are stopped."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    yield tmp_path
    end_servers(tmp_path)


def end_servers(folder: Path) -> None:
    for address in folder.rglob("*.url"):
        pid_file = address.with_suffix("")
        process = int(pid_file.read_text())
        call_command("stop", "--pid-file", str(pid_file))
        with suppress(ChildProcessError):
            os.waitpid(process, 0)


def port_of(started: Finished) -> str:
    found = re.fullmatch(r"mochi-stub on http://127\.0\.0\.1:(\d+)\n", started.stdout)
    assert found, started
    return found[1]


def free_port() -> str:
    return str(ports.free_port())


def is_healthy(port: str) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/health") as response:
            return bool(response.status == 200)
    except OSError:
        return False


def test_start_returns_when_the_server_answers(started: Finished, port: str) -> None:
    assert (started.returncode, started.stderr) == (0, "")
    assert is_healthy(port)


def test_start_passes_its_options_to_the_server(port: str) -> None:
    with urlopen(f"http://127.0.0.1:{port}/api/tags") as response:
        assert [model["name"] for model in json.load(response)["models"]] == ["mine:latest"]


def test_status_names_the_url_and_the_process(port: str) -> None:
    status = call_command("status", "--port", port)
    assert status.returncode == 0
    assert re.fullmatch(
        rf"mochi-stub on http://127\.0\.0\.1:{port} \(process \d+\)\n", status.stdout
    )


def test_second_start_names_the_running_server(port: str) -> None:
    again = call_command("start", "--port", port)
    assert (again.returncode, again.stdout) == (1, "")
    running = rf"mochi-stub: already running on http://127\.0\.0\.1:{port} \(process \d+\); use restart to replace it\n"
    assert re.fullmatch(running, again.stderr)
    assert is_healthy(port)


def test_restart_with_invalid_config_keeps_the_server(port: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("models: 5\n")
    restarted = call_command("restart", "--port", port, "--config", str(tmp_path / "config.yaml"))
    assert (restarted.returncode, restarted.stdout) == (1, "")
    assert re.fullmatch(r"mochi-stub: .*config\.yaml:1: expected .*\n", restarted.stderr)
    assert is_healthy(port)


def test_restart_replaces_the_process_and_keeps_its_options(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own_folder / "config.yaml").write_text(CONFIG)
    (own_folder / "elsewhere").mkdir()
    monkeypatch.chdir(own_folder)
    port = free_port()
    first = call_command(
        "restart", "--port", port, "--config", "config.yaml", "--speed", "0"
    )  # starts a server
    assert (first.returncode, port_of(first)) == (0, port)
    before = call_command("status", "--port", port).stdout
    monkeypatch.chdir(own_folder / "elsewhere")
    restarted = call_command("restart", "--port", port, "--seed", "7")
    assert (restarted.returncode, port_of(restarted)) == (0, port)
    assert call_command("status", "--port", port).stdout != before
    with urlopen(f"http://127.0.0.1:{port}/api/tags") as response:
        assert [model["name"] for model in json.load(response)["models"]] == ["mine:latest"]
    (pid_url,) = own_folder.rglob("*.pid.url")
    address, *arguments = pid_url.read_text().splitlines()
    assert address == f"http://127.0.0.1:{port}"
    assert {f"--config={own_folder / 'config.yaml'}", "--speed=0.0", "--seed=7"} <= set(arguments)
    (own_folder / "config.yaml").write_text("models: 5\n")
    refused = call_command("restart", "--port", port)
    assert (refused.returncode, "config.yaml:1: expected" in refused.stderr) == (1, True)
    assert is_healthy(port)
    stopped = call_command("stop", "--port", port)
    assert (stopped.returncode, stopped.stdout) == (
        0,
        f"mochi-stub on http://127.0.0.1:{port} has stopped\n",
    )
    assert not is_healthy(port)
    assert call_command("status", "--port", port).returncode == 3
    assert [file.name for file in pid_url.parent.glob("*.*")] == [f"{port}.log"]


@pytest.mark.slow
def test_server_on_any_port_is_found_without_its_port(own_folder: Path) -> None:
    assert call_command("status").returncode == 3
    assert (
        call_command("stop").stderr == "mochi-stub: nothing to stop: no server in the background\n"
    )
    first = port_of(call_command("start", "--port", "0"))
    assert f":{first} (process" in call_command("status").stdout
    assert port_of(call_command("restart")) == first
    second = port_of(call_command("start", "--port", "0"))
    assert sorted(re.findall(r":(\d+) ", call_command("status").stdout)) == sorted([first, second])
    stopped = call_command("stop", "--port", "0")
    assert (stopped.returncode, "; choose one with --port" in stopped.stderr) == (1, True)
    assert call_command("stop", "--port", first).returncode == 0
    assert call_command("stop").stdout == f"mochi-stub on http://127.0.0.1:{second} has stopped\n"


def test_servers_are_found_with_another_default_port(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    default = free_port()
    monkeypatch.setenv("PORT", default)
    other = port_of(call_command("start", "--port", "0"))
    assert f":{other} (process" in call_command("status").stdout
    assert port_of(call_command("restart")) == other
    assert port_of(call_command("start")) == default
    ports = re.findall(r":(\d+) ", call_command("status").stdout)
    assert sorted(ports) == sorted([other, default])
    for port in (default, other):
        assert call_command("stop").stdout == f"mochi-stub on http://127.0.0.1:{port} has stopped\n"


def test_log_is_named_after_the_port(started: Finished, port: str) -> None:
    logs = Path(os.environ["XDG_RUNTIME_DIR"]).rglob("*.log")
    assert [log.name for log in logs] == [f"{port}.log"]


def test_stop_without_a_server_fails(own_folder: Path) -> None:
    stopped = call_command("stop", "--port", "1")
    assert (stopped.returncode, stopped.stdout) == (1, "")
    assert stopped.stderr == "mochi-stub: nothing to stop: no server in the background on port 1\n"


@pytest.mark.slow
def test_start_on_a_used_port_fails_with_one_line(own_folder: Path) -> None:
    with StubServer() as stub:
        started = call_command("start", "--port", str(stub.port))
    assert (started.returncode, started.stdout) == (1, "")
    assert re.fullmatch(
        rf"mochi-stub: cannot listen on 127\.0\.0\.1:{stub.port}: .*in use\. .*port\n",
        started.stderr,
    )


def test_pid_file_of_a_killed_server_is_stale(own_folder: Path) -> None:
    pid_file = own_folder / "mine.pid"
    place = ("--pid-file", str(pid_file))
    port = port_of(call_command("start", "--port", "0", *place))
    process = int(pid_file.read_text())
    assert f"http://127.0.0.1:{port}" in call_command("status", *place).stdout
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    assert call_command("status", *place).returncode == 3
    assert [file.name for file in own_folder.glob("mine.*")] == ["mine.log"]
    pid_file.write_text(f"{os.getpid()}\n")  # a process with this number that is not the server
    assert call_command("status", *place).returncode == 3
    assert not pid_file.exists()
    pid_file.write_text(str(os.getpid()))
    assert call_command("stop", *place).returncode == 1


REPLACED_SERVER = """
import fcntl, os, signal, sys
from pathlib import Path
path = Path(sys.argv[1])
def end(*_):
    path.unlink()
    path.write_text("1")  # of a server that was started meanwhile
    os._exit(0)
file = path.open("w")
fcntl.flock(file, fcntl.LOCK_EX)
file.write(str(os.getpid()))
file.flush()
Path(f"{path}.url").write_text("http://127.0.0.1:1\\n")
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
input()
"""


def test_stop_keeps_the_pid_file_of_the_next_server(tmp_path: Path) -> None:
    pid_file = tmp_path / "mine.pid"
    with subprocess.Popen(
        [sys.executable, "-c", REPLACED_SERVER, str(pid_file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as server:
        assert server.stdout
        assert server.stdout.readline() == b"ready\n"
        stopped = call_command("stop", "--pid-file", str(pid_file))
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert pid_file.read_text() == "1"
    assert Path(f"{pid_file}.url").exists()


@pytest.mark.slow
def test_restart_replaces_a_killed_server(own_folder: Path) -> None:
    pid_file = own_folder / "mine.pid"
    place = ("--pid-file", str(pid_file))
    port = port_of(call_command("start", "--port", "0", *place))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        assert f"http://127.0.0.1:{port}" in call_command("status", *place).stdout
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
        restarted = call_command("restart", "--port", port, *place)
        assert restarted.returncode == 0
        call_command("stop", *place)
        assert [file.name for file in own_folder.glob("mine.*")] == ["mine.log"]
        pid_file.write_text(f"{other.pid}\n")
        assert call_command("status", *place).returncode == 3
        assert not pid_file.exists()
        pid_file.write_text(str(other.pid))
        assert call_command("stop", *place).returncode == 1
        assert other.poll() is None
        other.communicate(b"\n")


@cases("name", ["status", "start", "run"])
def test_file_that_is_not_a_pid_file_is_not_changed(own_folder: Path, name: str) -> None:
    precious = own_folder / "notes.txt"
    precious.write_text("bread\nmilk\n")
    done = call_command(name, "--port", free_port(), "--pid-file", str(precious))
    problem = f"mochi-stub: {precious} is not a PID file of mochi-stub; choose another --pid-file\n"
    assert (done.returncode, done.stderr) == (1, problem)
    assert precious.read_text() == "bread\nmilk\n"


def test_pid_file_in_a_missing_folder_fails_with_one_line(own_folder: Path) -> None:
    started = call_command(
        "start", "--port", "0", "--pid-file", str(own_folder / "no" / "folder.pid")
    )
    assert (started.returncode, started.stdout) == (1, "")
    assert re.fullmatch(r"mochi-stub: No such file or directory: .*\n", started.stderr)


def test_start_with_invalid_config_fails_with_one_line(own_folder: Path) -> None:
    config = own_folder / "config.yaml"
    config.write_text("models: 5\n")
    started = call_command("start", "--port", "0", "--config", str(config))
    assert (started.returncode, started.stdout) == (1, "")
    assert re.fullmatch(r"mochi-stub: .*config\.yaml.*\n", started.stderr)


def test_check_prints_each_mistake_with_its_place(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    assert call_command("check", str(config)).returncode == 0
    config.write_text("models:\n  a:\n    - _inherit: b\n  b:\n    - _inherit: a\n")
    checked = call_command("check", str(config))
    assert (checked.returncode, checked.stdout) == (1, "")
    assert str(config) in checked.stderr
    assert call_command("check", str(tmp_path / "none.yaml")).returncode == 1
