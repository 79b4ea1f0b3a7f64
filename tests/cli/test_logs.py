"""Log of a running server: its format, and content that it never contains."""

import json
import os
import signal
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import Machine, StubServer
from mochi_stub import config as stub_config
from tests.cli.commands import run_here
from tests.support.api import Api, types_of
from tests.support.cases import cases
from tests.support.holding import GatedStub
from tests.support.instructions import calls, instruct, words
from tests.support.process import Command, run
from tests.support.tools import write_tools

KEY, OTHER_KEY, OLLAMA_KEY, PASSWORD = "server-key-1", "server-key-2", "ollama-key-3", "pass/word-4"
TOOLS = """
    import logging
    import os
    import signal
    import sys

    def tell(what: str) -> str:
        "Log something."
        logging.getLogger("a.library").error("it is %s", what)
        try:
            raise ValueError(what)
        except ValueError:
            logging.getLogger("a.library").exception("it failed")
        return "told"

    def fail(what: str) -> str:
        "Fail."
        raise RuntimeError(f"cannot do {what}")

    def close_log(what: str) -> str:
        "Close the log."
        sys.stderr.close()
        return what

    async def leave(what: str) -> str:
        "Stop the server, in the event loop."
        os.kill(os.getpid(), signal.SIGTERM)
        return what

    __all__ = ["tell", "fail", "close_log", "leave"]
"""


@contextmanager
def run_server(
    cwd: Path, *arguments: str, key: str = KEY, **environment: str
) -> Iterator[tuple[Command, Api]]:
    """A server with the tools above, and a client."""
    write_tools(cwd, TOOLS)
    environment |= {
        "MOCHI_API_KEYS": f"{KEY},{OTHER_KEY}",
        "MOCHI_SUMMARIZATION_INTERVAL_SECONDS": "0",
    }
    with Command("mochi_server", "--port", "0", *arguments, cwd=cwd, **environment) as command:
        api = command.api(headers={"Authorization": f"Bearer {key}", "X-Request-ID": "mine"})
        try:
            yield command, api
        finally:
            api.http.close()
        assert command.end() == 0


def call_tool(api: Api, tool: str, what: str, **session: Any) -> str:
    """Let the model call a tool in a new session. Return the ID of the session."""
    settings = {
        "tools": ["tell", "fail", "close_log", "leave"],
        "execution_policy": "never_confirm",
    }
    session_id: str = api.create_session("mochi", tool_settings=settings, **session)["session_id"]
    api.stream_message(session_id, instruct(calls(tool, what=what), words(3), label=what))
    return session_id


def objects(command: Command) -> list[dict[str, Any]]:
    """Return the lines of a JSON log. Each line of the output must be one."""
    return [json.loads(line) for line in command.output]


@dataclass(frozen=True)
class Logged:
    """Lines of a log, and what the server did meanwhile."""

    lines: list[dict[str, Any]]
    session_ids: list[str]
    answers: list[dict[str, Any]]


def log_of(folder: Path, *arguments: str, **environment: str) -> Logged:
    """Return the JSON log of a server that a tool stops, after a completed turn, a failed turn and
    a wrong path.
    """
    config = stub_config.test_mode_config(all_models=True)
    with (
        StubServer(speed=0, config=config, machine=Machine(parallel=1)) as stub,
        run_server(
            folder, *arguments, MOCHI_OLLAMA_HOST=stub.url, key=OTHER_KEY, **environment
        ) as (command, api),
    ):
        completed = call_tool(api, "tell", "this\nand that")
        answers = [message for message in api.messages(completed) if message["role"] == "assistant"]
        failed = api.create_session("failing")["session_id"]
        api.stream_message(failed, "Hello!")
        api.http.get("/nothing?what=secret")
        call_tool(api, "leave", "x")
    return Logged(objects(command), [completed, failed], answers)


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Logged:
    return log_of(tmp_path_factory.mktemp("json"), "--log-format", "json")


def assert_objects_with_tracebacks(lines: list[dict[str, Any]]) -> None:
    assert any(line["message"].startswith("mochi-server is at http://127.0.0.1:") for line in lines)
    assert any(line["message"].startswith("curl -N ") and line["level"] == "INFO" for line in lines)
    (access_line,) = [line for line in lines if line.get("path") == "/api/v1/nothing"]
    assert access_line["level"] == "INFO"
    assert access_line["request_id"] == "mine"
    assert access_line["status"] == 404
    succeeded, failed = (line for line in lines if line["logger"] == "a.library")
    assert succeeded["message"] == "it is this\nand that"
    assert "Traceback" in failed["exception"]
    assert failed["request_id"] == "mine"


def test_json_log_has_one_object_a_line_with_tracebacks(logged: Logged) -> None:
    assert_objects_with_tracebacks(logged.lines)


@pytest.mark.slow
def test_environment_variable_selects_the_json_log(tmp_path: Path) -> None:
    assert_objects_with_tracebacks(log_of(tmp_path, MOCHI_LOG_FORMAT="JSON").lines)


def test_json_log_has_one_line_for_each_turn(logged: Logged) -> None:
    turns = [line for line in logged.lines if line["message"].startswith("Turn ended ")][:2]
    assert [turn["outcome"] for turn in turns] == ["completed", "failed"]
    assert [turn["session_id"] for turn in turns] == logged.session_ids
    completed, failed = turns
    assert failed["error"] == "OLLAMA_ERROR"
    assert failed["level"] == "WARNING"
    answers = logged.answers
    assert len(answers) == 2
    assert (
        completed["prompt_tokens"] == sum(message["prompt_eval_count"] for message in answers) > 0
    )
    assert completed["answer_tokens"] == sum(message["eval_count"] for message in answers) > 0
    assert (
        completed["cached_tokens"]
        == sum(message["prompt_eval_cached_count"] for message in answers)
        > 0
    )
    assert 0 <= completed["time_to_first_token_ms"] <= completed["duration_ms"]
    for turn in turns:
        assert turn["model"].partition(":")[0] == ("mochi" if turn is completed else "failing")
        assert (turn["key"], turn["request_id"]) == ("key-2", "mine")
        assert f"run_id={turn['run_id']}" in turn["message"]


def test_lines_about_draining_have_no_request(logged: Logged) -> None:
    lines = [line for line in logged.lines if line["message"].startswith("Draining ")]
    assert len(lines) == 2
    assert not any({"request_id", "key"} & line.keys() for line in lines)


def test_log_tells_when_draining_begins_and_ends(tmp_path: Path, holding: GatedStub) -> None:
    environment = {"MOCHI_LOG_FORMAT": "json", "MOCHI_SHUTDOWN_GRACE_SECONDS": "0.1"}
    with run_server(tmp_path, MOCHI_OLLAMA_HOST=holding.stub.url, **environment) as (command, api):
        session_id = api.create_session("mochi")["session_id"]
        with api.open_stream(session_id, "hold") as events:
            next(events)
            command.process.send_signal(signal.SIGTERM)
            assert types_of(events)[-2:] == ["error", "done"]
    began, ended = (line for line in objects(command) if line["message"].startswith("Draining "))
    assert began["message"] == "Draining began turns=1"
    assert began["turns"] == 1
    assert ended["cancelled"] == 1
    assert ended["duration_ms"] >= 100


@cases(
    ("start", "arguments", "environment"),
    [
        (run_here, ["--port", "1x"], {"MOCHI_LOG_FORMAT": "json"}),
        (run_here, ["--log-format", "json", "--stub-speed", "1"], {}),
        (run_here, ["--no-such-option"], {"MOCHI_LOG_FORMAT": "JSON"}),
        (run_here, ["--no-such-option", "--log-format", "json"], {}),
        (run_here, ["--log-format=json", "--port"], {"MOCHI_LOG_FORMAT": "text"}),
        (run_here, ["--log-format"], {"MOCHI_LOG_FORMAT": "json"}),
        (run_here, ["--log-format=", "text"], {"MOCHI_LOG_FORMAT": "json"}),
        (
            partial(run, "mochi_server"),
            ["--log-format", "json", "--host", "203.0.113.1", "--insecure"],
            {},
        ),
    ],
)
def test_error_at_the_start_is_a_line_of_the_json_log(
    tmp_path: Path,
    start: Callable[..., tuple[int, str]],
    arguments: list[str],
    environment: dict[str, str],
) -> None:
    code, text = start(*arguments, cwd=tmp_path, **environment)
    (line,) = map(json.loads, text.splitlines())
    assert code in (1, 2)
    assert line["level"] == "CRITICAL"
    assert line["message"].startswith("mochi-server: ")


def test_option_of_the_text_log_takes_precedence_for_wrong_arguments(tmp_path: Path) -> None:
    arguments = ("--log-format", "text", "--prot", "1")
    _, text = run_here(*arguments, cwd=tmp_path, MOCHI_LOG_FORMAT="json")
    assert text == "mochi-server: unknown option --prot; did you mean --port?\n"


@pytest.fixture(scope="module")
def text_log(shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The text log of a server at level INFO, after turns and requests whose texts contain
    "zebra".
    """
    folder = tmp_path_factory.mktemp("text")
    write_damaged_sessions(folder / "chat_sessions")
    with run_server(folder, MOCHI_OLLAMA_HOST=shared_stub.url) as (command, api):
        call_tool(
            api,
            "tell",
            "this\n2026-01-01 00:00:00,000 INFO mochi_server.web.request_log: GET /forged",
        )
        api.http.get("/health")
        for path in ("/sessions", *(f"/sessions/{session_id}" for session_id in DAMAGED)):
            api.http.get(path)
        talk_of_zebras(api)
    return command.output


DAMAGED = {
    "0123456789": '{"metadata": {}, "messages": [{"content": "zebra"} zebra]}',
    "0123456788": '{"metadata": {"model": ["zebra"]}, "messages": [{"content": ["zebra"]}]}',
}
"""Session files that cannot be read, by session ID."""


def write_damaged_sessions(folder: Path) -> None:
    folder.mkdir()
    for session_id, text in DAMAGED.items():
        file = folder / f"{session_id}.json"
        file.write_text(text)
        os.utime(
            file, (0, 0)
        )  # older than the time after which a file counts as completely written


def talk_of_zebras(api: Api) -> None:
    """Send texts in each place where a client can send them."""
    texts = {
        name: f"zebra-{name}"
        for name in ("sentence", "argument", "prompt", "title", "answer", "content")
    }
    call_tool(api, "fail", texts["argument"], system_prompt=texts["prompt"])
    session_id = api.create_session("mochi")["session_id"]
    api.send_message(
        session_id, texts["sentence"] + instruct({"text_message": {"content": texts["answer"]}})
    )
    api.ok(api.http.patch(f"/sessions/{session_id}", json={"title": texts["title"]}))
    api.http.post(f"/sessions/{session_id}/summarize")
    api.http.put(f"/sessions/{session_id}/messages/0", json={"content": texts["content"]})
    api.http.post(f"/chat/{session_id}", json={"message": [texts["sentence"]]})
    api.http.get(f"/models?q={texts['sentence']}")


def test_text_log_escapes_text_that_imitates_a_line(text_log: list[str]) -> None:
    lines = [line for line in text_log if "mochi_server.web.request_log" in line]
    assert any(
        "GET /api/v1/health 200 " in line and line.endswith(" ms 127.0.0.1 [mine key=key-1]\n")
        for line in lines
    )
    assert any(r"it is this\n2026" in line for line in text_log)


def test_info_log_has_no_text_of_conversations(text_log: list[str]) -> None:
    assert any("RuntimeError" in line for line in text_log)
    assert [line for line in text_log if "zebra" in line] == []


def test_info_log_has_no_text_of_damaged_session_files(text_log: list[str]) -> None:
    reported = [line for line in text_log if "cannot be read" in line]
    assert [
        session_id for session_id in DAMAGED if not any(session_id in line for line in reported)
    ] == []
    assert [line for line in text_log if "zebra" in line] == []


@pytest.mark.parametrize(
    ("log_format", "level"),
    [
        ("JSON", "DEBUG"),
        pytest.param("text", "INFO", marks=pytest.mark.slow),
        pytest.param("text", "DEBUG", marks=pytest.mark.slow),
        pytest.param("json", "INFO", marks=pytest.mark.slow),
    ],
)
def test_keys_and_passwords_are_masked_wherever_they_are_logged(
    tmp_path: Path, stub: StubServer, log_format: str, level: str
) -> None:
    host = stub.url.replace("://", "://me:pass%2Fword-4@")
    environment = {"MOCHI_OLLAMA_HOST": host, "OLLAMA_API_KEY": OLLAMA_KEY}
    environment |= {"MOCHI_LOG_LEVEL": level, "MOCHI_LOG_FORMAT": log_format}
    basic = b64encode(f"me:{PASSWORD}".encode()).decode()
    secrets = [KEY, OTHER_KEY, OLLAMA_KEY, PASSWORD, "pass%2Fword-4", basic]
    with run_server(tmp_path, key=OTHER_KEY, **environment) as (command, api):
        assert "me:" not in api.http.get("/health").text
        call_tool(api, "tell", " ".join(secrets))
        api.http.get("/models", headers={"X-Request-ID": KEY})
        api.http.get(f"/{KEY}")
    printed = "".join(command.output)
    assert "it is *** *** *** *** *** ***" in printed
    assert not [secret for secret in secrets if secret in printed]


def test_ollama_credentials_are_in_no_message(tmp_path: Path) -> None:
    host = f"http://me:{PASSWORD.replace('/', '%2F')}@127.0.0.1:9"
    with run_server(tmp_path, MOCHI_OLLAMA_HOST=host, OLLAMA_API_KEY=OLLAMA_KEY) as (command, api):
        answers = [api.http.get(path).text for path in ("/health", "/models")]
        answers.append(api.http.post("/sessions", json={"model": "mochi"}).text)
    assert "http://127.0.0.1:9" in answers[0]
    assert "http://127.0.0.1:9" in "".join(command.output)
    for text in (*answers, "".join(command.output)):
        assert "word-4" not in text
        assert OLLAMA_KEY not in text


@cases(
    "host",
    ["ftp://me:word-4@x", "http://me:word-4@x:port", "me:word/-4@x", "http://me:pa/word-4@x"],
)
def test_wrong_ollama_url_is_shown_without_its_credentials(tmp_path: Path, host: str) -> None:
    for arguments, environment in (
        (["--ollama-host", host], {}),
        ([], {"MOCHI_OLLAMA_HOST": host}),
    ):
        code, text = run_here(*arguments, cwd=tmp_path, **environment)
        assert code == 2
        assert "OLLAMA_HOST" in text.upper().replace("-", "_")
        assert "-4" not in text


def test_generated_key_is_printed_once_and_never_logged(tmp_path: Path, stub: StubServer) -> None:
    arguments = ["--host", "0.0.0.0", "--port", "0", "--ollama-host", stub.url]  # noqa: S104 - under test
    write_tools(tmp_path, TOOLS)
    with Command("mochi_server", *arguments, cwd=tmp_path) as command:
        command.read_until("http://")
        key = command.read_until("API key").split()[-1]
        command.read_until("curl -N")
        printed = len(command.output)
        api = command.api(headers={"Authorization": f"Bearer {key}"})
        call_tool(api, "tell", key)
        api.http.close()
        command.end()
    logged = "".join(command.output[printed:])
    assert "it is ***" in logged
    assert key not in logged


def test_settings_show_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    from mochi_server import MochiServerSettings

    monkeypatch.delitem(os.environ, "MOCHI_API_KEYS", raising=False)
    settings = MochiServerSettings(api_keys=(KEY,), ollama_host="http://me:word-4@ollama.example")
    assert KEY not in repr(settings)
    assert KEY not in str(settings.model_dump())
    assert "word-4" not in repr(settings)
    assert "ollama.example" in repr(settings)
    with pytest.raises(ValueError, match="ollama_host") as wrong:
        MochiServerSettings(ollama_host="ftp://me:word-4@x")
    assert "word-4" not in str(wrong.value)


def test_server_works_without_its_log(tmp_path: Path, stub: StubServer) -> None:
    with run_server(tmp_path, MOCHI_OLLAMA_HOST=stub.url) as (_, api):
        call_tool(api, "close_log", "closed")
        call_tool(api, "fail", "it")
        api.ok(api.http.post("/tools/reload"))
        runs = api.ok(api.http.get("/tools/executions"))["executions"]
    assert [run["success"] for run in runs] == [True, False]
    assert runs[1]["error_message"] == "fail failed: RuntimeError: cannot do it"
