"""Metrics of the server, read as Prometheus reads them."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from mochi_server.telemetry.metrics import Metrics
from mochi_stub import StubServer
from tests.support.api import Api, error_of, types_of
from tests.support.holding import GatedStub
from tests.support.instructions import instruct, words
from tests.support.raw_ollama import RawOllama, stream_head
from tests.support.server import RunningServer
from tests.support.stub import ModelStub
from tests.support.tools import write_tools
from tests.support.waiting import until
from tests.support.webhooks import Receiver

TOOLS = """
    def add(a: int, b: int) -> str:
        "Add."
        return str(a + b)

    def boom() -> str:
        "Explode."
        raise RuntimeError

    __all__ = ["add", "boom"]
"""


class Samples(dict[str, float]):
    """Samples as `name{label=value,...}`. A missing sample is 0."""

    def __missing__(self, key: str) -> float:
        return 0.0


def read(api: Api, path: str = "/metrics") -> Samples:
    response = api.http.get(path)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return Samples(
        (f"{s.name}{{{','.join(f'{k}={v}' for k, v in sorted(s.labels.items()))}}}", s.value)
        for family in text_string_to_metric_families(response.text)
        for s in family.samples
    )


@pytest.mark.parametrize(
    ("cached", "evaluated"), [(b',"prompt_eval_cached_count":30', 12), (b"", None)]
)
def test_evaluated_prompt_tokens_are_known_if_ollama_reports_cached_ones(
    tmp_path: Path, cached: bytes, evaluated: int | None
) -> None:
    counts = b'"prompt_eval_count":42%s,"prompt_eval_duration":500000000,"eval_count":1' % cached
    end = (
        b'{"model":"raw","message":{"role":"assistant","content":"Hi!"},"done":true,%s}\n' % counts
    )
    with (
        RawOllama(lambda connection: connection.sendall(stream_head() + end)) as ollama,
        RunningServer(tmp_path, ollama.url, summarization_enabled=False) as server,
    ):
        api = server.api()
        session_id = api.create_session("raw")["session_id"]
        api.send_message(session_id, "Hello!")
        status = api.ok(api.http.get(f"/sessions/{session_id}/status"))
        assert api.ok(api.http.get(f"/chat/{session_id}/status")) == status
        seen = read(api)
    assert status["prompt_evaluation"] == {
        "prompt_eval_count": 42,
        "prompt_eval_duration": 500000000,
        "prompt_eval_cached_count": 30 if cached else None,
        "evaluated_tokens": evaluated,
        "cached_share": None if evaluated is None else round(30 / 42, 4),
    }
    assert seen.get("mochi_evaluated_prompt_tokens_total{model=raw:latest}") == evaluated
    of_host = {
        name.split("kind=")[1]: n
        for name, n in seen.items()
        if name.startswith("mochi_ollama_host_prompt_tokens_total")
    }
    assert of_host == ({"evaluated}": 12, "spared}": 30} if cached else {})
    assert seen["mochi_turn_prompt_evaluation_seconds_count{}"] == 1
    assert seen["mochi_turn_prompt_evaluation_seconds_sum{}"] == 0.5


def test_gauges_show_ollama_and_the_turns_that_wait_for_it(tmp_path: Path) -> None:
    released = threading.Event()
    end = b'{"model":"raw","message":{"role":"assistant","content":"Hi!"},"done":true}\n'

    def chat(connection: socket.socket) -> None:
        released.wait(60)
        connection.sendall(stream_head() + end)

    with (
        RawOllama(chat) as ollama,
        RunningServer(tmp_path, ollama.url, summarization_enabled=False) as server,
    ):
        api = server.api()
        assert read(api)["mochi_ollama_connected{}"] == 0
        ollama.answers["/api/version"] = b'{"version":"0.5.0"}'
        session_id = api.create_session("raw")["session_id"]
        with api.open_stream(session_id, "Hello!") as events:
            until(lambda: read(api)["mochi_waiting_turns{}"] == 1)
            released.set()
            assert types_of(events)[-1] == "done"
        after = read(api)
    assert (after["mochi_waiting_turns{}"], after["mochi_ollama_connected{}"]) == (0, 1)


@pytest.fixture(scope="module")
def shared_stub() -> Iterator[ModelStub]:
    with ModelStub() as stub:
        yield stub


@pytest.fixture(scope="module")
def shared_server(
    shared_stub: ModelStub, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server with tools whose models are each of one test."""
    write_tools(data_dir := tmp_path_factory.mktemp("metrics"), TOOLS)
    with RunningServer(data_dir, shared_stub.url, summarization_enabled=False) as server:
        yield server


class Growth:
    """Growth of the samples of a server since the start of a test."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._before = read(api)

    def read(self) -> Samples:
        return Samples(
            (name, value - self._before[name]) for name, value in read(self._api).items()
        )


@pytest.fixture
def growth(api: Api) -> Growth:
    return Growth(api)


def test_turn_metrics_have_tokens_and_first_token_time(
    api: Api, stub: ModelStub, growth: Growth
) -> None:
    model = stub.add_model()
    answer = api.send_message(api.create_session(model)["session_id"], instruct(words(7)))[
        "message"
    ]
    api.stream_message(api.create_session(model)["session_id"], instruct(words(7)))
    seen = growth.read()
    assert seen["mochi_turns_total{outcome=completed}"] == 2
    assert seen["mochi_turn_duration_seconds_count{}"] == 2
    assert seen[f"mochi_model_requests_total{{model={model}:latest}}"] == 2
    assert (
        seen[f"mochi_tokens_total{{direction=out,model={model}:latest}}"]
        == 2 * answer["eval_count"]
    )
    assert (
        seen[f"mochi_tokens_total{{direction=in,model={model}:latest}}"]
        == 2 * answer["prompt_eval_count"]
    )
    assert seen[f"mochi_time_to_first_token_seconds_count{{model={model}:latest}}"] == 2
    assert seen["mochi_http_requests_total{method=POST,status=201}"] == 2


def test_model_load_is_counted_once_with_duration(api: Api, stub: ModelStub) -> None:
    heavy = stub.add_model(load_time=2.5)
    session_id = api.create_session(heavy)["session_id"]
    loads = [api.send_message(session_id, "Hello!")["message"]["load_duration"] for _ in range(2)]
    seen = read(api)
    assert loads[1] < 0.1e9 < loads[0]
    assert seen[f"mochi_model_load_duration_seconds_count{{model={heavy}:latest}}"] == 1
    assert seen[f"mochi_model_load_duration_seconds_sum{{model={heavy}:latest}}"] == pytest.approx(
        loads[0] / 1e9
    )


def test_window_growth_and_compaction_are_counted(
    api: Api, stub: ModelStub, growth: Growth
) -> None:
    session_id = api.create_session(stub.add_model(context_length=8192 * 2))["session_id"]
    events = [
        event.type
        for _ in range(3)
        for event in api.stream_message(session_id, "0123456789 " * 1000)
    ]
    seen = growth.read()
    assert seen["mochi_context_adjustments_total{reason=usage_threshold}"] == 1
    assert events.count("context_compacted") >= seen["mochi_context_compactions_total{}"] >= 1


def test_tool_calls_are_counted_by_outcome(api: Api, stub: ModelStub, growth: Growth) -> None:
    model = stub.add_model()
    for policy in ("never_confirm", "always_confirm"):
        settings = {"tools": ["add", "boom"], "execution_policy": policy}
        session_id = api.create_session(model, tool_settings=settings)["session_id"]
        tool_calls = [("add", {"a": 1, "b": 2}), ("boom", {}), ("invented", {})]
        call = {"tool_call": [{"name": name, "args": arguments} for name, arguments in tool_calls]}
        api.send_message(session_id, instruct(call, words(2)))
    seen = growth.read()
    assert {
        name: value for name, value in seen.items() if name.startswith("mochi_tool_calls_total")
    } == {
        "mochi_tool_calls_total{outcome=succeeded,tool=add}": 1,
        "mochi_tool_calls_total{outcome=failed,tool=boom}": 1,
        "mochi_tool_calls_total{outcome=failed,tool=unknown}": 2,
        "mochi_tool_calls_total{outcome=denied,tool=add}": 1,
        "mochi_tool_calls_total{outcome=denied,tool=boom}": 1,
    }


def test_running_turns_and_open_streams_are_counted(holding: GatedStub, tmp_path: Path) -> None:
    with RunningServer(tmp_path, holding.stub.url) as server:
        api = server.api()
        with api.open_stream(api.create_session("mochi")["session_id"], "hold") as events:
            next(events)
            seen = read(server.api())
            assert (seen["mochi_running_turns{}"], seen["mochi_open_streams{}"]) == (1, 1)
            holding.gate.open()
            list(events)
        seen = read(api)
        assert (seen["mochi_running_turns{}"], seen["mochi_open_streams{}"]) == (0, 0)


def test_errors_are_counted_by_code_for_turns_and_requests(tmp_path: Path) -> None:
    with StubServer(speed=0) as stub, RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        stub.stop()
        api.stream_message(session_id, "Hello!")
        assert error_of(api.http.get("/sessions/0123456789"))[0] == 404
        assert (
            error_of(api.http.get("/health", headers={"Origin": "https://foreign.example"}))[0]
            == 403
        )
        seen = read(api)
    assert seen["mochi_turns_total{outcome=failed}"] == 1
    assert seen["mochi_errors_total{code=OLLAMA_UNREACHABLE,of=turn}"] == 1
    assert seen["mochi_errors_total{code=SESSION_NOT_FOUND,of=request}"] == 1
    assert seen["mochi_errors_total{code=ORIGIN_FORBIDDEN,of=request}"] == 1


def test_metrics_need_key_and_use_default_path(tmp_path: Path, stub: StubServer) -> None:
    with RunningServer(tmp_path, stub.url, api_keys=("key",)) as server:
        url = f"{server.url}/metrics"
        assert error_of(httpx.get(url)) == (401, "UNAUTHORIZED")
        with Api(server.url, headers={"Authorization": "Bearer key"}) as api:
            seen = read(api, url)
    assert seen["process_resident_memory_bytes{}"] > 1_000_000
    assert [name for name in seen if name.startswith("mochi_build_info")]


def test_two_servers_in_one_process_have_own_metrics(
    private_api: Api, tmp_path: Path, private_stub: StubServer
) -> None:
    with RunningServer(tmp_path / "other", private_stub.url) as other:
        private_api.send_message(
            private_api.create_session("mochi")["session_id"], instruct(words(2))
        )
        assert read(private_api)["mochi_turns_total{outcome=completed}"] == 1
        assert read(other.api())["mochi_turns_total{outcome=completed}"] == 0


def test_unknown_names_do_not_add_labels_without_limit() -> None:
    metrics = Metrics()
    for number in range(1000):
        metrics.first_token(f"model-{number}", 1)
        metrics.request_ended(f"METHOD{number}", 200, None)
        metrics.response_ended(
            {"model": f"model-{number}", "eval_count": "many", "load_duration": None}
        )
    rendered = metrics.render()
    assert len(rendered.splitlines()) < 5000
    assert b'model="other"' in rendered


def test_metric_names_have_prefix_and_unit() -> None:
    assert [name for name, kind, _, _ in Metrics().described if not name.startswith("mochi_")] == []
    for name, kind, _, text in Metrics().described:
        assert (kind == "counter") == name.endswith("_total")
        assert (kind == "histogram") == name.endswith("_seconds")
        assert text.endswith(".")


def test_undelivered_webhooks_are_counted_until_the_receiver_accepts_them(
    private_stub: StubServer, tmp_path: Path
) -> None:
    receiver = Receiver()
    receiver.answering.clear()
    with RunningServer(tmp_path, private_stub.url, **receiver.settings) as server:
        api = server.client
        assert read(api)["mochi_undelivered_webhooks{}"] == 0
        api.send_message(api.create_session("mochi")["session_id"], "Hello!")
        until(lambda: receiver.received)
        seen = read(api)
        assert seen["mochi_undelivered_webhooks{}"] == 1
        assert 0 < seen["mochi_oldest_webhook_age{}"] < 600
        receiver.answering.set()
        until(lambda: read(api)["mochi_undelivered_webhooks{}"] == 0)
        assert read(api)["mochi_oldest_webhook_age{}"] == 0
    receiver.close()


def test_disk_queue_limit_and_overdue_turns_are_measured(
    private_stub: StubServer, tmp_path: Path
) -> None:
    with RunningServer(tmp_path, private_stub.url, max_queue=7) as server:
        seen = read(server.client)
    assert seen["mochi_queue_limit{}"] == 7
    assert seen["mochi_overdue_turns{}"] == 0
    assert 0 < seen["mochi_disk_free_bytes{}"] < seen["mochi_disk_size_bytes{}"]
