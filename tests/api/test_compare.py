"""Comparison of models over one stream."""

import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from mochi_stub import StubServer
from mochi_stub.models import Model, Remote
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Failure, Gate, Reply, Text
from tests.support.api import Api, error_of
from tests.support.cases import cases
from tests.support.server import RunningServer
from tests.support.stub import chats

Events = list[tuple[str, dict[str, Any]]]


def compare(url: str, body: dict[str, Any], path: str = "/api/v1/models/test") -> Events:
    response = httpx.post(url + path, json=body, timeout=20)
    assert response.status_code == 200, response.text
    frames = [frame.split("\n") for frame in response.text.split("\n\n") if frame.startswith("event: ")]
    return [(event.removeprefix("event: "), orjson.loads(data.removeprefix("data: "))) for event, data in frames]


def of_model(events: Events, model_id: str) -> Events:
    return [(kind, data) for kind, data in events if data.get("modelId") == model_id]


@cases("path", ["/api/v1/models/test", "/api/v1/models/test/", "/models/test", "/models/test/"])
def test_models_answer_in_requested_order(server: RunningServer, path: str) -> None:
    events = compare(server.url, {"modelIds": ["mochi-chat", "mochi"], "message": "Hello!"}, path)

    kinds = [kind for i, (kind, _) in enumerate(events) if i == 0 or events[i - 1][0] != kind]
    assert kinds == ["metadata", "start", "chunk", "end", "done"] * 2 + ["complete"]
    first, second = events[0][1], of_model(events, "mochi")[0][1]
    assert first == {"modelId": "mochi-chat", "modelName": "mochi-chat:latest", "provider": "Ollama"}
    assert second["modelName"] == "mochi:latest"
    for model_id in ("mochi-chat", "mochi"):
        done = of_model(events, model_id)[-1][1]
        assert done["response"] == "".join(d["delta"] for kind, d in of_model(events, model_id) if kind == "chunk")
        assert done["response"].endswith("Hello!")
        assert done["inputTokens"] > 0
        assert done["outputTokens"] > 0
        assert 0 < done["firstTokenMs"] <= done["totalMs"]
        assert done["tokensPerSecond"] > 0
    assert events[-1] == ("complete", {"message": "All models completed"})


def test_numbers_select_models_of_the_list(server: RunningServer) -> None:
    names = [model["name"] for model in server.api().ok(server.api().http.get("/models"))["models"]]
    events = compare(server.url, {"modelIds": [2, "1"], "message": "Hello!"})
    metadata = [data for kind, data in events if kind == "metadata"]
    assert [(m["modelId"], m["modelName"]) for m in metadata] == [("2", names[1]), ("1", names[0])]


def test_thinking_is_separate_from_response(server: RunningServer) -> None:
    body = {"modelIds": ["mochi"], "message": "Why?\nReason: because", "think": True}
    events = compare(server.url, body)
    thinking = [d for kind, d in events if kind == "chunk" and d.get("kind") == "thinking"]
    assert thinking
    assert events[-2][1]["response"] == "".join(d["delta"] for k, d in events if k == "chunk" and "kind" not in d)


def test_system_prompt_history_and_options_are_sent(server: RunningServer, stub: StubServer) -> None:
    history = [{"role": "user", "content": "A"}, {"role": "assistant", "content": "B"}]
    body = {"modelIds": ["mochi"], "message": "C", "systemPrompt": "S", "chatHistory": history, "options": {"seed": 7}}
    compare(server.url, body)
    sent = next(e.body for e in reversed(stub.exchanges()) if e.path == "/api/chat")
    assert sent is not None
    assert [m["content"] for m in sent["messages"]] == ["S", "A", "B", "C"]
    assert sent["options"].items() >= {"seed": 7, "num_ctx": 8192}.items()
    assert 8000 < sent["options"]["num_predict"] < 8192


@pytest.mark.parametrize(("num_predict", "sent"), [(7, 7), (-1, None), (100_000, None)])
def test_answers_fit_the_window_after_the_prompt(tmp_path: Path, num_predict: int, sent: int | None) -> None:
    with StubServer(speed=0) as stub, RunningServer(tmp_path, stub.url) as server:
        compare(server.url, {"modelIds": ["mochi"], "message": "Hi", "options": {"num_predict": num_predict}})
        (exchange,) = chats(stub)
    options = (exchange.body or {})["options"]
    assert sent in (None, options["num_predict"])
    assert 0 < options["num_predict"] <= options["num_ctx"] - (exchange.prompt_tokens or 0)


@cases(
    ("body", "message"),
    [
        ({"modelIds": ["mochi"]}, "message is required"),
        ({"modelIds": ["mochi"], "message": "  "}, "message is required"),
        ({"modelIds": ["mochi"], "message": 5}, "message is required"),
        ({"message": "Hi"}, "modelIds must be a non-empty array"),
        ({"modelIds": [], "message": "Hi"}, "modelIds must be a non-empty array"),
        ({"modelIds": "mochi", "message": "Hi"}, "modelIds must be a non-empty array"),
        ({"modelIds": [None], "message": "Hi"}, "at least 1 model required"),
        ({"modelIds": [1, 2, 3, 4], "message": "Hi"}, "maximum 3 models allowed"),
        ({"modelIds": ["mochi", "nobody"], "message": "Hi"}, "Invalid model ID: nobody"),
        ({"modelIds": [99], "message": "Hi"}, "Invalid model ID: 99"),
        ({"modelIds": [0], "message": "Hi"}, "Invalid model ID: 0"),
        ({"modelIds": [True], "message": "Hi"}, "Invalid model ID: true"),
        ({"modelIds": ["mochi", {"id": None}], "message": "Hi"}, 'Invalid model ID: {"id": null}'),
        ({"modelIds": ["mochi-embed"], "message": "Hi"}, "Invalid model ID: mochi-embed"),
    ],
)
def test_documented_rules_return_400_with_message(api: Api, body: dict[str, Any], message: str) -> None:
    response = api.http.post("/models/test", json=body)
    assert error_of(response) == (400, "VALIDATION_ERROR")
    assert response.json()["error"]["message"] == message


@cases(
    "extra",
    [
        {"chatHistory": [{"role": "robot", "content": "x"}]},
        {"chatHistory": "x"},
        {"options": {"num_ctx": 1}},
        {"think": "x"},
    ],
)
def test_other_wrong_fields_are_422(api: Api, extra: dict[str, Any]) -> None:
    response = api.http.post("/models/test", json={"modelIds": ["mochi"], "message": "Hi", **extra})
    assert error_of(response) == (422, "VALIDATION_ERROR")


def test_failing_model_does_not_stop_other_models(tmp_path: Path) -> None:
    def resolve(prompt: Prompt) -> Reply | None:
        return Reply([Text(["Half"]), Failure("kaput")]) if prompt.model.startswith("mochi:") else None

    with StubServer(speed=0, resolve=resolve) as stub, RunningServer(tmp_path, stub.url) as server:
        events = compare(server.url, {"modelIds": ["mochi", "mochi-chat"], "message": "Hello!"})
    assert [kind for kind, _ in of_model(events, "mochi")] == ["metadata", "start", "chunk", "error"]
    assert of_model(events, "mochi")[-1][1] == {"modelId": "mochi", "error": "Ollama failed: kaput"}
    assert of_model(events, "mochi-chat")[-1][0] == "done"
    assert events[-1][0] == "complete"


def test_disconnect_stops_second_model_and_stores_nothing(tmp_path: Path) -> None:
    gate = Gate()

    def resolve(prompt: Prompt) -> Reply | None:
        return Reply([Text(["one"]), gate]) if prompt.model.startswith("mochi-chat") else Reply.of("Fine.")

    with StubServer(speed=0, resolve=resolve) as stub, RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        body = {"modelIds": ["mochi", "mochi-chat"], "message": "Hello!"}
        with api.http.stream("POST", "/models/test", json=body) as response:
            seen = b""
            for data in response.iter_raw():
                seen += data
                if b'"one"' in seen:
                    break
        stub.wait_for(lambda all_: any(e.path == "/api/chat" and e.outcome == "cancelled" for e in all_))
        gate.open()
        assert api.ok(api.http.get("/sessions")) == {"sessions": []}


def test_comparison_does_not_reload_model_of_a_chat(tmp_path: Path) -> None:
    with StubServer(speed=0) as stub, RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        api.send_message(session_id, "Long: " + "word " * 1500)
        for _ in range(3):
            compare(server.url, {"modelIds": ["mochi", "mochi-chat"], "message": "Compare!"})
            api.send_message(session_id, "And?")
        compared = [e for e in stub.exchanges() if e.body and "Compare!" in str(e.body.get("messages"))]
        assert len(compared) == 6
        assert not any(e.reload for e in compared)


def test_refused_prompt_enlarges_the_window(tmp_path: Path) -> None:
    dense = "漢字" * 14_000  # the estimate of an uncalibrated model is much too small for this text
    models = (Model("large", context_length=131_072), Model("small", context_length=20_000))
    with StubServer(speed=0, models=models) as stub, RunningServer(tmp_path, stub.url) as server:
        body = {"modelIds": ["large", "small"], "message": "Hello!", "systemPrompt": dense}
        events = compare(server.url, body)
    assert [kind for kind, _ in of_model(events, "large") if kind != "chunk"] == ["metadata", "start", "end", "done"]
    kind, data = of_model(events, "small")[-1]
    assert (kind, "context size" in data["error"]) == ("error", True)
    assert len([sent for sent in chats(stub) if sent.body and sent.body["model"].startswith("small")]) == 1


@pytest.mark.parametrize(("limit", "requests", "outcome"), [(5000, 2, "done"), (100, 2, "error")])
def test_out_of_memory_reduces_the_window_once(tmp_path: Path, limit: int, requests: int, outcome: str) -> None:
    models = (Model("big", context_length=40960, out_of_memory_above=limit),)
    with StubServer(speed=0, models=models) as stub, RunningServer(tmp_path, stub.url) as server:
        events = compare(server.url, {"modelIds": ["big"], "message": "Hello!"})
    assert of_model(events, "big")[-1][0] == outcome
    assert [sent.body and sent.body["options"]["num_ctx"] for sent in chats(stub)] == [8192, 4096][:requests]


@pytest.mark.one_process("each server has its own windows")
@pytest.mark.parametrize(
    ("failure", "windows"),
    [
        (Failure("cudaMalloc failed: out of memory"), {8192: 4, 4096: 4}),
        (Failure("request (9001 tokens) exceeds the available context size (8192 tokens)", 400), {8192: 4, 16384: 4}),
    ],
)
def test_simultaneous_refusals_change_the_window_once(
    tmp_path: Path, failure: Failure, windows: dict[int, int]
) -> None:
    gate, number = Gate(), 4

    def resolve(prompt: Prompt) -> Reply:
        return Reply([gate, failure]) if prompt.options["num_ctx"] == 8192 else Reply.of("Fine.")

    with (
        StubServer(speed=0, resolve=resolve) as stub,
        RunningServer(tmp_path, stub.url) as server,
        ThreadPoolExecutor() as pool,
    ):
        body = {"modelIds": ["mochi"], "message": "x" * 2500}
        comparisons = [pool.submit(compare, server.url, body) for _ in range(number)]
        stub.wait_for(lambda exchanges: len([e for e in exchanges if e.path == "/api/chat"]) == number)
        gate.open()
        assert [comparison.result()[-2][0] for comparison in comparisons] == ["done"] * number
    assert Counter(sent.body["options"]["num_ctx"] for sent in chats(stub) if sent.body) == windows


def test_remote_models_name_their_host(tmp_path: Path) -> None:
    models = (Model("far", remote=Remote("big:latest", "https://ollama.com:443")),)
    with StubServer(speed=0, models=models) as stub, RunningServer(tmp_path, stub.url) as server:
        events = compare(server.url, {"modelIds": ["far"], "message": "Hi"})
    assert events[0][1]["provider"] == "ollama.com"
    assert events[-1][0] == "complete"


EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "compare.py"


def test_example_wraps_errors_in_their_columns(server: RunningServer) -> None:
    command = [sys.executable, str(EXAMPLE), server.url, "Why?", "cut-stream", "mochi"]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert {line.index(" | ") for line in table.splitlines()} == {38}


def test_example_prints_errors_and_usage(server: RunningServer) -> None:
    usage = "Send a message to up to three models"
    for arguments, told in (([server.url, "Why?", "99"], "Invalid model ID: 99"), ([], usage)):
        done = subprocess.run([sys.executable, EXAMPLE, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith(told)
