"""Tools that one server has read, and the calls that it has counted."""

from pathlib import Path

from tests.api.test_tools import ALL, TOOLS, session_with
from tests.support.api import Api
from tests.support.instructions import calls, instruct
from tests.support.tools import write_tools


def test_reload_applies_changes_and_reports_problems(private_api: Api, tmp_path: Path) -> None:
    write_tools(tmp_path, TOOLS)
    assert "add" in private_api.ok(private_api.http.get("/tools"))["tools"]
    write_tools(tmp_path, "def broken(:")
    assert private_api.ok(private_api.http.get("/tools"))["problems"] == []
    reloaded = private_api.ok(private_api.http.post("/tools/reload"))
    assert reloaded["tools"] == {}
    assert reloaded["problems"][0]["name"] == "__init__.py"
    write_tools(tmp_path, TOOLS)
    assert list(private_api.ok(private_api.http.post("/tools/reload"))["tools"]) == ALL


def test_tool_executions_are_listed_with_statistics(private_api: Api, tmp_path: Path) -> None:
    write_tools(tmp_path, TOOLS)
    session_id = session_with(private_api)
    private_api.send_message(session_id, instruct(calls("add", a=1, b=2), calls("boom")))
    body = private_api.ok(private_api.http.get("/tools/executions"))
    assert [(run["tool_name"], run["success"]) for run in body["executions"]] == [
        ("add", True),
        ("boom", False),
    ]
    assert (body["statistics"]["total"], body["statistics"]["failed"]) == (2, 1)
