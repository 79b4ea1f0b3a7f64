"""OpenTelemetry: spans where an SDK is set up, and nothing of it where none is."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

TURN = """
import json, sys
from pathlib import Path
{setup}
from mochi_stub import StubServer
from tests.support.server import RunningServer

with StubServer(speed=0) as stub, RunningServer(Path(sys.argv[1]), stub.url) as server:
    api = server.api()
    session_id = api.create_session("mochi")["session_id"]
    api.send_message(session_id, "A secret")
    stub.stop()
    api.stream_message(session_id, "Hello!")
{report}
"""
SETUP = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
"""


def run(directory: Path, setup: str, report: str) -> str:
    program = TURN.format(setup=setup, report=report)
    command = [sys.executable, "-c", program, str(directory)]
    root = Path(__file__).parents[2]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=root).stdout


def test_a_turn_is_a_span_in_that_of_its_request_with_one_for_each_answer(tmp_path: Path) -> None:
    report = "print(json.dumps([json.loads(span.to_json()) for span in spans.get_finished_spans()]))"
    spans = json.loads(run(tmp_path, SETUP, report))
    by_id = {span["context"]["span_id"]: span for span in spans}
    turn, failed = (span for span in spans if span["name"] == "mochi.turn")
    (answer,) = (span for span in spans if span["name"].startswith("chat "))
    assert by_id[answer["parent_id"]] is turn
    if find_spec("fastapi.telemetry") is not None:  # which FastAPI for Python 3.10 does not have
        assert turn["parent_id"] in by_id
    assert turn["start_time"] <= answer["start_time"] <= answer["end_time"] <= turn["end_time"]
    assert answer["attributes"]["gen_ai.usage.output_tokens"] > 0
    assert turn["attributes"]["mochi.outcome"] == "completed"
    assert failed["attributes"]["error.type"] == "OLLAMA_UNREACHABLE"
    assert failed["status"]["status_code"] == "ERROR"
    assert "A secret" not in json.dumps(spans)


def test_without_a_set_up_sdk_nothing_of_it_is_imported(tmp_path: Path) -> None:
    report = "print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    assert run(tmp_path, "", report) == "[]\n"
