"""Comparison of models over one stream."""

import asyncio
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from mochi_server.config import MochiServerSettings
from mochi_server.container import Services, build_services
from mochi_server.schemas.models import CompareRequest
from mochi_stub import Exchange, StubServer
from mochi_stub.models import Remote
from mochi_stub.reply import Failure, Gate, Reasoning, Reply, Text
from tests.support.api import Api, error_of
from tests.support.cases import cases
from tests.support.server import RunningServer
from tests.support.stub import ModelStub, chats
from tests.support.waiting import until

Events = list[tuple[str, dict[str, Any]]]


def compare(
    server: RunningServer, body: dict[str, Any], path: str = "/api/v1/models/test"
) -> Events:
    response = server.client.http.post(server.url + path, json=body)
    assert response.status_code == 200, response.text
    frames = [
        frame.split("\n") for frame in response.text.split("\n\n") if frame.startswith("event: ")
    ]
    return [
        (event.removeprefix("event: "), orjson.loads(data.removeprefix("data: ")))
        for event, data in frames
    ]


def of_model(events: Events, model_id: str) -> Events:
    return [(kind, data) for kind, data in events if data.get("modelId") == model_id]


def test_empty_answer_is_requested_again(tmp_path: Path) -> None:
    replies = iter([Reply([]), Reply.of("Hello.")])
    with (
        StubServer(speed=0, resolve=lambda _: next(replies)) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        events = compare(server, {"modelIds": ["mochi"], "message": "Hi"})
    kinds = [kind for kind, _ in events]
    assert kinds == ["metadata", "start", "chunk", "end", "done", "complete"]
    assert events[4][1]["response"] == "Hello."


@cases("path", ["/api/v1/models/test", "/api/v1/models/test/", "/models/test", "/models/test/"])
def test_models_answer_in_requested_order(server: RunningServer, path: str) -> None:
    events = compare(server, {"modelIds": ["mochi-chat", "mochi"], "message": "Hello!"}, path)

    kinds = [kind for i, (kind, _) in enumerate(events) if i == 0 or events[i - 1][0] != kind]
    assert kinds == ["metadata", "start", "chunk", "end", "done"] * 2 + ["complete"]
    first, second = events[0][1], of_model(events, "mochi")[0][1]
    assert first == {
        "modelId": "mochi-chat",
        "modelName": "mochi-chat:latest",
        "provider": "Ollama",
    }
    assert second["modelName"] == "mochi:latest"
    for model_id in ("mochi-chat", "mochi"):
        done = of_model(events, model_id)[-1][1]
        assert done["response"] == "".join(
            d["delta"] for kind, d in of_model(events, model_id) if kind == "chunk"
        )
        assert done["response"].endswith("Hello!")
        assert done["inputTokens"] > 0
        assert done["outputTokens"] > 0
        assert 0 < done["firstTokenMs"] <= done["totalMs"]
        assert done["tokensPerSecond"] > 0
    assert events[-1] == ("complete", {"message": "All models completed"})


def test_numbers_select_models_of_the_list(server: RunningServer) -> None:
    names = [model["name"] for model in server.api().ok(server.api().http.get("/models"))["models"]]
    events = compare(server, {"modelIds": [2, "1"], "message": "Hello!"})
    metadata = [data for kind, data in events if kind == "metadata"]
    assert [(m["modelId"], m["modelName"]) for m in metadata] == [("2", names[1]), ("1", names[0])]


def test_thinking_is_separate_from_response(server: RunningServer) -> None:
    body = {"modelIds": ["mochi"], "message": "Why?\nReason: because", "think": True}
    events = compare(server, body)
    thinking = [d for kind, d in events if kind == "chunk" and d.get("kind") == "thinking"]
    assert thinking
    assert events[-2][1]["response"] == "".join(
        d["delta"] for k, d in events if k == "chunk" and "kind" not in d
    )


@pytest.mark.parametrize("repairs", [True, False])
def test_reasoning_in_tags_is_thinking_unless_repairs_are_off(
    stub: StubServer, tmp_path: Path, repairs: bool
) -> None:
    with RunningServer(tmp_path, stub.url, repair_answers=repairs) as server:
        events = compare(server, {"modelIds": ["think-tags"], "message": "hello"})
    chunks = [data for kind, data in events if kind == "chunk"]
    thinking = "".join(chunk["delta"] for chunk in chunks if chunk.get("kind") == "thinking")
    text = "".join(chunk["delta"] for chunk in chunks if "kind" not in chunk)
    assert events[-2][1]["response"] == text
    if repairs:
        assert (thinking.strip(), text) == ("The user greets me. I greet back.", "Hi there!")
    else:
        assert thinking == ""
        assert text.startswith("<think>")


def test_text_that_turns_out_to_be_reasoning_is_not_in_the_response(
    models_server: RunningServer, models: ModelStub
) -> None:
    model = models.add_model(lambda _: Reply([Text(["Hm.", "\n</think>\n", "Hello!"])]))
    events = compare(models_server, {"modelIds": [model], "message": "Hi"})
    assert events[-2][1]["response"] == "Hello!"


def test_reasoning_of_an_answer_that_begins_with_a_tag_is_not_in_the_response(
    models_server: RunningServer, models: ModelStub
) -> None:
    reply = Reply([Reasoning("Hm."), Text(["<think>", " is a tag."])])
    model = models.add_model(lambda _: reply, capabilities=("completion", "thinking"))
    events = compare(models_server, {"modelIds": [model], "message": "Hi", "think": True})
    thinking = [data["delta"] for _, data in events if data.get("kind") == "thinking"]
    assert "".join(thinking).startswith("Hm.")
    assert events[-2][1]["response"] == "<think> is a tag."


def test_call_in_the_harmony_format_is_shown(
    models_server: RunningServer, models: ModelStub
) -> None:
    call = '<|channel|>commentary to=functions.search<|message|>{"q": "x"}<|call|>'
    model = models.add_model(lambda _: Reply([Text([call])]))
    events = compare(models_server, {"modelIds": [model], "message": "Hi"})
    assert events[-2][1]["response"] == '{"q": "x"}'


def test_system_prompt_history_and_options_are_sent(
    server: RunningServer, stub: StubServer
) -> None:
    history = [{"role": "user", "content": "A"}, {"role": "assistant", "content": "B"}]
    body = {
        "modelIds": ["mochi"],
        "message": "C",
        "systemPrompt": "S",
        "chatHistory": history,
        "options": {"seed": 7},
    }
    compare(server, body)
    sent = next(e.body for e in reversed(stub.exchanges()) if e.path == "/api/chat")
    assert sent is not None
    assert [m["content"] for m in sent["messages"]] == ["S", "A", "B", "C"]
    assert sent["options"].items() >= {"seed": 7, "num_ctx": 8192}.items()
    assert 8000 < sent["options"]["num_predict"] < 8192


@cases(("num_predict", "sent"), [(7, 7), (7.0, 7.0), (-1, None), (100_000, None)])
def test_answers_fit_the_window_after_the_prompt(
    server: RunningServer, stub: StubServer, num_predict: float, sent: float | None
) -> None:
    compare(
        server, {"modelIds": ["mochi"], "message": "Hi", "options": {"num_predict": num_predict}}
    )
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
        ({"modelIds": [""], "message": "Hi"}, "at least 1 model required"),
        ({"modelIds": [None], "message": "Hi"}, "Invalid model ID: null"),
        ({"modelIds": [1, 2, 3, 4], "message": "Hi"}, "maximum 3 models allowed"),
        ({"modelIds": ["mochi", "nobody"], "message": "Hi"}, "Invalid model ID: nobody"),
        ({"modelIds": [99], "message": "Hi"}, "Invalid model ID: 99"),
        ({"modelIds": [0], "message": "Hi"}, "Invalid model ID: 0"),
        ({"modelIds": [True], "message": "Hi"}, "Invalid model ID: true"),
        ({"modelIds": ["mochi", {"id": None}], "message": "Hi"}, 'Invalid model ID: {"id": null}'),
        ({"modelIds": ["mochi-embed"], "message": "Hi"}, "Invalid model ID: mochi-embed"),
    ],
)
def test_documented_rules_return_400_with_message(
    api: Api, body: dict[str, Any], message: str
) -> None:
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


@pytest.fixture(scope="module")
def models() -> Iterator[ModelStub]:
    with ModelStub() as models:
        yield models


@pytest.fixture(scope="module")
def models_server(
    models: ModelStub, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server in front of `models`, to which each test adds its own."""
    with RunningServer(tmp_path_factory.mktemp("models"), models.url) as server:
        yield server


def requests_of(models: ModelStub, model: str) -> list[Exchange]:
    return [
        exchange
        for exchange in chats(models)
        if exchange.body and exchange.body["model"].startswith(model)
    ]


def test_failing_model_does_not_stop_other_models(
    models_server: RunningServer, models: ModelStub
) -> None:
    failing, good = (
        models.add_model(lambda _: Reply([Text(["Half"]), Failure("kaput")])),
        models.add_model(),
    )
    events = compare(models_server, {"modelIds": [failing, good], "message": "Hello!"})
    assert [kind for kind, _ in of_model(events, failing)] == [
        "metadata",
        "start",
        "chunk",
        "error",
    ]
    assert of_model(events, failing)[-1][1] == {"modelId": failing, "error": "Ollama failed: kaput"}
    assert of_model(events, good)[-1][0] == "done"
    assert events[-1][0] == "complete"


def test_disconnect_stops_second_model_and_stores_nothing(
    models_server: RunningServer, models: ModelStub
) -> None:
    gate, api = Gate(), models_server.client
    first, second = models.add_model(), models.add_model(lambda _: Reply([Text(["one"]), gate]))
    with api.http.stream(
        "POST", "/models/test", json={"modelIds": [first, second], "message": "Hello!"}
    ) as response:
        seen = b""
        for data in response.iter_raw():
            seen += data
            if b'"one"' in seen:
                break
    models.wait_for(
        lambda all_: any(e.path == "/api/chat" and e.outcome == "cancelled" for e in all_)
    )
    gate.open()
    assert api.ok(api.http.get("/sessions")) == {"sessions": []}


@pytest.fixture
def services(models: ModelStub, tmp_path: Path) -> Services:
    settings: dict[str, Any] = {"data_dir": str(tmp_path), "ollama_host": models.url}
    return build_services(MochiServerSettings(**settings))


@pytest.mark.parametrize("has_begun", [False, True])
async def test_shutdown_ends_a_comparison_whose_response_has_not_begun(
    services: Services, models: ModelStub, has_begun: bool
) -> None:
    gate = Gate()
    model = models.add_model(lambda _: Reply([gate, Text(["late"])]))
    request = CompareRequest.model_validate({"modelIds": [model], "message": "Hi"})
    events = await services.compare.start(await request.comparison(services.compare))
    if has_begun:
        await asyncio.to_thread(until, lambda: requests_of(models, model))
    await services.compare.end_all()
    gate.open()
    assert [event.type async for event in events] == ["metadata", "start", "error", "complete"]
    await services.fleet.aclose()


def test_comparison_does_not_reload_model_of_a_chat(
    models_server: RunningServer, models: ModelStub
) -> None:
    api, names = models_server.client, [models.add_model(), models.add_model()]
    models.clear_exchanges()
    session_id = api.create_session(names[0])["session_id"]
    api.send_message(session_id, "Long: " + "word " * 1500)
    for _ in range(2):
        compare(models_server, {"modelIds": names, "message": "Compare!"})
        api.send_message(session_id, "And?")
    assert api.http.delete(f"/sessions/{session_id}").status_code == 204
    compared = [e for e in chats(models) if "Compare!" in str(e.body)]
    assert len(compared) == 4
    assert not any(e.reload for e in compared)


def test_refused_prompt_enlarges_the_window(
    models_server: RunningServer, models: ModelStub
) -> None:
    dense = "漢字" * 14_000  # the estimate of an uncalibrated model is much too small for this text
    large, small = (models.add_model(context_length=length) for length in (131_072, 20_000))
    events = compare(
        models_server, {"modelIds": [large, small], "message": "Hello!", "systemPrompt": dense}
    )
    assert [kind for kind, _ in of_model(events, large) if kind != "chunk"] == [
        "metadata",
        "start",
        "end",
        "done",
    ]
    kind, data = of_model(events, small)[-1]
    assert (kind, "context size" in data["error"]) == ("error", True)
    assert len(requests_of(models, small)) == 1


@cases(("limit", "outcome"), [(5000, "done"), (100, "error")])
def test_out_of_memory_reduces_the_window_once(
    models_server: RunningServer, models: ModelStub, limit: int, outcome: str
) -> None:
    big = models.add_model(out_of_memory_above=limit)
    events = compare(models_server, {"modelIds": [big], "message": "Hello!"})
    assert of_model(events, big)[-1][0] == outcome
    assert [sent.body and sent.body["options"]["num_ctx"] for sent in requests_of(models, big)] == [
        8192,
        4096,
    ]


def test_remote_models_name_their_host(models_server: RunningServer, models: ModelStub) -> None:
    far = models.add_model(remote=Remote("big:latest", "https://ollama.com:443"))
    events = compare(models_server, {"modelIds": [far], "message": "Hi"})
    assert events[0][1]["provider"] == "ollama.com"
    assert events[-1][0] == "complete"


EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "compare.py"


def run_example(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    """Run the example in this process. Raises ``SystemExit`` as it does."""
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *arguments])
    runpy.run_path(str(EXAMPLE), run_name="__main__")


def test_example_wraps_errors_in_their_columns(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_example(monkeypatch, server.url, "Why?", "cut-stream", "mochi")
    assert {line.index(" | ") for line in capsys.readouterr().out.splitlines()} == {38}


@cases(
    ("arguments", "told"),
    [(["Why?", "99"], "Invalid model ID: 99"), ([], "Send a message to up to three models")],
)
def test_example_ends_with_errors_and_usage(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    with pytest.raises(SystemExit, match=told):
        run_example(monkeypatch, server.url, *arguments)
