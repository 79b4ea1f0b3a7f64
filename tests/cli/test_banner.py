"""Startup banner: addresses, problems and their solutions."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from mochi_server.app import create_app
from mochi_server.cli.banner import startup_banner
from mochi_server.cli.init import scaffold
from mochi_server.config import DATA_DIR_MARKER, MochiServerSettings
from mochi_stub import StubServer
from tests.support.agents import write_agent
from tests.support.process import Command
from tests.support.raw_ollama import RawOllama
from tests.support.tools import write_tools


def greeting(command: Command) -> list[str]:
    """Return the lines from the address to the curl command."""
    command.read_until("curl -N")
    first = next(
        i for i, line in enumerate(command.output) if line.startswith("mochi-server is at")
    )
    return [line.rstrip("\n") for line in command.output[first:]]


@pytest.mark.parametrize("level", ["DEBUG", "CRITICAL"])
def test_greeting_without_problems(tmp_path: Path, level: str) -> None:
    scaffold(tmp_path, with_code_agents=True)
    with (
        StubServer(speed=0) as stub,
        Command(
            "mochi_server",
            "--port",
            "0",
            "--ollama-host",
            stub.url,
            "--log-level",
            level,
            cwd=tmp_path,
        ) as command,
    ):
        said = greeting(command)
    assert [line.split()[0] for line in said if line] == [
        *["mochi-server", "Ollama", "Sessions", "Workers", "Docs", "Tools", "Agents"],
        *["Create", "curl"],
    ]
    assert said[0].startswith("mochi-server is at http://127.0.0.1:")
    assert said[1].startswith(f"  Ollama   {stub.url} with ")
    assert said[1].endswith(" chat models")
    assert said[2] == "  Sessions files in chat_sessions"
    assert said[3] == "  Workers  1"
    assert said[4].endswith("/docs")
    assert said[5:7] == ["  Tools    11 in tools", "  Agents   2 in agents"]


def test_greeting_has_a_line_for_each_problem(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / DATA_DIR_MARKER).touch()
    (tmp_path / "tools" / "__init__.py").write_text("from tools.nowhere import (\n")
    (tmp_path / "agents" / "half").mkdir(parents=True)
    arguments = ["--port", "0", "--ollama-host", "http://127.0.0.1:9", "--log-level", "CRITICAL"]
    with Command("mochi_server", *arguments, cwd=tmp_path) as command:
        said = greeting(command)
        assert command.end() == 0
    assert [line for line in said[1:-4] if not line.startswith("  Docs")] == [
        "  Ollama   Cannot reach Ollama at http://127.0.0.1:9: Connection refused. "
        "Start it with `ollama serve`, or correct MOCHI_OLLAMA_HOST.",
        "  Sessions files in chat_sessions",
        "  Workers  1",
        "  Tools    0 in tools",
        "  Agents   0 in agents",
        "  Problem  tools/__init__.py: SyntaxError: '(' was never closed (line 1)",
        "  Problem  agents/half: SKILL.md is missing; half.py is missing; __init__.py is missing",
    ]
    assert "Traceback" not in "".join(command.output)


def test_greeting_reports_directories_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "tools").touch()
    (tmp_path / "agents").touch()
    arguments = ["--port", "0", "--ollama-host", "http://127.0.0.1:9", "--data-dir", str(tmp_path)]
    with Command("mochi_server", *arguments, cwd=tmp_path) as command:
        said = greeting(command)
    assert f"  Tools    0 in {tmp_path / 'tools'}: Not a directory" in said
    assert f"  Agents   0 in {tmp_path / 'agents'}: Not a directory" in said


def test_greeting_reports_a_broken_file_of_a_valid_agent(tmp_path: Path) -> None:
    init = "from .broken import lost\nfrom .helper import note\n__all__ = ['note', 'lost']"
    write_agent(tmp_path, broken="import nowhere", __init__=init)
    with Command(
        "mochi_server", "--port", "0", "--ollama-host", "http://127.0.0.1:9", cwd=tmp_path
    ) as command:
        said = greeting(command)
    assert "  Agents   1 in agents" in said
    assert (
        "  Problem  agents/helper/broken.py: ModuleNotFoundError: No module named 'nowhere' "
        "(line 1). Install its package for the Python of the server, or correct the import" in said
    )


def test_greeting_reports_variables_without_effect(tmp_path: Path) -> None:
    variables = {
        "MOCHI_DATADIR": "data",
        "MOCHI_ENV": "production",
        "MOCHI_FILES_ROOT": str(tmp_path),
        "MOCHI_LOG_FORMAT": "text",
        "MOCHI_TESTMODE": "1",
        "MOCHI_XYZ": "1",
    }
    arguments = ["--port", "0", "--ollama-host", "http://127.0.0.1:9"]
    with Command("mochi_server", *arguments, cwd=tmp_path, **variables) as command:
        said = greeting(command)
    assert [line for line in said if "MOCHI_" in line and "OLLAMA_HOST" not in line] == [
        "  Problem  MOCHI_DATADIR is not a setting and has no effect. Did you mean MOCHI_DATA_DIR?",
        "  Problem  MOCHI_ENV=production has no effect. Remove it, or use the only value, `test`.",
        "  Problem  MOCHI_TESTMODE is not a setting and has no effect. Did you mean the option "
        "--test-mode?",
        "  Problem  MOCHI_XYZ is not a setting and has no effect.",
    ]


def test_unreachable_ollama_is_one_log_line(tmp_path: Path) -> None:
    with Command(
        "mochi_server", "--port", "0", "--ollama-host", "http://127.0.0.1:9", cwd=tmp_path
    ) as command:
        said = greeting(command)
        assert command.end() == 0
    logged = [line for line in command.output if "WARNING" in line]
    assert len(logged) == 1
    assert "Cannot reach Ollama at http://127.0.0.1:9" in logged[0]
    assert (
        "  Tools    0 in tools, which does not exist. `mochi-server init` creates it with samples"
        in said
    )


@pytest.mark.parametrize(
    ("version", "is_old"),
    [("0.4.7", True), ("0.5.0-rc1", False), ("0.12.3", False), ("0.0.0", False), ("", False)],
)
def test_greeting_reports_an_old_version_of_ollama(
    tmp_path: Path, version: str, is_old: bool
) -> None:
    with RawOllama(lambda _: None) as ollama:
        ollama.answers["/api/version"] = json.dumps({"version": version}).encode()
        with Command(
            "mochi_server", "--port", "0", "--ollama-host", ollama.url, cwd=tmp_path
        ) as command:
            said = greeting(command)
    problems = [line for line in said if "too old" in line]
    assert problems == (
        ["  Problem  Ollama 0.4.7 is too old. Update it to 0.5 or newer"] if is_old else []
    )


def test_greeting_reports_missing_models(tmp_path: Path) -> None:
    arguments = ["--port", "0", "--log-level", "ERROR"]
    with (
        StubServer(models=[]) as stub,
        Command("mochi_server", *arguments, "--ollama-host", stub.url, cwd=tmp_path) as command,
    ):
        assert (
            greeting(command)[1]
            == f"  Ollama   {stub.url} has no chat model. Install one with `ollama pull qwen3`"
        )


def test_greeting_reports_another_server_in_place_of_ollama(tmp_path: Path) -> None:
    with RawOllama(lambda _: None) as ollama:
        wrong = f"{ollama.url}/nowhere"
        with Command(
            "mochi_server", "--port", "0", "--ollama-host", wrong, cwd=tmp_path
        ) as command:
            assert greeting(command)[1] == (
                f"  Ollama   {wrong}: Ollama answered with status 404 and no message. Check that "
                "MOCHI_OLLAMA_HOST is the address of Ollama, without a path such as /api."
            )


def test_greeting_names_test_mode_and_open_address(tmp_path: Path) -> None:
    with Command("mochi_server", "--test-mode", "--port", "0", cwd=tmp_path) as command:
        said = greeting(command)
    assert said[0].endswith("in test mode: a bundled LLM answers")
    assert said[2].endswith("deleted at exit")
    assert said[1].startswith("  LLM ")
    open_address = ["--host", "0.0.0.0", "--port", "0", "--insecure", "--test-mode"]  # noqa: S104 - under test
    with Command("mochi_server", *open_address, cwd=tmp_path) as command:
        line = (
            "  Open     any client that reaches this address can run every tool, without an API key"
        )
        assert line in greeting(command)


def test_curl_command_has_a_placeholder_for_the_key(tmp_path: Path) -> None:
    with Command(
        "mochi_server", "--test-mode", "--port", "0", cwd=tmp_path, MOCHI_API_KEYS="hush"
    ) as command:
        said = greeting(command)
    assert "-H 'Authorization: Bearer YOUR_KEY'" in said[-1]
    assert "hush" not in "".join(command.output)


async def test_greeting_does_not_wait_for_slow_tools(tmp_path: Path, stub: StubServer) -> None:
    source = """
        import time
        from pathlib import Path

        while not (Path(__file__).parent / "go").exists():
            time.sleep(0.01)
        __all__ = []
    """
    tools = write_tools(tmp_path, source)
    values: dict[str, Any] = {"data_dir": str(tmp_path), "ollama_host": stub.url}
    settings = MochiServerSettings(**values)
    app = create_app(settings)
    async with app.router.lifespan_context(app):
        with anyio.fail_after(60):
            said = await startup_banner(
                "http://here", settings, app.state.services, import_seconds=0.05
            )
        (tools / "go").touch()
    assert f"  Tools    still importing in {tools}\n" in said


@pytest.mark.slow
def test_server_answers_while_tools_are_imported(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / DATA_DIR_MARKER).touch()
    (tmp_path / "tools" / "__init__.py").write_text("import threading\nthreading.Event().wait()\n")
    with Command("mochi_server", "--test-mode", "--port", "0", cwd=tmp_path) as command:
        assert "  Tools    still importing in tools" in greeting(command)
        assert command.api().http.get("/health").status_code == 200
        assert command.end() == 0


def test_unreadable_directory_does_not_stop_startup(tmp_path: Path) -> None:
    with Command(
        "mochi_server", "--test-mode", "--port", "0", "--data-dir", "d" * 300, cwd=tmp_path
    ) as command:
        said = greeting(command)
        assert command.end() == 0
    assert said[5].endswith("/tools: File name too long")
    assert said[6].endswith("/agents: File name too long")
    assert said[7].endswith("/tools/__init__.py: its directory cannot be read: File name too long")
    assert "Traceback" not in "".join(command.output)
