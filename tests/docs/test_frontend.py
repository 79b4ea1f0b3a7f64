"""The JavaScript of `docs/how-to/write-a-frontend.md`, run by Node against a server."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from mochi_stub import StubServer
from tests.docs_tooling.pages import ROOT, blocks
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.tools import write_tools

PAGE = ROOT / "docs" / "how-to" / "write-a-frontend.md"
TOOLS = """
    def repeat(text: str) -> str:
        "Say it again."
        return text

    __all__ = ["repeat"]
"""
TEXT = "id: a\u2028b\n\ndata: c"
"""Text that a wrong parser of event streams would split."""

USE = """
const seen = [];
await turn(%s, %s, (event, data) => {
  seen.push([event, data]);
  if (event === "tool_call_confirmation_required") decide(%s, data, true, %s);
});
console.log(JSON.stringify(seen));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node on this machine")
def test_frontend_code_streams_and_approves_a_tool_call(tmp_path: Path) -> None:
    write_tools(tmp_path, TOOLS)
    with StubServer(speed=0) as stub, RunningServer(tmp_path, stub.url) as server:
        session_id = server.api().create_session("mochi", tool_settings={"tools": ["repeat"]})["session_id"]
        message = instruct(calls("repeat", text="nothing"), words(1))
        code = "".join(block.text for block in blocks(PAGE) if block.language == "javascript")
        script = tmp_path / "page.mjs"
        used = USE % tuple(map(json.dumps, (session_id, message, session_id, {"text": TEXT})))
        script.write_text(code.replace("http://127.0.0.1:8000", server.url) + used)
        printed = subprocess.run(["node", script], check=True, capture_output=True, timeout=30).stdout
    seen = json.loads(printed)
    assert [data["result"] for event, data in seen if event == "tool_result"] == [TEXT]
    assert [event for event, _ in seen][-2:] == ["message_complete", "done"]
