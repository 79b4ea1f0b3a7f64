"""Web frameworks, MCP, AG-UI and OpenTelemetry are imported on demand; spans of a turn.

Most tests read the report of one process, because each start of the server costs a second.
"""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import StubServer

ROOT = Path(__file__).parents[2]
WEB = ("fastapi", "starlette", "sse_starlette", "uvicorn")
STATEMENTS = [
    "from mochi_server import MochiServerSettings",
    "from mochi_server.sessions import SessionManager",
    "from mochi_server.ollama import OllamaClient",
    "from mochi_server.ollama import AsyncOllamaClient, AsyncInstructorOllamaClient",
    "from mochi_server.services import SystemPromptService, WindowRegistry",
    "from mochi_server.agents import AgentDiscoveryService, AgentExecutionService",
    "from mochi_server.container import build_services",
    "from mochi_server.client import AsyncMochiClient, MochiClient",
]
LOADED = """
def loaded(*packages):
    return sorted(name for name in sys.modules if name.partition(".")[0] in packages)
"""
SERVE = """
import asyncio
from pathlib import Path

from tests.support.server import RunningServer

folder, ollama = Path(sys.argv[1]), sys.argv[2]


async def tools_of(data_dir):
    services = build_services(MochiServerSettings(data_dir=str(data_dir)))
    await services.open()
    tools = list((await services.tools.catalogue()).tools)
    await services.aclose()
    return tools


def run_turns(data_dir):
    with RunningServer(data_dir, ollama) as server:
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        api.send_message(session_id, "A secret")
    with RunningServer(data_dir, "http://127.0.0.1:9") as server:
        server.api().stream_message(session_id, "Hello!")


for name in ("without a file", "without a server in it"):
    report[name] = [asyncio.run(tools_of(folder / name)), loaded("mcp", "mcp_types", "httpx2")]

run_turns(folder / "untraced")
report["MCP"] = loaded("mcp", "mcp_types", "httpx2")
report["AG-UI"] = loaded("ag_ui")
report["SDK"] = [name for name in sys.modules if name.startswith("opentelemetry.sdk")]

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
run_turns(folder / "traced")
report["spans"] = [json.loads(span.to_json()) for span in spans.get_finished_spans()]
print(json.dumps(report))
"""


def program(statements: list[str]) -> str:
    """Return a program that runs statements and collects the packages of web frameworks that each
    has loaded.

    Statements without a client also load no HTTP client.
    """
    lines = ["import json, sys", "report = {'web': []}", LOADED]
    for statement in statements:
        packages = WEB if "Client" in statement else (*WEB, "httpx")
        lines.append(f"{statement}\nreport['web'].append(loaded(*{packages!r}))")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def report(shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report of a new process that served without and then with OpenTelemetry's SDK."""
    folder = tmp_path_factory.mktemp("optional")
    tools = folder / "without a server in it" / "tools"
    tools.mkdir(parents=True)
    (tools / "mcp.json").write_text('{"mcpServers": {}}')
    command = [sys.executable, "-c", program(STATEMENTS) + SERVE, str(folder), shared_stub.url]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    report_of_process: dict[str, Any] = json.loads(ran.stdout)
    return report_of_process


def test_using_the_library_loads_no_web_framework(report: dict[str, Any]) -> None:
    assert report["web"] == [[]] * len(STATEMENTS)


@pytest.mark.slow
@pytest.mark.parametrize("statement", STATEMENTS)
def test_each_library_import_alone_loads_no_web_framework(statement: str) -> None:
    text = f"{program([statement])}\nprint(report['web'])"
    ran = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert ran.stdout == "[[]]\n"


@pytest.mark.parametrize("configured", ["without a file", "without a server in it"])
def test_mcp_is_imported_only_if_a_server_is_configured(
    report: dict[str, Any], configured: str
) -> None:
    assert report[configured] == [[], []]
    assert report["MCP"] == []


def test_types_of_ag_ui_are_not_imported_without_its_requests(report: dict[str, Any]) -> None:
    assert report["AG-UI"] == []


def test_sdk_of_opentelemetry_is_not_imported_by_the_server(report: dict[str, Any]) -> None:
    assert report["SDK"] == []


def test_turn_has_a_span_with_one_child_for_each_answer(report: dict[str, Any]) -> None:
    spans = report["spans"]
    by_id = {span["context"]["span_id"]: span for span in spans}
    turn, failed = (span for span in spans if span["name"] == "mochi.turn")
    (answer,) = (span for span in spans if span["name"].startswith("chat "))
    assert by_id[answer["parent_id"]] is turn
    if find_spec("fastapi.telemetry") is not None:  # FastAPI for Python 3.10 does not have it
        assert turn["parent_id"] in by_id
    assert turn["start_time"] <= answer["start_time"] <= answer["end_time"] <= turn["end_time"]
    assert answer["attributes"]["gen_ai.usage.output_tokens"] > 0
    assert turn["attributes"]["mochi.outcome"] == "completed"
    assert failed["attributes"]["error.type"] == "OLLAMA_UNREACHABLE"
    assert failed["status"]["status_code"] == "ERROR"
    assert "A secret" not in json.dumps(spans)
