"""Tools of MCP servers over HTTP: listing, approval, calls and denial; failing MCP servers."""

import logging
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from mochi_server.mcp.limits import McpLimits
from mochi_server.util.text import install_command
from mochi_stub import StubServer
from tests.api.test_tools import PendingApproval
from tests.mcp.patient_server import PATIENT, PatientServer
from tests.support.api import Api
from tests.support.cases import cases
from tests.support.instructions import calls, instruct, words
from tests.support.keys import headers, write_keys
from tests.support.mcp import by_hand, is_alive, journal, running, started, write_mcp
from tests.support.tools import write_tools
from tests.support.waiting import until

AT_ONCE = McpLimits(start_seconds=0)
"""Limits without a wait for the start of MCP servers."""

PYTHON = '''
    def add(a: float, b: float) -> str:
        """Add two numbers."""
        return "Python"

    __all__ = ["add"]
    __maths__ = ["add"]
'''


@dataclass(frozen=True)
class Shared:
    """Server with the MCP server `hand`, for tests that change neither."""

    api: Api
    data_dir: Path

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Fail if the MCP server receives anything within the context."""
        before = journal(self.data_dir)
        yield
        assert journal(self.data_dir) == before


@pytest.fixture(scope="module")
def shared(shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """A server for the module, whose MCP server offers `echo` and `note`."""
    data_dir = tmp_path_factory.mktemp("hand")
    write_mcp(data_dir, hand=by_hand(data_dir, "echo", "note"))
    with PatientServer(data_dir, shared_stub.url) as server:
        shared = Shared(server.api(), data_dir)
        until(lambda: "echo" in shared.api.ok(shared.api.http.get("/tools"))["tools"])
        yield shared


@pytest.fixture(scope="module")
def answering(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shared]:
    """A server for the module, whose MCP server answers in many ways."""
    data_dir = tmp_path_factory.mktemp("answering")
    failing = ("refuse", "fail", "fail_silently", "fail_with_image")
    write_mcp(
        data_dir,
        hand=by_hand(
            data_dir, *failing, "much", "bytes", "structured", "nonsense", "listed", "draft_3"
        ),
    )
    with PatientServer(data_dir, shared_stub.url) as server:
        yield Shared(server.api(), data_dir)


@pytest.fixture
def offered(request: pytest.FixtureRequest) -> list[str]:
    """The arguments of the MCP server `hand`: the tools that it offers, by default echo and
    note.
    """
    arguments: list[str] = getattr(request, "param", ["echo", "note"])
    return arguments


@pytest.fixture
def server(stub: StubServer, tmp_path: Path, offered: list[str]) -> Iterator[PatientServer]:
    """A server for one test, with its own MCP server."""
    write_mcp(tmp_path, hand=by_hand(tmp_path, *offered))
    with PatientServer(tmp_path, stub.url, tool_timeout_seconds=5) as server:
        yield server


@pytest.fixture
def api(server: PatientServer) -> Api:
    """A client of `server`."""
    return server.api()


def offering(*tools: str) -> pytest.MarkDecorator:
    """Set the tools that the MCP server of a test offers."""
    return pytest.mark.parametrize("offered", [[*tools]], indirect=True, ids=[""])


def session_with(api: Api, policy: str = "never_confirm", **settings: Any) -> str:
    """Create a session that may use the tools of the server `hand`."""
    session = api.create_session(
        "mochi", tool_settings={"tool_group": "hand", "execution_policy": policy} | settings
    )
    return str(session["session_id"])


def called(api: Api, tool: str, session_id: str | None = None, **arguments: Any) -> dict[str, Any]:
    """Call a tool and return the outcome."""
    answer = api.send_message(
        session_id or session_with(api), instruct(calls(tool, **arguments), words(2))
    )
    outcome: dict[str, Any] = answer["tool_calls_executed"][0]
    return outcome


def problems(api: Api) -> dict[str, str]:
    return {
        problem["name"]: problem["message"]
        for problem in api.ok(api.http.get("/tools"))["problems"]
    }


def test_tools_are_listed_with_their_schema_as_a_group(shared: Shared) -> None:
    api = shared.api
    body = api.ok(api.http.get("/tools"))
    assert body["tools"]["echo"] == {
        "name": "echo",
        "description": "Say it again.",
        "parameters": {"text": {"type": "str", "description": "Any text"}},
        "destructive": False,
    }
    assert body["tools"]["note"]["destructive"] is True
    assert (body["groups"], body["problems"]) == ({"hand": ["echo", "note"]}, [])
    assert api.ok(api.http.get("/tools/echo"))["schema"]["function"]["parameters"] == {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "Any text"}},
        "required": ["text"],
    }


def test_approved_call_runs_with_edited_arguments(shared: Shared) -> None:
    api = shared.api
    session_id = session_with(api, "confirm_destructive")
    assert called(api, "echo", session_id, text="unasked")["result"] == "unasked"
    with api.open_stream(session_id, instruct(calls("note", text="yes"), words(3))) as stream:
        with shared.quiet():
            pending = PendingApproval(api, session_id, stream)
        api.ok(pending.decide(approved=True, arguments={"text": "edited"}))
        events = pending.remaining_events()
    result = next(event for event in events if event.type == "tool_result")
    assert (result.data["success"], result.data["result"]) == (True, "edited")
    assert journal(shared.data_dir)[-1] == "call note"


def test_denied_call_is_not_sent_to_the_server(shared: Shared) -> None:
    api = shared.api
    session_id = session_with(api, "always_confirm")
    with (
        shared.quiet(),
        api.open_stream(session_id, instruct(calls("note", text="no"), words(3))) as stream,
    ):
        pending = PendingApproval(api, session_id, stream)
        assert pending.decide(approved=True, arguments={"text": 5}).status_code == 422
        api.ok(pending.decide(approved=False))
        result = next(event for event in pending.remaining_events() if event.type == "tool_result")
    assert result.data["error_code"] == "TOOL_EXECUTION_DENIED"


def test_wrong_arguments_are_not_sent_to_the_server(shared: Shared) -> None:
    with shared.quiet():
        outcome = called(shared.api, "echo", text=5)
    assert outcome["error_message"] == "Wrong arguments for echo: text: 5 is not of type 'string'"


def test_session_approval_covers_only_the_tool_of_that_server(api: Api, tmp_path: Path) -> None:
    session_id = session_with(api, "always_confirm", tools=["note"])
    with api.open_stream(session_id, instruct(calls("note", text="yes"), words(3))) as stream:
        pending = PendingApproval(api, session_id, stream)
        api.ok(pending.decide(approved=True, remember="session"))
        pending.remaining_events()
    assert called(api, "note", session_id, text="again")["success"]
    source = 'def note(text: str) -> str:\n    """Write."""\n    return text\n__all__ = ["note"]'
    write_tools(tmp_path, source)
    assert "hand_note" in api.ok(api.http.post("/tools/reload"))["tools"]
    assert (
        called(api, "note", session_id, text="now Python's")["error_code"]
        == "TOOL_EXECUTION_DENIED"
    )


def test_conflicting_tool_names_are_prefixed_with_the_server(
    stub: StubServer, tmp_path: Path
) -> None:
    write_tools(tmp_path, PYTHON)
    odd = by_hand(tmp_path, "agent", "add", "reload", "both", "files/read.all", "broken", "x" * 65)
    write_mcp(tmp_path, hand=odd, maths=by_hand(tmp_path, "both", "both"))
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        body = api.ok(api.http.get("/tools"))
        assert body["groups"] == {
            "maths": ["add"],
            "hand": ["hand_agent", "hand_add", "hand_reload", "both", "files_read_all"],
            "mcp:maths": ["maths_both"],
        }
        assert list(body["tools"]) == ["add", *body["groups"]["hand"], "maths_both"]
        assert body["tools"]["both"]["destructive"] is True
        assert body["tools"]["files_read_all"]["description"] == "Read all files"
        messages = [problem["message"] for problem in body["problems"]]
        session_id = session_with(api, tools=["add"])
        assert called(api, "add", session_id, a=1, b=2)["result"] == "Python"
        assert called(api, "hand_add", session_id)["result"] == "add"
    assert messages == [
        f"MCP server {sys.executable}: {message}"
        for message in (
            "its tool 'broken' cannot be used: its input schema is not a valid JSON schema",
            f"its tool '{'x' * 65}' is ignored: its name is in use or too long",
            "its tool 'both' is ignored: its name is in use or too long",
            "a tool group already has this name; the group of the server is 'mcp:maths'",
        )
    ]


def test_key_sees_only_the_servers_whose_tools_it_may_use(stub: StubServer, tmp_path: Path) -> None:
    write_mcp(
        tmp_path,
        hand=by_hand(tmp_path, "echo", "note", "odd"),
        other=by_hand(tmp_path, "files/read.all"),
        lost={"command": "no-such-program"},
    )
    keys = write_keys(
        tmp_path / "keys.yaml",
        none={"tools": "[]"},
        some={"tools": "[echo]"},
        free={},
        app={"scope": "all", "tools": "[echo]"},
    )
    with PatientServer(tmp_path, stub.url, api_keys_file=str(keys)) as server:
        seen = {}
        for key in ("none", "some", "free", "app"):
            api = server.api(headers=headers(key))
            listed = api.ok(api.http.get("/mcp/servers"))["servers"]
            seen[key] = [(each["name"], each["tools"], len(each["problems"])) for each in listed]
    assert seen == {
        "none": [],
        "some": [("hand", 1, 0)],
        "free": [("hand", 2, 1), ("other", 1, 0), ("lost", 0, 1)],
        "app": [("hand", 1, 0), ("other", 0, 0), ("lost", 0, 0)],
    }


def test_unusable_servers_are_problems_and_others_work(stub: StubServer, tmp_path: Path) -> None:
    write_mcp(
        tmp_path,
        hand={
            **by_hand(tmp_path, "echo"),
            "url": None,
            "type": None,
            "headers": None,
            "cwd": None,
            "disabled": None,
        },
        absent={"command": "no-such-program", "args": None, "env": None},
        ended=by_hand(tmp_path, "ended"),
        lost={"command": "sh", "cwd": "no-such-directory"},
        down={"url": "http://me:password@127.0.0.1:9/mcp?key=secret"},
        other={"url": f"{stub.url}/nothing-but-a-long-secret"},
        odd=by_hand(tmp_path, "note", "odd"),
        off={"command": "no-such-program", "disabled": True},
        empty={},
        torn={"command": "python", "args": "-m server"},
        wrong={"url": "ftp://x", "headers": {"a": ["b"]}, "type": "websocket"},
    )
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        until(lambda: "not responded" not in str(problems(api)))
        body = api.ok(api.http.get("/tools"))
        assert list(body["tools"]) == ["echo", "note"]
        told = [f"{problem['name']}: {problem['message']}" for problem in body["problems"]]
        assert called(api, "echo", text="still")["result"] == "still"
    assert told == [
        'mcp.json: empty: it needs a "command" or a "url"',
        "mcp.json: torn: args: Input should be a valid list",
        "mcp.json: wrong: url: not an http:// or https:// URL; headers.a: Input should be a "
        "valid string; type: Input should be 'http', 'streamable-http', 'streamableHttp', "
        "'streamable_http' or 'sse'",
        "absent: MCP server no-such-program: it cannot be started: the program was not found; "
        "install it, or set its full path as the command",
        f"ended: MCP server {sys.executable}: it exited without a response; its last line on "
        "stderr is in the log",
        "lost: MCP server sh: it cannot be started: its directory cwd does not exist",
        "down: MCP server http://127.0.0.1:9/mcp: the connection failed: All connection attempts "
        "failed",
        f"other: MCP server {stub.url}/***: it responded with HTTP status 404",
        f"odd: MCP server {sys.executable}: its tool 'odd' cannot be used: its definition is not "
        "valid MCP: inputSchema: Input should be a valid dictionary or instance of InputSchema",
    ]


def test_silent_server_delays_no_request(stub: StubServer, tmp_path: Path) -> None:
    write_mcp(tmp_path, silent=by_hand(tmp_path, "silent"))
    with PatientServer(tmp_path, stub.url, limits=AT_ONCE) as server:
        assert problems(server.api()) == {
            "silent": f"MCP server {sys.executable}: it has not responded yet"
        }


def test_silent_server_times_out(stub: StubServer, tmp_path: Path) -> None:
    write_mcp(tmp_path, silent=by_hand(tmp_path, "silent"))
    with PatientServer(tmp_path, stub.url, limits=replace(PATIENT, connect_seconds=0.3)) as server:
        assert problems(server.api()) == {
            "silent": f"MCP server {sys.executable}: it did not respond within 0.3 seconds"
        }


def test_silent_server_delays_no_call_of_another_server_after_a_reload(
    stub: StubServer, tmp_path: Path
) -> None:
    later = tmp_path / "later"
    later.mkdir()
    silent = by_hand(tmp_path, "silent_later", "echo", JOURNAL=str(later / "journal"))
    write_mcp(tmp_path, hand=by_hand(tmp_path, "note"), silent=silent)
    limits = replace(PATIENT, start_seconds=30)
    with PatientServer(tmp_path, stub.url, limits=limits) as server, ThreadPoolExecutor() as pool:
        api, other = server.api(timeout=60), server.api(timeout=60)
        assert {"echo", "note"} <= set(api.ok(api.http.get("/tools"))["tools"])
        session_id = session_with(api)
        reload = pool.submit(other.http.post, "/tools/reload")
        until(lambda: len(started(tmp_path)) == len(started(later)) == 2)
        assert called(api, "note", session_id, text="on")["result"] == "on"
        assert not reload.done()
        for process in [*started(tmp_path), *started(later)]:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


@pytest.fixture(scope="module")
def reloading(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shared]:
    """A server without MCP servers, for tests that reload the file."""
    data_dir = tmp_path_factory.mktemp("reloading")
    with PatientServer(data_dir, shared_stub.url) as server:
        yield Shared(server.api(), data_dir)


@cases(
    ("content", "message"),
    [
        (b"{", "it is not valid JSON: Expecting property name enclosed in double quotes (line 1)"),
        (b"\xff", "it is not valid JSON: UnicodeDecodeError"),
        (b"[" * 100_000, "it is not valid JSON: RecursionError"),
        (b"[]", 'it has no object "mcpServers"; add {"mcpServers": {...}}'),
        (b'{"mcpServers": {"a": 5}}', "a: it must be an object"),
        (
            b'{"mcpServers": {"a": {"command": "x", "args": %s}}}' % (b"[" * 900 + b"]" * 900),
            "a: it nests values deeper than 200 levels",
        ),
    ],
    ids=["cut", "bytes", "deep", "list", "number", "deep arguments"],
)
def test_malformed_file_is_a_problem(reloading: Shared, content: bytes, message: str) -> None:
    write_mcp(reloading.data_dir).write_bytes(content)
    reloading.api.ok(reloading.api.http.post("/tools/reload"))
    assert problems(reloading.api) == {"mcp.json": message}


def test_missing_mcp_extra_is_a_problem(
    stub: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    write_mcp(tmp_path, hand=by_hand(tmp_path, "echo"))
    with PatientServer(tmp_path, stub.url) as server:
        told = f"MCP servers need the extra mcp: {install_command('mcp')}"
        assert problems(server.api()) == {"mcp.json": told}
    assert started(tmp_path) == []


@offering("die", "echo", "flood")
@pytest.mark.parametrize(
    ("deadly", "message"),
    [
        ("die", "the connection ended before the response"),
        (
            "flood",
            "it sent a message of more than 16 MiB, which is the limit. Request a smaller result.",
        ),
    ],
    ids=["die", "flood"],
)
def test_server_that_dies_in_a_call_is_restarted_at_the_next(
    api: Api, tmp_path: Path, deadly: str, message: str
) -> None:
    outcome = called(api, deadly)
    assert (outcome["success"], outcome["error_code"]) == (False, "TOOL_EXECUTION_FAILED")
    assert outcome["error_message"] == f"{deadly} failed: {message}"
    until(lambda: "hand" in problems(api))
    assert called(api, "echo", text="again")["result"] == "again"
    assert problems(api) == {}
    first, second = started(tmp_path)
    until(lambda: not is_alive(first))
    assert is_alive(second)


def test_exit_is_logged_only_when_a_server_without_stderr_exits(
    stub: StubServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hand = by_hand(tmp_path, "echo", "die")
    # uvloop also passes duplicates of the pipes to the process.
    closes_stderr = (
        "import os; os.dup2(os.open(os.devnull, os.O_WRONLY), 2); os.closerange(3, 1024); "
        f"os.execv({sys.executable!r}, {[sys.executable, *hand['args']]})"
    )
    write_mcp(tmp_path, hand={**hand, "args": ["-S", "-c", closes_stderr]})
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        assert called(api, "echo", text="still")["result"] == "still"
        assert "MCP server exited" not in caplog.text
        called(api, "die")
        until(lambda: "MCP server exited server=hand: it wrote nothing to stderr" in caplog.text)


def test_exit_is_logged_if_the_server_closes_its_stdout_before_it_exits(
    stub: StubServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fails = ["-S", "-c", "import sys; sys.exit('No API key.')"]
    # uvloop also passes duplicates of the pipes to the process.
    closes_stdout = (
        "import os; os.dup2(os.open(os.devnull, os.O_WRONLY), 1); os.closerange(3, 1024); "
        f"os.execv({sys.executable!r}, {[sys.executable, *fails]})"
    )
    write_mcp(tmp_path, broken={"command": sys.executable, "args": ["-S", "-c", closes_stdout]})
    with PatientServer(tmp_path, stub.url) as server:
        assert "it exited without a response" in problems(server.api())["broken"]
        assert "MCP server exited server=broken: No API key." in caplog.text


def test_error_answer_fails_the_call_and_keeps_the_connection(answering: Shared) -> None:
    api = answering.api
    for code in (-32000, -32000, -32600, -32600, -32603, -32603):
        assert called(api, "refuse", code=code)["error_message"] == "refuse failed: Not today.", (
            code
        )
        assert problems(api) == {}, code
    assert len(started(answering.data_dir)) == 1


@offering("grow")
def test_tools_are_listed_again_after_a_change_notification(api: Api) -> None:
    assert list(api.ok(api.http.get("/tools"))["tools"]) == ["grow"]
    assert called(api, "grow")["success"]
    until(lambda: list(api.ok(api.http.get("/tools"))["tools"]) == ["grow", "echo"])


@cases("retry_seconds", [3600, 0.1])
def test_failed_list_of_changed_tools_ends_no_call(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory, retry_seconds: float
) -> None:
    data_dir = tmp_path_factory.mktemp("changing")
    write_mcp(data_dir, hand=by_hand(data_dir, "hang", "offer"))
    limits = replace(PATIENT, retry_seconds=retry_seconds, max_retry_seconds=retry_seconds)
    with PatientServer(data_dir, shared_stub.url, limits=limits) as server:
        api = server.api()
        until(lambda: "hang" in api.ok(api.http.get("/tools"))["tools"])
        session_id = session_with(api)
        with api.open_stream(session_id, instruct(calls("hang"), words(3))) as events:
            until(lambda: "call hang" in journal(data_dir))
            assert called(api, "offer", tools=["hang", "offer", "note", "unlisted"])["success"]
            if retry_seconds > 1:
                until(lambda: "hand" in problems(api))
                assert problems(api)["hand"] == (
                    f"MCP server {sys.executable}: its changed tools could not be listed: Not today."
                )
                assert list(api.ok(api.http.get("/tools"))["tools"]) == ["hang", "offer"]
                assert called(api, "offer", tools=["hang", "note"])["success"]
            until(lambda: "note" in api.ok(api.http.get("/tools"))["tools"])
            assert problems(api) == {}
            api.ok(api.http.post(f"/chat/{session_id}/stop"))
            assert list(events)[-1].type == "done"
        until(lambda: "notifications/cancelled" in journal(data_dir))
    assert len(started(data_dir)) == 1


def test_failed_call_has_the_error_of_the_server(answering: Shared) -> None:
    api = answering.api
    assert called(api, "fail")["error_message"] == "fail failed: It did not work."
    silent = called(api, "fail_silently")["error_message"]
    assert silent == "fail_silently failed: it reported an error without a message"
    with_image = called(api, "fail_with_image")["error_message"]
    assert with_image == "fail_with_image failed: [image, image/png, 70 bytes: not shown]"


def test_results_are_text_with_the_length_limit_of_all_tools(answering: Shared) -> None:
    api = answering.api
    much = called(api, "much")["result"]
    assert len(much) == 20_000
    assert "characters left out" in much
    pieces = (
        "[image, image/png, 3,000 bytes: not shown]\n[resource file:///a.bin, application/x-a, 3 "
        "bytes: not shown]"
    )
    assert called(api, "bytes")["result"] == pieces
    assert called(api, "structured")["result"] == '{"degrees":21}'
    nonsense = called(api, "nonsense")["error_message"]
    assert (
        nonsense
        == "nonsense failed: its response is not valid MCP: content: Input should be a valid list"
    )


def test_omitted_required_argument_with_a_default_gets_it(answering: Shared) -> None:
    api = answering.api
    parameters = api.ok(api.http.get("/tools/listed"))["schema"]["function"]["parameters"]
    assert parameters["required"] == ["page"]
    assert parameters["properties"]["text"]["description"] == "(default: everything)"
    assert called(api, "listed", page=1)["result"] == "everything"
    assert called(api, "listed", page=1, text="one")["result"] == "one"
    assert (
        called(api, "listed")["error_message"]
        == "Wrong arguments for listed: 'page' is a required property"
    )


def test_tool_with_a_schema_of_an_old_draft_is_usable(answering: Shared) -> None:
    api = answering.api
    parameters = api.ok(api.http.get("/tools/draft_3"))["schema"]["function"]["parameters"]
    assert parameters == {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    }
    assert called(api, "draft_3", text="one")["result"] == "one"


def test_references_to_environment_variables_are_replaced(
    stub: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_TEST_TOOL", "echo")
    entry = by_hand(
        tmp_path, "${MCP_TEST_TOOL}", "${env:MCP_TEST_TOOL}_2", "${MCP_TEST_UNSET:-note}"
    )
    entry["envFile"] = "${workspaceFolder}/.env"  # a key of an editor, which the server ignores
    write_mcp(tmp_path, hand=entry, bad={"url": "http://127.0.0.1:9/${MCP_TEST_UNSET}"})
    with PatientServer(tmp_path, stub.url) as server:
        body = server.api().ok(server.api().http.get("/tools"))
    assert list(body["tools"]) == ["echo", "echo_2", "note"]
    assert [problem["message"] for problem in body["problems"]] == [
        "bad: the environment variable MCP_TEST_UNSET is not set; set it, or write "
        "${MCP_TEST_UNSET:-default}"
    ]


def test_programs_of_the_virtual_environment_are_found_without_activation(
    stub: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "PATH", str(tmp_path)
    )  # a service of systemd has no virtual environment in its PATH
    write_mcp(tmp_path, hand={**by_hand(tmp_path, "echo"), "command": Path(sys.executable).name})
    with PatientServer(tmp_path, stub.url) as server:
        assert called(server.api(), "echo", text="found")["result"] == "found"


@offering("hang")
def test_stop_cancels_the_call_at_the_server(api: Api, tmp_path: Path) -> None:
    session_id = session_with(api)
    with api.open_stream(session_id, instruct(calls("hang"), words(3))) as events:
        until(lambda: "call hang" in journal(tmp_path))
        api.ok(api.http.post(f"/chat/{session_id}/stop"))
        assert list(events)[-1].type == "done"
    until(lambda: "notifications/cancelled" in journal(tmp_path))


def test_call_timeout_cancels_the_call_at_the_server(stub: StubServer, tmp_path: Path) -> None:
    write_mcp(tmp_path, hand=by_hand(tmp_path, "hang", "echo"))
    with PatientServer(tmp_path, stub.url, tool_timeout_seconds=0.5) as server:
        api = server.api()
        api.http.get("/tools")
        assert (
            called(api, "hang")["error_message"]
            == "hang failed: it took longer than 0.5 seconds (MOCHI_TOOL_TIMEOUT_SECONDS)"
        )
        until(lambda: "notifications/cancelled" in journal(tmp_path))
        until(
            lambda: called(api, "echo", text="on")["result"] == "on"
        )  # on a busy machine, it may also take too long
    assert len(started(tmp_path)) == 1


def test_reload_reads_the_file_and_reconnects(api: Api, tmp_path: Path) -> None:
    assert list(api.ok(api.http.get("/tools"))["groups"]) == ["hand"]
    write_mcp(tmp_path, other=by_hand(tmp_path, "echo"))
    body = api.ok(api.http.post("/tools/reload"))
    assert (body["groups"], body["problems"]) == ({"other": ["echo"]}, [])
    first, second = started(tmp_path)
    until(lambda: not is_alive(first))
    assert is_alive(second)


def test_program_that_cannot_start_after_a_reload_offers_no_tools(
    stub: StubServer, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.symlink_to(sys.executable)
    write_mcp(tmp_path, hand=by_hand(tmp_path, "echo", "odd") | {"command": str(program)})
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        assert api.ok(api.http.get("/tools"))["groups"] == {"hand": ["echo"]}
        program.rename(tmp_path / "renamed")
        body = api.ok(api.http.post("/tools/reload"))
        assert (body["tools"], body["groups"]) == ({}, {"hand": []})
        (problem,) = body["problems"]
        assert "it cannot be started" in problem["message"]
        (tmp_path / "renamed").rename(program)
        assert api.ok(api.http.post("/tools/reload"))["groups"] == {"hand": ["echo"]}


@pytest.mark.slow
def test_repeated_reloads_leave_no_process_behind(stub: StubServer, tmp_path: Path) -> None:
    """Processes that are still starting are ended, too, with their children."""
    stubborn = {
        **by_hand(tmp_path),
        "command": "sh",
        "args": ["-c", "trap '' TERM; sleep 77 & wait"],
    }
    write_mcp(tmp_path, hand=stubborn)
    limits = replace(AT_ONCE, exit_seconds=0.1)
    with PatientServer(tmp_path, stub.url, limits=limits) as server, ThreadPoolExecutor() as pool:
        clients = [server.api() for _ in range(4)]
        for answered in [pool.submit(client.http.post, "/tools/reload") for client in clients]:
            answered.result()
        until(lambda: running(tmp_path) == 2)
    assert running(tmp_path) == 0


@offering("hang", "echo")
def test_running_call_continues_through_a_reload(api: Api, tmp_path: Path) -> None:
    session_id = session_with(api)
    with api.open_stream(session_id, instruct(calls("hang"), words(3))) as events:
        until(lambda: "call hang" in journal(tmp_path))
        assert "hang" in api.ok(api.http.post("/tools/reload"))["tools"]
        first, second = started(tmp_path)
        assert is_alive(first)
        assert is_alive(second)
        api.ok(api.http.post(f"/chat/{session_id}/stop"))
        assert list(events)[-1].type == "done"
    until(lambda: not is_alive(first))


def test_server_gets_only_its_configured_environment(
    stub: StubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOCHI_LOG_LEVEL", "INFO")
    write_mcp(tmp_path, hand=by_hand(tmp_path, "env", GIVEN="yes"))
    with PatientServer(tmp_path, stub.url) as server:
        seen = called(server.api(), "env")["result"].split()
    assert {"GIVEN", "PATH"} <= set(seen)
    assert "MOCHI_LOG_LEVEL" not in seen


def test_stop_ends_mcp_servers_and_their_children(stub: StubServer, tmp_path: Path) -> None:
    """This includes a server that ignores SIGTERM and the end of its input."""
    write_mcp(tmp_path, hand=by_hand(tmp_path, "stubborn"))
    with PatientServer(tmp_path, stub.url, limits=replace(PATIENT, exit_seconds=0.1)) as server:
        assert "echo" in server.client.ok(server.client.http.get("/tools"))["tools"]
        pids = started(tmp_path)
        assert [is_alive(pid) for pid in pids] == [True, True]
    assert [is_alive(pid) for pid in pids] == [False, False]


def test_mcp_secrets_are_neither_returned_nor_logged(
    stub: StubServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("MCP_TEST_KEY", "hunter2-variable")
    monkeypatch.setenv("MCP_TEST_HEADER", "Basic hunter2-basic")
    hand = by_hand(tmp_path, "note")
    starts_hand = f"exec {sys.executable} {' '.join(hand['args'])}"
    prints_arguments = f"printf 'argument %s\\n' \"$@\" >&2; {starts_hand}"
    arguments = [
        "--key=${MCP_TEST_KEY}",
        "${MCP_TEST_HEADER}",
        "--header",
        "X-Key: Bearer hunter2-option",
        "--header=Authorization:hunter2-joined",
        "--verbose",
    ]
    write_mcp(
        tmp_path,
        hand=by_hand(tmp_path, "echo", SECRET="hunter2-env"),
        down={
            "url": "http://me:hunter2-url@127.0.0.1:9/mcp?key=hunter2-query",
            "headers": {"X": "hunter2-head"},
        },
        bad={"url": "http://127.0.0.1:9/mcp", "headers": {"X-Key": "hunter2\n-line"}},
        named=by_hand(tmp_path, "note", "broken", SECRET="broken"),
        wrong={"command": "x", "env": {"KEY": ["hunter2-wrong"]}},
        printing={**hand, "command": "sh", "args": ["-c", prints_arguments, "sh", *arguments]},
    )
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        assert set(problems(api)) == {"down", "bad", "named", "mcp.json"}
        assert "its tool '***' cannot be used" in problems(api)["named"]
        shown = api.http.get("/tools").text
        until(lambda: "The key is ***" in caplog.text)
        until(lambda: "argument --verbose" in caplog.text)
        assert "argument --key=***" in caplog.text
    assert "hunter2" not in shown + caplog.text
