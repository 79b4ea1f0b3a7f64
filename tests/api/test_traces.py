"""Spans of turns by OpenTelemetry's conventions for generative AI."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler, SamplingResult
from opentelemetry.trace import set_tracer_provider

from mochi_stub import Durations, Machine, Reply, StubServer, Usage
from tests.api.test_parked_turns import decide, finish, start
from tests.mcp.patient_server import PatientServer
from tests.mcp.test_authorization import authorize
from tests.mcp.test_servers import called
from tests.support.agents import write_agent
from tests.support.instructions import calls, instruct, words
from tests.support.mcp import write_mcp
from tests.support.mcp_oauth import OAuthMcp
from tests.support.server import RunningServer
from tests.support.stub import chats
from tests.support.tools import write_tools
from tests.support.waiting import until

TOOLS = '''
    def add(a: float, b: float) -> str:
        """Add two numbers."""
        return f"The secret sum is {a + b}."

    __all__ = ["add"]
    __read_only__ = ["add"]
'''


class Switch(Sampler):  # type: ignore[misc]  # the package has no types here
    """Sampler that records nothing before and after the tests of this module: a process has one
    tracer provider.
    """

    is_on = False

    def should_sample(self, *arguments: Any, **options: Any) -> SamplingResult:
        return (ALWAYS_ON if self.is_on else ALWAYS_OFF).should_sample(*arguments, **options)

    def get_description(self) -> str:
        return "Switch"


@pytest.fixture(scope="module")
def recording() -> Iterator[InMemorySpanExporter]:
    """The exporter of the spans of this process."""
    sampler, exporter = Switch(), InMemorySpanExporter()
    provider = TracerProvider(sampler=sampler)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    set_tracer_provider(provider)
    sampler.is_on = True
    yield exporter
    sampler.is_on = False


@pytest.fixture
def exporter(recording: InMemorySpanExporter) -> InMemorySpanExporter:
    """The exporter, without the spans of earlier tests."""
    recording.clear()
    return recording


@pytest.fixture
def stub() -> Iterator[StubServer]:
    with StubServer(speed=0, machine=Machine(parallel=2)) as stub:
        yield stub


def spans_of_turn(
    folder: Path,
    stub: StubServer,
    exporter: InMemorySpanExporter,
    instruction: str,
    **settings: Any,
) -> list[dict[str, Any]]:
    """Run a turn whose tools need no approval and return its spans."""
    write_tools(folder, TOOLS)
    write_agent(folder)
    with RunningServer(folder, stub.url, summarization_enabled=False, **settings) as server:
        api = server.api()
        tools = {"tools": ["add"], "execution_policy": "never_confirm"}
        agents = {"enabled_agents": ["helper"]}
        created = api.create_session("mochi", tool_settings=tools, agent_settings=agents)
        api.send_message(created["session_id"], instruction)
        api.send_message(created["session_id"], "Again.")
    return [json.loads(span.to_json()) for span in exporter.get_finished_spans() if is_ours(span)]


def is_ours(span: ReadableSpan) -> bool:
    """Return whether this server has made a span. FastAPI makes others."""
    return (
        span.instrumentation_scope is not None and span.instrumentation_scope.name == "mochi_server"
    )


def only(spans: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (span,) = (span for span in spans if span["name"] == name)
    return span


def test_tool_calls_have_spans(
    tmp_path: Path, stub: StubServer, exporter: InMemorySpanExporter
) -> None:
    spans = spans_of_turn(tmp_path, stub, exporter, instruct(calls("add", a=1, b=2), words(3)))
    tool = only(spans, "execute_tool add")
    first, last, again = (span for span in spans if span["name"] == "chat mochi")
    assert tool["parent_id"] == first["parent_id"] == last["parent_id"]
    assert first["end_time"] <= tool["start_time"] <= tool["end_time"] <= last["end_time"]
    assert tool["attributes"]["gen_ai.operation.name"] == "execute_tool"
    assert tool["attributes"]["gen_ai.tool.name"] == "add"
    assert tool["attributes"]["gen_ai.tool.call.id"]
    assert first["attributes"]["gen_ai.response.time_to_first_chunk"] > 0
    assert again["attributes"]["gen_ai.usage.cache_read.input_tokens"] > 0
    assert "secret" not in json.dumps(spans)
    assert "Again" not in json.dumps(spans)


def test_turn_that_continues_after_a_long_wait_has_the_times_of_its_steps(
    tmp_path: Path, stub: StubServer, exporter: InMemorySpanExporter
) -> None:
    write_tools(tmp_path, TOOLS)
    tools = {"tools": ["add"], "execution_policy": "always_confirm"}
    with RunningServer(tmp_path, stub.url, park_seconds=0, summarization_enabled=False) as server:
        api = server.api()
        message = instruct(calls("add", a=1, b=2), words(3))
        session_id, asked = start(api, message, {"tool_settings": tools})
        until(lambda: not server.app.state.services.turns.table.running())
        api.ok(decide(api, session_id, asked))
        finish(api, session_id)
    spans = [json.loads(span.to_json()) for span in exporter.get_finished_spans() if is_ours(span)]
    turn, tool = only(spans, "mochi.turn"), only(spans, "execute_tool add")
    first, last = (span for span in spans if span["name"] == "chat mochi")
    assert turn["start_time"] <= first["start_time"] <= first["end_time"] <= tool["start_time"]
    assert tool["start_time"] <= tool["end_time"] <= last["start_time"]
    assert last["start_time"] <= last["end_time"] <= turn["end_time"]


def test_turn_begins_with_its_run_whatever_durations_a_server_reports(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    reply = replace(Reply.of("Fine."), durations=Durations(total=10**18))
    with (
        StubServer(speed=0, resolve=lambda _: reply) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
    ):
        began = time.time_ns()
        session_id = server.client.create_session("mochi")["session_id"]
        server.client.send_message(session_id, "Hello!")
    (turn,) = (span for span in exporter.get_finished_spans() if span.name == "mochi.turn")
    assert turn.start_time is not None
    assert turn.start_time >= began


def test_answers_that_are_requested_again_have_spans(
    tmp_path: Path, exporter: InMemorySpanExporter
) -> None:
    replies = [Reply([], usage=Usage(7, 0)), Reply.of("Fine.")]
    with (
        StubServer(speed=0, resolve=lambda _: replies.pop(0)) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
    ):
        session_id = server.client.create_session("mochi")["session_id"]
        server.client.send_message(session_id, "Hello!")
    spans = [json.loads(span.to_json()) for span in exporter.get_finished_spans() if is_ours(span)]
    first, last = (span for span in spans if span["name"] == "chat mochi")
    assert first["end_time"] <= last["start_time"]
    assert first["attributes"]["gen_ai.usage.input_tokens"] == 7
    assert "gen_ai.response.time_to_first_chunk" not in first["attributes"]
    assert last["attributes"]["gen_ai.response.time_to_first_chunk"] > 0


def test_agents_have_spans(
    tmp_path: Path, stub: StubServer, exporter: InMemorySpanExporter
) -> None:
    spans = spans_of_turn(
        tmp_path,
        stub,
        exporter,
        instruct(calls("agent", agent="helper", instruction="Do it."), words(3)),
    )
    agent = only(spans, "invoke_agent helper")
    assert agent["parent_id"] == only(spans, "execute_tool agent")["context"]["span_id"]
    assert agent["attributes"]["gen_ai.agent.name"] == "helper"
    answers = [span for span in spans if span["parent_id"] == agent["context"]["span_id"]]
    outer = [span for span in spans if span["name"] == "chat mochi" and span not in answers]
    assert len(answers) == len(chats(stub)) - len(outer) == len(chats(stub)) - 3
    for answer in answers:
        assert (
            agent["start_time"] <= answer["start_time"] <= answer["end_time"] <= agent["end_time"]
        )
        assert answer["attributes"]["gen_ai.usage.input_tokens"] > 0
        assert answer["attributes"]["gen_ai.response.time_to_first_chunk"] > 0
    assert "Do it." not in json.dumps(spans)


def test_setting_allows_text_in_spans(
    tmp_path: Path, stub: StubServer, exporter: InMemorySpanExporter
) -> None:
    agent_call = calls("agent", agent="helper", instruction="Do it.")
    instruction = instruct(calls("add", a=1, b=2), agent_call, words(3))
    spans = spans_of_turn(tmp_path, stub, exporter, instruction, trace_content=True)
    tool = only(spans, "execute_tool add")["attributes"]
    assert json.loads(tool["gen_ai.tool.call.arguments"]) == {"a": 1, "b": 2}
    assert tool["gen_ai.tool.call.result"] == "The secret sum is 3.0."
    again = spans[-2]["attributes"]
    assert json.loads(again["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "Again."}]}
    ]
    assert "Again." in json.loads(again["gen_ai.output.messages"])[0]["parts"][0]["content"]
    agent = only(spans, "invoke_agent helper")
    answer = next(span for span in spans if span["parent_id"] == agent["context"]["span_id"])
    assert (
        json.loads(answer["attributes"]["gen_ai.input.messages"])[0]["parts"][0]["content"]
        == "Do it."
    )


def test_spans_have_no_tokens_and_no_queries(
    tmp_path: Path, stub: StubServer, exporter: InMemorySpanExporter
) -> None:
    with OAuthMcp() as remote:
        write_mcp(tmp_path, hand=remote.entry)
        with PatientServer(tmp_path, stub.url) as server:
            api = server.api()
            authorize(api)
            assert called(api, "shout", text="loud")["result"] == "LOUD"
            assert api.ok(api.http.get("/sessions", params={"q": "sourdough"}))["sessions"] == []
    spans = [span.to_json() for span in exporter.get_finished_spans()]
    assert any("execute_tool shout" in span for span in spans)
    for secret in (*remote.issued, "sourdough"):
        assert not secret or not [span for span in spans if secret in span]
