"""The `mochi-server` command: arguments, banner, signals and restarts."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from datetime import datetime, timezone
from pathlib import Path

import httpx
import pytest
import uvloop

from mochi_server import __version__
from mochi_server.cli.main import TEST_PORT
from mochi_server.cli.server import duplicates, listen
from mochi_stub import StubServer
from tests.cli.commands import run_here
from tests.support.api import Api, error_of
from tests.support.cases import cases
from tests.support.instructions import instruct, words
from tests.support.ports import free_port
from tests.support.process import Command, FreshCommand, run
from tests.support.raw_http import send_request
from tests.support.tools import write_tools
from tests.support.waiting import until


def test_version_and_help_import_no_server(tmp_path: Path) -> None:
    assert run("mochi_server", "--version", cwd=tmp_path) == (0, f"mochi-server {__version__}\n")
    assert run("mochi_stub", "--version", cwd=tmp_path) == (0, f"mochi-stub {__version__}\n")
    code, text = run_here("--help", cwd=tmp_path)
    assert code == 0
    stub_text = run("mochi_stub", "--help", cwd=tmp_path)[1]
    for text_part in ("mochi-stub run --help", "--config", "--port"):
        assert text_part in stub_text
    assert "of MOCHI_STORE_URL; each" in run_here("migrate", "--help", cwd=tmp_path)[1]
    for flag in (
        "--host",
        "--port",
        "--ollama-host",
        "--data-dir",
        "--log-level",
        "--test-mode",
        "--stub-speed",
    ):
        assert flag in text
    assert "else a generated key" in text
    program = (
        "import sys, mochi_server.__main__ as m\ntry: m.main(['--help'])\nexcept SystemExit: "
        "print(sorted({'pydantic', 'fastapi', 'uvicorn', 'aiohttp', 'orjson'} & "
        "set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("\n[]\n")


@cases(
    ("arguments", "environment", "named"),
    [
        (["--port", "many"], {}, "--port"),
        (["--port", "70000"], {}, "--port"),
        (["--log-level", "loud"], {}, "--log-level"),
        (["--log-format", "xml"], {}, "--log-format"),
        (["--ollama-host", "ftp://x"], {}, "--ollama-host"),
        (["--data-dir", "file"], {}, "--data-dir"),
        (["--data-dir", "file/folder"], {}, "--data-dir"),
        (["--stub-speed", "fast"], {}, "--stub-speed"),
        (["--test-mode", "--stub-speed", "-1"], {}, "--stub-speed: invalid speed value: '-1'"),
        (["--test-mode", "--stub-speed", "nan"], {}, "--stub-speed: invalid speed value: 'nan'"),
        (["--stub-speed", "2"], {}, "--stub-speed"),
        (["--stub-all-models"], {}, "--stub-all-models requires --test-mode"),
        (["--test-mode", "--ollama-host", "http://localhost:1"], {}, "--ollama-host"),
        (
            ["--no-such-flag"],
            {},
            "unknown option --no-such-flag; `mochi-server --help` lists the options",
        ),
        (["--prot", "1"], {}, "unknown option --prot; did you mean --port?"),
        (["--test-mode", "--datadir=x"], {}, "unknown option --datadir; did you mean --data-dir?"),
        (["-port", "1"], {}, "unknown option -port; did you mean --port?"),
        (
            ["--tools-dir", "x"],
            {},
            "--tools-dir; did you mean the environment variable MOCHI_TOOLS_DIR?",
        ),
        (["--api-key=x"], {}, "--api-key; did you mean the environment variable MOCHI_API_KEYS?"),
        (["init", "--prot", "1"], {}, "unknown option --prot; did you mean --port?"),
        (
            ["--data-dri=a", "keys", "list"],
            {},
            "unknown option --data-dri; did you mean --data-dir?",
        ),
        (
            ["--data-dri=a", "replay", "x"],
            {},
            "unknown option --data-dri; did you mean --data-dir?",
        ),
        ([], {"MOCHI_PORT": "many"}, "MOCHI_PORT"),
        ([], {"OLLAMA_HOST": "ftp://x"}, "mochi-server: OLLAMA_HOST:"),
        ([], {"MOCHI_API_KEYS": "[secret]"}, "(got ***)"),
        (
            [],
            {"MOCHI_WEBHOOK_URL": "https://hooks.example"},
            "MOCHI_WEBHOOK_URL needs MOCHI_WEBHOOK_SECRET",
        ),
        ([], {"MOCHI_SUMMARIZATION_ENABLED": "perhaps"}, "MOCHI_SUMMARIZATION_ENABLED"),
        (["--test-mode"], {"MOCHI_MAX_BODY_BYTES": "0"}, "MOCHI_MAX_BODY_BYTES"),
    ],
)
def test_wrong_value_is_one_line_that_names_the_setting(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], named: str
) -> None:
    (tmp_path / "file").touch()
    code, text = run_here(*arguments, cwd=tmp_path, **environment)
    assert code == 2
    assert text.startswith("mochi-server: ")
    assert named in text
    assert text.count("\n") == 1


def test_process_exits_with_the_code_of_a_refusal(tmp_path: Path) -> None:
    refusal = run_here("--port", "many", cwd=tmp_path)
    assert run("mochi_server", "--port", "many", cwd=tmp_path) == refusal


@cases(
    "environment",
    [
        {"MOCHI_API_KEYS": '["hush-5", 5]'},
        {"MOCHI_WEBHOOK_SECRET": "hush-5"},
        {"MOCHI_WEBHOOK_SECRET": "whsec_hush-5", "MOCHI_WEBHOOK_URL": "https://hooks.example"},
        {"MOCHI_WEBHOOK_URL": "hooks.example/hush-5"},
        {"MOCHI_STORE_URL": "mysql://host/hush-5"},
        {"MOCHI_OLLAMA_HOST": "ftp://me:hush-5@host"},
        {"MOCHI_OLLAMA_HOSTS": "a=http://me:hush-5@host:99999"},
    ],
)
def test_wrong_secret_is_not_printed(tmp_path: Path, environment: dict[str, str]) -> None:
    code, text = run_here(cwd=tmp_path, **environment)
    name = next(iter(environment))
    assert code == 2
    assert name in text
    assert "hush" not in text


FAULTS = {"failing", "weirdo", "cut-stream", "rate-limited", "rate-limited-midway", "paused-stream"}
"""Models of test mode that fail, pause or break off."""


def model_names(api: Api) -> set[str]:
    return {model["name"].partition(":")[0] for model in api.ok(api.http.get("/models"))["models"]}


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        pytest.param(["--test-mode", "--port", "0"], {}, id="by flag"),
        pytest.param(
            [],
            {"MOCHI_ENV": "test", "MOCHI_PORT": "0"},
            id="by environment",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_test_mode_curl_command_streams_and_leaves_no_files(
    tmp_path: Path, arguments: list[str], environment: dict[str, str]
) -> None:
    start = Command if environment else FreshCommand
    with start("mochi_server", *arguments, cwd=tmp_path, **environment) as command:
        api = command.api()
        assert api.http.base_url.port != TEST_PORT
        curl = command.read_until("curl -N")
        assert '{"model": "mochi-demo"}' in curl
        # Short answers instead of hundreds of words. The rest is run as printed.
        message = json.dumps({"message": instruct(words(7))})
        curl = re.sub(r"""-d '\{"message": "Hello!"\}'""", lambda _: f"-d '{message}'", curl)

        streamed = subprocess.run(
            ["bash", "-c", curl], capture_output=True, text=True, check=True
        ).stdout

        assert streamed.count("event: content_delta") == 2
        assert streamed.rstrip().splitlines()[-2] == "event: done"
        (listed,) = api.ok(api.http.get("/sessions"))["sessions"]
        assert listed["preview"].startswith("Please follow.")
        assert model_names(api) & FAULTS == set()
        health = api.ok(api.http.get("/health"))
        assert health["ollama_connected"] is True
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", health["ollama_host"])
        page = httpx.get(
            f"{health['ollama_host']}/api/tags", headers={"Origin": "https://example.com"}
        )
        assert (page.status_code, page.headers["access-control-allow-origin"]) == (200, "*")
        api.http.close()
        assert command.end() == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_test_mode_begins_with_an_empty_store_every_time(tmp_path: Path) -> None:
    for _ in range(2):
        with Command(
            "mochi_server", "--test-mode", "--port", "0", "--stub-speed", "0", cwd=tmp_path
        ) as command:
            api = command.api()
            assert api.ok(api.http.get("/sessions")) == {"sessions": []}
            api.send_message(api.create_session("mochi")["session_id"], "Hello!")
            api.http.close()
            assert command.end(signal.SIGINT) == 0


def test_test_mode_neither_reads_nor_changes_the_usage_of_the_data_directory(
    tmp_path: Path,
) -> None:
    usage = tmp_path / "usage" / f"{datetime.now(timezone.utc):%Y-%m-%d}.json"
    usage.parent.mkdir()
    counts = {"requests": 7, "prompt_tokens": 7, "answer_tokens": 7}
    before = json.dumps({"usage": [{"key": "key-1", "model": "mochi:latest", **counts}]})
    usage.write_text(before)
    arguments = ["--test-mode", "--port", "0", "--stub-speed", "0", "--log-level", "ERROR"]
    with Command("mochi_server", *arguments, cwd=tmp_path, MOCHI_API_KEYS="secret") as command:
        api = command.api(headers={"Authorization": "Bearer secret"})
        api.send_message(api.create_session("mochi")["session_id"], "Hello!")
        (used,) = api.ok(api.http.get("/usage"))["usage"]
        assert used["requests"] == 1
        assert command.end() == 0
    assert [path.name for path in usage.parent.iterdir()] == [usage.name]
    assert usage.read_text() == before


@cases("word", ["serve", "start", "run"])
def test_command_to_serve_is_not_needed(tmp_path: Path, word: str) -> None:
    for arguments in ([word], ["--port", "0", word]):
        code, text = run("mochi_server", *arguments, cwd=tmp_path)
        assert (code, text.strip()) == (
            2,
            "mochi-server: the server needs no command: `mochi-server` starts it",
        )


def test_taken_port_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, text = run("mochi_server", "--port", port, cwd=tmp_path)
    assert code == 1
    advice = "Stop the other program, or select a port with --port"
    assert (
        text
        == f"mochi-server: cannot listen on 127.0.0.1:{port}: Address already in use. {advice}\n"
    )


def test_second_listener_on_a_port_is_refused() -> None:
    with listen("127.0.0.1", 0) as first, pytest.raises(OSError, match="Address already in use"):
        listen("127.0.0.1", first.getsockname()[1])


@pytest.mark.skipif(sys.platform == "win32", reason="uvloop does not run on Windows")
def test_event_loop_accepts_many_connections_in_one_iteration() -> None:
    count = 64

    async def iterations() -> int:
        loop, connected, number = asyncio.get_running_loop(), 0, 0

        def connect() -> asyncio.Protocol:
            nonlocal connected
            connected += 1
            return asyncio.Protocol()

        with ExitStack() as stack:
            sockets = duplicates(listen("127.0.0.1", 0))
            for listener in sockets:
                stack.callback((await loop.create_server(connect, sock=listener)).close)
            for _ in range(count):
                stack.enter_context(socket.create_connection(sockets[0].getsockname()))
            while connected < count:
                await asyncio.sleep(0)
                number += 1
        return number

    assert uvloop.run(iterations()) < count / 2


@pytest.mark.skipif(sys.platform == "win32", reason="Windows uses no duplicates")
def test_starting_worker_leaves_the_shared_socket_nonblocking() -> None:
    with listen("127.0.0.1", 0) as listener, ExitStack() as stack:
        listener.setblocking(False)  # as the event loop of a running worker does
        received = stack.enter_context(
            socket.socket(fileno=os.dup(listener.fileno()))
        )  # by a worker that starts
        for duplicate in duplicates(received):
            stack.enter_context(duplicate)
        assert not os.get_blocking(listener.fileno())


@pytest.mark.parametrize(
    ("module", "arguments"), [("mochi_server", ["--test-mode"]), ("mochi_stub", [])]
)
@pytest.mark.parametrize("start", [Command, pytest.param(FreshCommand, marks=pytest.mark.slow)])
def test_command_serves_with_its_output_closed(
    tmp_path: Path, module: str, arguments: list[str], start: type[Command]
) -> None:
    port = free_port()
    with start(module, *arguments, "--port", str(port), cwd=tmp_path) as command:
        assert command.process.stdout is not None
        command.process.stdout.close()
        until(lambda: is_healthy(port))
        command.process.terminate()
        assert command.process.wait(60) == 0


def test_test_mode_lists_models_for_faults_on_request(tmp_path: Path) -> None:
    """Without the option, it lists none of them: see the test of the curl command."""
    command = ("--test-mode", "--port", "0", "--stub-speed", "0", "--stub-all-models")
    with Command("mochi_server", *command, cwd=tmp_path) as started, started.api() as api:
        listed = model_names(api)
        session = api.create_session("mochi-demo")["session_id"]
        answer = api.send_message(session, "Who are you? " + "x" * 8000)
    assert {"mochi", "mochi-demo", "echo"} | FAULTS <= listed
    assert 2000 < answer["message"]["prompt_eval_count"] < 3000


@pytest.mark.slow
def test_output_is_printed_in_every_encoding(tmp_path: Path) -> None:
    code, text = run("mochi_server", "init", "\u2192", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert (code, r"--data-dir '\u2192'" in text) == (0, True)
    assert (
        run("mochi_server", "store", "copy", "--help", cwd=tmp_path, PYTHONIOENCODING="ascii")[0]
        == 0
    )
    code, text = run("mochi_server", "openapi", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert (code, json.loads(text)["info"]["version"]) == (0, __version__)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="writes to /dev/full")
def test_full_disk_behind_the_output_does_not_fail_a_copy(tmp_path: Path) -> None:
    (tmp_path / "from" / "chat_sessions").mkdir(parents=True)
    (tmp_path / "to").mkdir()
    command = [sys.executable, "-m", "mochi_server", "store", "copy", "from", "to"]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert (ended.returncode, ended.stderr) == (0, b"")


def is_healthy(port: int) -> bool:
    """Return whether the server on this port answers ``/health`` with 200."""
    with suppress(OSError):
        health = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        return send_request(f"http://127.0.0.1:{port}", health).status == 200
    return False


def test_server_without_ollama_starts_and_prints_advice(tmp_path: Path) -> None:
    arguments = [
        "--port",
        "0",
        "--ollama-host",
        "http://127.0.0.1:9",
        "--data-dir",
        str(tmp_path / "data"),
    ]
    with Command("mochi_server", *arguments, cwd=tmp_path) as command:
        api = command.api()
        assert "ollama serve" in command.read_until("Ollama")
        assert api.ok(api.http.get("/health"))["status"] == "ok"
        api.http.close()
        assert command.end() == 0
    assert "Traceback" not in "".join(command.output)


def test_open_address_needs_the_generated_key(tmp_path: Path) -> None:
    open_address = ["--host", "0.0.0.0", "--port", "0", "--log-level", "ERROR"]  # noqa: S104 - under test
    with StubServer(speed=0) as stub:
        with Command(
            "mochi_server", *open_address, "--ollama-host", stub.url, cwd=tmp_path
        ) as command:
            api = command.api()
            key = command.read_until("API key").split()[-1]
            assert error_of(api.http.get("/health")) == (401, "UNAUTHORIZED")
            assert (
                api.http.get("/health", headers={"Authorization": f"Bearer {key}"}).status_code
                == 200
            )
            assert f"Bearer {key}" in command.read_until("curl -N")
            api.http.close()
        with Command(
            "mochi_server", *open_address, "--insecure", "--ollama-host", stub.url, cwd=tmp_path
        ) as command:
            api = command.api()
            assert api.http.get("/health").status_code == 200
            api.http.close()


def test_sigterm_stores_partial_answer_and_ends_streams(tmp_path: Path) -> None:
    with StubServer(speed=2) as stub:
        environment = {
            "MOCHI_SHUTDOWN_GRACE_SECONDS": "0.2",
            "MOCHI_OLLAMA_HOST": stub.url,
            "MOCHI_PORT": "0",
        }
        with Command("mochi_server", cwd=tmp_path, **environment) as command:
            api = command.api()
            session_id = api.create_session("mochi")["session_id"]
            with api.open_stream(session_id, instruct(words(100_000))) as events:
                seen = [next(events) for _ in range(3)]
                command.process.send_signal(signal.SIGTERM)
                seen.extend(events)
            assert seen[-1].type == "done"
            api.http.close()
            assert command.wait() == 0
        stub.wait_for(
            lambda all_: any(e.path == "/api/chat" and e.outcome == "cancelled" for e in all_)
        )
    stored = json.loads((tmp_path / "chat_sessions" / f"{session_id}.json").read_text())
    partial = stored["messages"][-1]
    assert partial["interrupted"] is True
    assert partial["content"].startswith("".join(event.data["content"] for event in seen[:3]))


@pytest.mark.parametrize(
    "sig",
    [
        signal.SIGKILL,
        *(pytest.param(sig, marks=pytest.mark.slow) for sig in (signal.SIGTERM, signal.SIGINT)),
    ],
    ids=lambda sig: sig.name,
)
def test_session_survives_the_end_of_the_process(tmp_path: Path, sig: signal.Signals) -> None:
    with StubServer(speed=0) as stub:
        arguments = ["--port", "0", "--ollama-host", stub.url, "--data-dir", str(tmp_path / "data")]
        with Command("mochi_server", *arguments, cwd=tmp_path) as command:
            api = command.api()
            session_id = api.create_session("mochi")["session_id"]
            before = api.send_message(session_id, "Hello!")["message"]
            assert command.end(sig) == (-sig if sig is signal.SIGKILL else 0)
        with Command("mochi_server", *arguments, cwd=tmp_path) as command:
            assert command.api().messages(session_id)[-1] == before


@pytest.mark.slow
def test_killed_process_loses_only_text_after_a_checkpoint(tmp_path: Path) -> None:
    with StubServer(speed=4) as stub:
        arguments = ["--port", "0", "--ollama-host", stub.url]
        with Command("mochi_server", *arguments, cwd=tmp_path) as command:
            api = command.api()
            session_id = api.create_session("mochi")["session_id"]
            with (
                suppress(httpx.HTTPError),  # the stream ends with the process
                api.open_stream(session_id, instruct(words(100_000))) as events,
            ):
                # 5 words per chunk, 200 words per second: lasts beyond the first checkpoint after
                # two seconds
                seen = [next(events) for _ in range(110)]
                command.process.kill()
                list(events)
            api.http.close()
        with Command("mochi_server", *arguments, cwd=tmp_path) as command:
            api = command.api()
            partial = api.messages(session_id)[-1]
            api.http.close()
    assert partial["interrupted"] is True
    assert len(partial["content"].split()) >= 350
    assert seen[0].data["content"] in partial["content"]


HANGING = """
    import threading

    def hang() -> str:
        "Hang."
        threading.Event().wait()
        return ""

    __all__ = ["hang"]
"""
HANGING_IN_POOL = """
    import asyncio
    import threading

    async def hang() -> str:
        "Hang in a thread pool."
        await asyncio.to_thread(threading.Event().wait)
        return ""

    __all__ = ["hang"]
"""


# 34 is more than the number of threads for tools
@pytest.mark.parametrize(
    ("tools", "calls", "start"),
    [
        (HANGING, 2, Command),
        (HANGING_IN_POOL, 2, Command),
        pytest.param(HANGING, 34, FreshCommand, marks=pytest.mark.slow),
    ],
)
def test_sigterm_ends_the_process_with_hanging_tools(
    tmp_path: Path, tools: str, calls: int, start: type[Command]
) -> None:
    write_tools(tmp_path, tools)
    with StubServer(speed=0) as stub:
        environment = {
            "MOCHI_SHUTDOWN_GRACE_SECONDS": "0",
            "MOCHI_OLLAMA_HOST": stub.url,
            "MOCHI_PORT": "0",
        }
        with start("mochi_server", cwd=tmp_path, **environment) as command, ExitStack() as stack:
            api = command.api()
            settings = {"tools": ["hang"], "execution_policy": "never_confirm"}
            message = instruct({"tool_call": [{"name": "hang", "args": {}}] * 3})
            for _ in range(calls):
                session_id = api.create_session("mochi", tool_settings=settings)["session_id"]
                events = stack.enter_context(api.open_stream(session_id, message))
                assert next(events).type == "tool_call"
            assert api.http.get("/health").status_code == 200
            assert command.end() == 0
            stack.close()
            api.http.close()


@pytest.mark.slow
def test_hanging_tool_does_not_keep_the_sessions_of_test_mode(tmp_path: Path) -> None:
    write_tools(tmp_path, HANGING_IN_POOL)
    arguments = ["--test-mode", "--port", "0", "--data-dir", str(tmp_path)]
    environment = {"MOCHI_SHUTDOWN_GRACE_SECONDS": "0"}
    with (
        FreshCommand("mochi_server", *arguments, cwd=tmp_path, **environment) as command,
        ExitStack() as stack,
    ):
        api = command.api()
        settings = {"tools": ["hang"], "execution_policy": "never_confirm"}
        session_id = api.create_session("mochi-demo", tool_settings=settings)["session_id"]
        message = instruct({"tool_call": [{"name": "hang", "args": {}}]})
        events = stack.enter_context(api.open_stream(session_id, message))
        assert next(events).type == "tool_call"
        assert list(tmp_path.glob("mochi-server-*"))
        assert command.end() == 0
        stack.close()
        api.http.close()
    assert not list(tmp_path.glob("mochi-server-*")), "the directory of test mode remains"


@cases(
    ("command", "hosts", "named"),
    [
        ([], ["10.0.0.1", "ftp://x"], "'ftp://x'"),
        ([], ["a=10.0.0.1", "a=10.0.0.2"], "'a=10.0.0.2'"),
        ([], ["@missing"], "missing"),
        (["replay", "a.yaml"], ["a=10.0.0.1", "a=10.0.0.2"], "'a=10.0.0.2'"),
        (["import", "a.json"], ["ftp://x", "10.0.0.1"], "'ftp://x'"),
    ],
)
def test_invalid_host_is_named_in_one_line(
    command: list[str], hosts: list[str], named: str, tmp_path: Path
) -> None:
    options = [argument for host in hosts for argument in ("--ollama-host", host)]
    code, output = run_here(*command, *options, cwd=tmp_path, MOCHI_OLLAMA_HOSTS="10.0.0.9")
    assert code == 2
    (line,) = output.splitlines()
    assert line.startswith("mochi-server: --ollama-host: ")
    assert named in line


def test_option_of_one_host_replaces_the_hosts_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "a.recorded.yaml").write_text("session: {model: x}\nturns: []")
    options = ("replay", "a.yaml", "--ollama-host", "http://127.0.0.1:9")
    code, output = run_here(*options, cwd=tmp_path, MOCHI_OLLAMA_HOSTS="http://127.0.0.1:7")
    assert code == 1
    assert "http://127.0.0.1:9" in output
