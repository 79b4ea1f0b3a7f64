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

SCRIPT = [block.text for block in blocks(PAGE) if block.language == "javascript"]
FUNCTIONS = "".join(text for text in SCRIPT if "const api =" in text or "function* events" in text)
USE = """
const seen = [];
for await (const { event, data } of events(await send(`/chat/%(session_id)s/stream`, "POST", %(body)s))) {
  seen.push([event, data]);
  if (event !== "tool_call_confirmation_required") continue;
  const decision = { confirmation_id: data.confirmation_id, approved: true, arguments: { text: %(text)s } };
  await send("/chat/%(session_id)s/confirm-tool", "POST", decision);
}
console.log(JSON.stringify(seen));
"""


pytestmark = pytest.mark.skipif(
    shutil.which("node") is None, reason="there is no Node on this machine"
)


def node(script: Path, code: str, server: RunningServer) -> str:
    """Write a program, with the address of the server, and return what it prints."""
    script.write_text(code.replace("http://127.0.0.1:8000", server.url))
    return subprocess.check_output(["node", str(script)], text=True, timeout=60)


def test_frontend_code_streams_and_approves_a_tool_call(tmp_path: Path) -> None:
    write_tools(tmp_path, TOOLS)
    with StubServer(speed=0) as stub, RunningServer(tmp_path, stub.url) as server:
        session_id = server.api().create_session("mochi", tool_settings={"tools": ["repeat"]})[
            "session_id"
        ]
        message = instruct(calls("repeat", text="nothing"), words(1))
        values = {
            "session_id": session_id,
            "body": json.dumps({"message": message}),
            "text": json.dumps(TEXT),
        }
        printed = node(tmp_path / "page.mjs", FUNCTIONS + USE % values, server)
    seen = json.loads(printed)
    assert [data["result"] for event, data in seen if event == "tool_result"] == [TEXT]
    assert [event for event, _ in seen][-2:] == ["message_complete", "done"]
