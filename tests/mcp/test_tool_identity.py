"""Calls and approvals apply only to the tool that the user saw, even if its MCP server or file
changes meanwhile.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import StubServer
from tests.api.test_tools import PendingApproval
from tests.mcp.patient_server import PatientServer
from tests.mcp.test_servers import called
from tests.support.agents import delegate, nested, write_agent
from tests.support.api import Api, error_of
from tests.support.instructions import calls, instruct, words
from tests.support.mcp import by_hand, journal, write_mcp
from tests.support.mcp_server import TOOLS
from tests.support.tools import write_tools
from tests.support.waiting import until

NOTE = 'def note(text: str) -> str:\n    """Write."""\n    return "Python"\n__all__ = ["note"]'
NUMBER = {"note": {"inputSchema": {"type": "object", "properties": {"text": {"type": "integer"}}}}}
INITIAL = {"weather": ["offer"], "notes": ["note", "notes_offer"]}
INITIAL_TEXT = {"type": "str", "description": "Any text"}
"""Parameter of `note` at first, as the server lists it."""
TITLE = {
    "note": {"inputSchema": {"type": "object", "properties": {"text": {"description": "Title"}}}}
}


def offering(data_dir: Path, name: str, *tools: str) -> dict[str, Any]:
    """Return an entry for an MCP server with its own journal, whose tool `offer` changes what it
    offers.
    """
    (data_dir / name).mkdir(exist_ok=True)
    return by_hand(data_dir, *tools, "offer", JOURNAL=str(data_dir / name / "journal"))


@contextmanager
def serving(data_dir: Path, stub: StubServer) -> Iterator[Api]:
    """Yield a client of a server with the MCP servers `weather`, and `notes`, which offers
    `note`.
    """
    write_mcp(
        data_dir, weather=offering(data_dir, "weather"), notes=offering(data_dir, "notes", "note")
    )
    write_agent(
        data_dir,
        "writer",
        SKILL="---\ndescription: Writes.\nmcp_tools: [notes]\n---\nWrite.\n",
        writer=None,
        __init__=None,
    )
    with PatientServer(data_dir, stub.url) as server:
        api = server.api()
        assert groups(api) == INITIAL
        yield api


@pytest.fixture
def private_api(stub: StubServer, tmp_path: Path) -> Iterator[Api]:
    """A client for one test, which may write tools and reload them.

    The only MCP server is `notes`.
    """
    write_mcp(tmp_path, notes=offering(tmp_path, "notes", "note"))
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        assert groups(api) == {"notes": ["note", "offer"]}
        yield api


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("identity")


@pytest.fixture(scope="module")
def shared_api(shared_stub: StubServer, data_dir: Path) -> Iterator[Api]:
    with serving(data_dir, shared_stub) as api:
        yield api


@pytest.fixture
def api(stub: StubServer, shared_api: Api, data_dir: Path) -> Api:
    """A client of the module's server.

    Its MCP servers offer what they offered at first, and have empty journals.
    """
    del stub
    if groups(shared_api) != INITIAL or parameter_of_note(shared_api) != INITIAL_TEXT:
        change(shared_api, "offer")
        change(shared_api, "notes_offer", "note", note=TOOLS["note"])
        until(
            lambda: groups(shared_api) == INITIAL and parameter_of_note(shared_api) == INITIAL_TEXT
        )
    for name in ("weather", "notes"):
        (data_dir / name / "journal").write_text("")
    return shared_api


def parameter_of_note(api: Api) -> Any:
    return api.ok(api.http.get("/tools/note"))["parameters"]["text"]


def groups(api: Api) -> dict[str, list[str]]:
    listed: dict[str, list[str]] = api.ok(api.http.get("/tools"))["groups"]
    return listed


def change(api: Api, offer: str, *tools: str, **schemas: Any) -> None:
    """Call the tool `offer` of an MCP server, so that it offers other tools."""
    settings = {"tools": [offer], "execution_policy": "never_confirm"}
    session_id = api.create_session("mochi", tool_settings=settings)["session_id"]
    assert called(api, offer, session_id, tools=[*tools, "offer"], schemas=schemas)["success"]


def session_with(api: Api) -> str:
    return str(api.create_session("mochi", tool_settings={"tools": ["note"]})["session_id"])


def approved(api: Api, session_id: str) -> list[str]:
    names: list[str] = api.session(session_id)["tool_settings"].get("approved_tools", [])
    return names


def result_of(pending: PendingApproval) -> dict[str, Any]:
    return next(
        event.data for event in pending.remaining_events() if event.type.endswith("tool_result")
    )


def test_name_in_use_stays_with_its_server_while_a_call_waits(api: Api, data_dir: Path) -> None:
    session_id = session_with(api)
    with api.open_stream(session_id, instruct(calls("note", text="secret"), words(2))) as stream:
        pending = PendingApproval(api, session_id, stream)
        change(api, "offer", "note")
        until(lambda: groups(api)["weather"] == ["weather_note", "offer"])
        api.ok(pending.decide(approved=True, remember="session"))
        assert result_of(pending)["result"] == "secret"
    assert "call note" in journal(data_dir / "notes")
    assert "call note" not in journal(data_dir / "weather")
    assert approved(api, session_id) == ["mcp:notes/note"]


def test_name_of_a_withdrawn_tool_does_not_pass_to_another_server(api: Api, data_dir: Path) -> None:
    session_id = session_with(api)
    with api.open_stream(session_id, instruct(calls("note", text="secret"), words(2))) as stream:
        pending = PendingApproval(api, session_id, stream)
        change(api, "notes_offer")
        change(api, "offer", "note")
        until(
            lambda: groups(api) == {"weather": ["weather_note", "offer"], "notes": ["notes_offer"]}
        )
        api.ok(pending.decide(approved=True, remember="session"))
        assert result_of(pending)["error_code"] == "TOOL_NOT_FOUND"
    assert "call note" not in journal(data_dir / "weather") + journal(data_dir / "notes")
    assert approved(api, session_id) == []


def test_reload_keeps_the_names_of_configured_servers_and_frees_the_others(
    private_api: Api, tmp_path: Path
) -> None:
    api = private_api
    weather, notes = offering(tmp_path, "weather", "note"), offering(tmp_path, "notes", "note")
    write_mcp(tmp_path, weather=weather, notes=notes)
    reloaded = api.ok(api.http.post("/tools/reload"))["groups"]
    assert reloaded == {"weather": ["weather_note", "weather_offer"], "notes": ["note", "offer"]}
    write_mcp(tmp_path, weather=weather)
    assert api.ok(api.http.post("/tools/reload"))["groups"] == {"weather": ["note", "offer"]}


@pytest.mark.parametrize("change", [{"disabled": True}, {"args": 5}], ids=["disabled", "invalid"])
def test_reload_keeps_the_names_of_servers_that_mcp_json_still_contains(
    private_api: Api, tmp_path: Path, change: dict[str, Any]
) -> None:
    api = private_api
    weather, notes = offering(tmp_path, "weather", "note"), offering(tmp_path, "notes", "note")
    write_mcp(tmp_path, weather=weather, notes=notes | change)
    reloaded = api.ok(api.http.post("/tools/reload"))["groups"]
    assert reloaded == {"weather": ["weather_note", "weather_offer"]}


def test_reload_of_a_malformed_file_moves_no_names(private_api: Api, tmp_path: Path) -> None:
    api = private_api
    weather, notes = offering(tmp_path, "weather", "note"), offering(tmp_path, "notes", "note")
    write_mcp(tmp_path).write_text("{")
    assert api.ok(api.http.post("/tools/reload"))["groups"] == {}
    write_mcp(tmp_path, weather=weather, notes=notes)
    reloaded = api.ok(api.http.post("/tools/reload"))["groups"]
    assert reloaded == {"weather": ["weather_note", "weather_offer"], "notes": ["note", "offer"]}


def test_name_of_a_broken_python_tool_does_not_pass_to_a_server(
    private_api: Api, tmp_path: Path
) -> None:
    api = private_api
    write_tools(tmp_path, NOTE)
    assert api.ok(api.http.post("/tools/reload"))["groups"]["notes"] == ["notes_note", "offer"]
    write_tools(tmp_path, "def broken(:")
    body = api.ok(api.http.post("/tools/reload"))
    assert body["groups"]["notes"] == ["notes_note", "offer"]
    assert "note" not in body["tools"]


def test_call_needs_a_new_approval_when_its_tool_has_another_source(
    private_api: Api, tmp_path: Path
) -> None:
    api = private_api
    session_id = session_with(api)
    with api.open_stream(session_id, instruct(calls("note", text="secret"), words(2))) as stream:
        pending = PendingApproval(api, session_id, stream)
        write_tools(tmp_path, NOTE)
        api.ok(api.http.post("/tools/reload"))
        assert error_of(
            pending.decide(approved=True, arguments={"text": "edited"}, remember="session")
        ) == (
            409,
            "CONFIRMATION_STALE",
        )
        again = PendingApproval(api, session_id, stream)
        assert [event.data["code"] for event in again.received if event.type == "warning"] == [
            "TOOL_CHANGED"
        ]
        assert again.received[-1].data["arguments"] == {"text": "edited"}
        assert again.confirmation_id != pending.confirmation_id
        assert approved(api, session_id) == []
        api.ok(again.decide(approved=True, remember="session"))
        assert result_of(again)["result"] == "Python"
    assert approved(api, session_id) == ["note"]
    assert "call note" not in journal(tmp_path / "notes")


@pytest.mark.parametrize("agent", [False, True], ids=["session", "agent"])
def test_call_needs_a_new_approval_when_its_tool_has_another_schema(
    api: Api, data_dir: Path, *, agent: bool
) -> None:
    message, session_id = instruct(calls("note", text="x"), words(2)), session_with(api)
    if agent:
        message = nested(
            delegate(words(1), calls("note", text="x"), words(2), agent="writer"), words(2)
        )
        session_id = api.create_session("mochi", agent_settings={"enabled_agents": ["writer"]})[
            "session_id"
        ]
    with api.open_stream(session_id, message) as stream:
        pending = PendingApproval(api, session_id, stream)
        change(api, "notes_offer", "note", **TITLE)
        until(
            lambda: (
                api.ok(api.http.get("/tools/note"))["parameters"]["text"]["description"] == "Title"
            )
        )
        assert error_of(pending.decide(approved=True, remember="session")) == (
            409,
            "CONFIRMATION_STALE",
        )
        again = PendingApproval(api, session_id, stream)
        assert "call note" not in journal(data_dir / "notes")
        assert approved(api, session_id) == []
        api.ok(again.decide(approved=False))
        assert result_of(again)["error_code"] == "TOOL_EXECUTION_DENIED"


def test_call_fails_when_its_arguments_do_not_match_the_changed_schema(
    api: Api, data_dir: Path
) -> None:
    session_id = session_with(api)
    with api.open_stream(session_id, instruct(calls("note", text="x"), words(2))) as stream:
        pending = PendingApproval(api, session_id, stream)
        change(api, "notes_offer", "note", **NUMBER)
        until(lambda: api.ok(api.http.get("/tools/note"))["parameters"]["text"]["type"] == "int")
        assert error_of(pending.decide(approved=True, remember="session")) == (
            409,
            "CONFIRMATION_STALE",
        )
        assert "'x' is not of type 'integer'" in result_of(pending)["error_message"]
    assert "call note" not in journal(data_dir / "notes")
    assert approved(api, session_id) == []


def test_unchanged_tool_runs_after_a_reload(stub: StubServer, tmp_path: Path) -> None:
    write_tools(tmp_path, NOTE)
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        session_id = session_with(api)
        with api.open_stream(session_id, instruct(calls("note", text="x"), words(2))) as stream:
            pending = PendingApproval(api, session_id, stream)
            api.ok(api.http.post("/tools/reload"))
            api.ok(pending.decide(approved=True))
            assert result_of(pending)["result"] == "Python"


def test_group_of_a_server_has_its_own_name_if_a_tool_group_has_the_name(
    stub: StubServer, tmp_path: Path
) -> None:
    write_tools(tmp_path, NOTE + '\n__notes__ = ["note"]')
    write_mcp(tmp_path, notes=by_hand(tmp_path, "echo"), other=by_hand(tmp_path, "look"))
    with PatientServer(tmp_path, stub.url) as server:
        api = server.api()
        body = api.ok(api.http.get("/tools"))
        assert body["groups"] == {"notes": ["note"], "mcp:notes": ["echo"], "other": ["look"]}
        (problem,) = body["problems"]
        assert problem["message"].endswith(
            "a tool group already has this name; the group of the server is 'mcp:notes'"
        )
        for group, tool in (("notes", "note"), ("mcp:notes", "echo")):
            settings = {"tool_group": group, "execution_policy": "never_confirm"}
            session = api.create_session("mochi", tool_settings=settings)
            assert api.ok(api.http.get(f"/chat/{session['session_id']}/status"))[
                "active_tools"
            ] == [tool]
