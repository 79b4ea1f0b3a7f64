"""What start-up says: one block for a person, with what is wrong and what to do about it."""

from pathlib import Path

import pytest

from mochi_server.scaffold import scaffold
from mochi_stub import StubServer
from tests.support.process import Command
from tests.support.raw_ollama import RawOllama


def greeting(command: Command) -> list[str]:
    """The lines from the address to the curl command."""
    command.read_until("curl -N")
    first = next(i for i, line in enumerate(command.output) if line.startswith("mochi-server is at"))
    return [line.rstrip("\n") for line in command.output[first:]]


@pytest.mark.parametrize("level", ["DEBUG", "CRITICAL"])
def test_all_is_well(tmp_path: Path, level: str) -> None:
    scaffold(tmp_path)
    with (
        StubServer(speed=0) as stub,
        Command(
            "mochi_server", "--port", "0", "--ollama-host", stub.url, "--log-level", level, cwd=tmp_path
        ) as command,
    ):
        said = greeting(command)
    assert [line.split()[0] for line in said if line] == ["mochi-server", "Ollama", "Tools", "Agents", "Create", "curl"]
    assert said[0].startswith("mochi-server is at http://127.0.0.1:")
    assert said[1].startswith(f"  Ollama   {stub.url} with ")
    assert said[1].endswith(" chat models")
    assert said[2:4] == ["  Tools    11 in tools", "  Agents   2 in agents"]


def test_everything_is_wrong_and_each_thing_has_its_line(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__init__.py").write_text("from tools.nowhere import (\n")
    (tmp_path / "agents" / "half").mkdir(parents=True)
    (tmp_path / "chat_sessions").touch()
    arguments = ["--port", "0", "--ollama-host", "http://127.0.0.1:9", "--log-level", "CRITICAL"]
    with Command("mochi_server", *arguments, cwd=tmp_path) as command:
        said = greeting(command)
        assert command.end() == 0
    assert said[1:-4] == [
        "  Ollama   Cannot reach Ollama at http://127.0.0.1:9: Connection refused. Is it running? "
        "`ollama serve` starts it.",
        "  Tools    0 in tools",
        "  Agents   0 in agents",
        "  Problem  tools/__init__.py: SyntaxError: '(' was never closed (line 1)",
        "  Problem  agents/half: SKILL.md is missing; half.py is missing; __init__.py is missing",
        "  Problem  Cannot write the sessions directory: Not a directory.",
    ]
    assert "Traceback" not in "".join(command.output)


def test_a_missing_ollama_is_one_line_of_the_log(tmp_path: Path) -> None:
    with Command("mochi_server", "--port", "0", "--ollama-host", "http://127.0.0.1:9", cwd=tmp_path) as command:
        said = greeting(command)
        assert command.end() == 0
    logged = [line for line in command.output if "WARNING" in line]
    assert len(logged) == 1
    assert "Cannot reach Ollama at http://127.0.0.1:9" in logged[0]
    assert said[2] == "  Tools    0 in tools, which is not there; `mochi-server init` makes one with samples"


def test_an_ollama_without_models_and_another_process_are_told_of(tmp_path: Path) -> None:
    arguments = ["--port", "0", "--log-level", "ERROR"]
    with (
        StubServer(models=[]) as stub,
        Command("mochi_server", *arguments, "--ollama-host", stub.url, cwd=tmp_path) as first,
    ):
        assert greeting(first)[1] == f"  Ollama   {stub.url} has no chat model; `ollama pull qwen3` gets one"
        with Command("mochi_server", *arguments, "--ollama-host", stub.url, cwd=tmp_path) as second:
            assert f"  Problem  process {first.process.pid} serves the same sessions; only one should" in greeting(
                second
            )


def test_what_is_no_ollama_is_told_of_in_a_line(tmp_path: Path) -> None:
    with RawOllama(lambda _: None) as ollama:
        wrong = f"{ollama.url}/nowhere"
        with Command("mochi_server", "--port", "0", "--ollama-host", wrong, cwd=tmp_path) as command:
            assert greeting(command)[1] == f"  Ollama   {wrong}: 404 page not found"


def test_test_mode_and_an_open_address_are_said(tmp_path: Path) -> None:
    with Command("mochi_server", "--test-mode", "--port", "0", cwd=tmp_path) as command:
        said = greeting(command)
    assert said[0].endswith("in test mode: a bundled LLM answers, sessions are forgotten at exit")
    assert said[1].startswith("  LLM ")
    open_address = ["--host", "0.0.0.0", "--port", "0", "--insecure", "--test-mode"]  # noqa: S104 - what is tested
    with Command("mochi_server", *open_address, cwd=tmp_path) as command:
        assert "  Open     without a key, whoever reaches this address can run every tool" in greeting(command)


def test_the_command_of_a_server_with_keys_has_a_place_for_one(tmp_path: Path) -> None:
    with Command("mochi_server", "--test-mode", "--port", "0", cwd=tmp_path, MOCHI_API_KEYS="hush") as command:
        said = greeting(command)
    assert "-H 'Authorization: Bearer YOUR_KEY'" in said[-1]
    assert "hush" not in "".join(command.output)


def test_tools_that_are_slow_to_import_hold_nobody_up(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__init__.py").write_text("import threading\nthreading.Event().wait()\n")
    with Command("mochi_server", "--test-mode", "--port", "0", cwd=tmp_path) as command:
        assert "  Tools    still importing in tools" in greeting(command)
        api = command.api()
        assert api.http.get("/health").status_code == 200
        api.http.close()
        assert command.end() == 0


def test_a_directory_that_cannot_be_looked_at_stops_nothing(tmp_path: Path) -> None:
    with Command("mochi_server", "--test-mode", "--port", "0", "--data-dir", "d" * 300, cwd=tmp_path) as command:
        said = greeting(command)
        assert command.end() == 0
    assert said[2].endswith("/tools: File name too long")
    assert said[3].endswith("/agents: File name too long")
    assert said[4].endswith("/tools/__init__.py: it cannot be read: File name too long")
    assert "Traceback" not in "".join(command.output)
