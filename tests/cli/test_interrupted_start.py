"""Ctrl-C during the start ends the command at once and without a traceback, and so do an
unreadable directory and, in test mode, other signals.
"""

import os
import signal
from pathlib import Path

import pytest

from tests.support.process import FreshCommand, run

INTERRUPT = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
SERVER = ("--port", "0", "--ollama-host", "http://127.0.0.1:9")
UNLESS_IGNORED = pytest.mark.skipif(
    os.name == "posix" and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN,
    reason="the server inherits the ignored signal",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "arguments", "code"),
    [
        ("pydantic_settings", SERVER, 130),
        ("uvicorn", SERVER, 130),
        ("uvicorn", ("--port", "0", "--test-mode"), 130),
        ("uvloop", SERVER, 0),  # uvicorn imports it before uvicorn handles signals
    ],
)
def test_interrupt_during_an_import_ends_the_start(
    tmp_path: Path, module: str, arguments: tuple[str, ...], code: int
) -> None:
    """A module that sends the signal to the process replaces one that the server imports."""
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / f"{module}.py").write_text(INTERRUPT + "raise ImportError\n")
    with FreshCommand("mochi_server", *arguments, cwd=tmp_path, PYTHONPATH=str(modules)) as command:
        assert command.wait() == code
    assert "".join(command.output) == ""
    assert not list(tmp_path.glob("mochi-server-*")), "the directory of test mode remains"


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX systems")
@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGHUP", marks=UNLESS_IGNORED)])
def test_signal_during_the_start_of_test_mode_deletes_its_directory(
    tmp_path: Path, name: str
) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "uvicorn.py").write_text(INTERRUPT.replace("SIGINT", name) + "raise ImportError\n")
    arguments = ("--port", "0", "--test-mode")
    with FreshCommand("mochi_server", *arguments, cwd=tmp_path, PYTHONPATH=str(modules)) as command:
        assert command.wait() == 128 + signal.SIGTERM
    assert not list(tmp_path.glob("mochi-server-*")), "the directory of test mode remains"


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX systems")
def test_interrupt_during_the_import_of_tools_ends_the_server(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__init__.py").write_text(INTERRUPT)
    code, text = run("mochi_server", *SERVER, "--data-dir", str(tmp_path), cwd=tmp_path)
    assert code == 0
    assert "Traceback" not in text


def test_unreadable_sessions_directory_stops_the_start_with_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "chat_sessions").touch()
    code, text = run("mochi_server", *SERVER, "--log-level", "CRITICAL", cwd=tmp_path)
    assert (code, text) == (
        1,
        f"mochi-server: Cannot read the sessions directory {tmp_path / 'chat_sessions'}: Not a "
        "directory.\n",
    )


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read anywhere")
def test_data_directory_without_permission_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0)
    code, text = run("mochi_server", *SERVER, "--data-dir", "data", cwd=tmp_path)
    assert code == 1
    assert text.splitlines()[-1].endswith("/data/chat_sessions: Permission denied.")
