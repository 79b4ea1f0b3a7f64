"""The MCP reference server with every kind of tool, over both transports.

Needs Node: ``npm ci`` in ``js``.
"""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import StubServer
from tests.api.test_tools import PendingApproval
from tests.mcp.patient_server import PatientServer
from tests.mcp.test_servers import called, problems, session_with
from tests.support.api import Api
from tests.support.instructions import calls, instruct, words
from tests.support.mcp import write_mcp
from tests.support.waiting import until

PROGRAM = (
    Path(__file__).parent / "js/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAM.exists(), reason="`npm ci` has not been run in tests/mcp/js"),
]


@pytest.fixture(params=["stdio", "streamableHttp"])
def entry(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    if request.param == "stdio":
        yield {"command": "node", "args": [str(PROGRAM), "stdio"]}
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["node", str(PROGRAM), request.param]
    with subprocess.Popen(
        command, env={**os.environ, "PORT": str(port)}, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert any("listening" in line for line in process.stderr)
        yield {"url": f"http://127.0.0.1:{port}/mcp"}
        process.kill()


@pytest.fixture
def server(stub: StubServer, tmp_path: Path, entry: dict[str, Any]) -> Iterator[PatientServer]:
    write_mcp(tmp_path, hand=entry)
    with PatientServer(tmp_path, stub.url) as server:
        yield server


@pytest.fixture
def api(server: PatientServer) -> Api:
    return server.api()


def test_tools_are_listed_approved_called_and_denied(api: Api) -> None:
    until(lambda: problems(api) == {})
    tools = api.ok(api.http.get("/tools"))["tools"]
    assert {"echo", "get-sum", "get-tiny-image", "gzip-file-as-resource"} <= set(tools)
    assert tools["get-sum"]["parameters"]["a"] == {"type": "float", "description": "First number"}
    assert (tools["echo"]["destructive"], tools["gzip-file-as-resource"]["destructive"]) == (
        False,
        True,
    )
    assert api.ok(api.http.get("/tools/get-sum"))["schema"]["function"]["parameters"][
        "required"
    ] == ["a", "b"]

    assert called(api, "echo", text="x")["error_message"].startswith("Wrong arguments")
    assert "[image, image/png, " in called(api, "get-tiny-image")["result"]
    assert '"temperature"' in called(api, "get-structured-content", location="Chicago")["result"]

    session_id = session_with(api, "always_confirm")
    for approved, outcome in ((True, "The sum of 1 and 2 is 3."), (False, None)):
        with api.open_stream(session_id, instruct(calls("get-sum", a=1, b=2), words(2))) as stream:
            pending = PendingApproval(api, session_id, stream)
            api.ok(pending.decide(approved=approved))
            result = next(
                event for event in pending.remaining_events() if event.type == "tool_result"
            )
        assert (result.data["success"], result.data["result"]) == (approved, outcome)
