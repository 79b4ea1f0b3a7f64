"""The server with a real Ollama: `MOCHI_E2E_OLLAMA=http://localhost:11434 uv run pytest tests/e2e`.

`MOCHI_E2E_MODEL` names the model; by default it is the first chat model. No test depends on a
model's text.
"""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.api import Api, text_of, types_of
from tests.support.server import RunningServer
from tests.support.tools import SAMPLES

OLLAMA = os.environ.get("MOCHI_E2E_OLLAMA", "")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not OLLAMA, reason="MOCHI_E2E_OLLAMA names no Ollama to run on"),
]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    with RunningServer(tmp_path, OLLAMA, tools_dir=str(SAMPLES)) as server:
        yield server


@pytest.fixture
def api(server: RunningServer) -> Api:
    return server.api(timeout=600)


@pytest.fixture
def model(api: Api) -> str:
    models = api.ok(api.http.get("/models"))["models"]
    assert models, "this Ollama has no model that can chat"
    return os.environ.get("MOCHI_E2E_MODEL") or str(models[0]["name"])


def test_health_and_models_come_from_ollama(api: Api, model: str) -> None:
    assert api.ok(api.http.get("/health"))["ollama_connected"] is True
    details = api.ok(api.http.get(f"/models/{model}"))
    assert "completion" in details["capabilities"]
    assert details["context_length"] > 0


def test_answer_streams_and_is_stored_with_its_counts(api: Api, model: str) -> None:
    session_id = api.create_session(model, options={"num_predict": 40})["session_id"]
    events = api.stream_message(session_id, "Say hello in one short sentence.")
    assert types_of(events[-2:]) == ["message_complete", "done"]
    stored = api.messages(session_id)[-1]
    assert stored["content"] == text_of(events)
    assert stored["eval_count"] > 0
    assert stored["prompt_eval_count"] > 0


def test_answer_is_collected_and_regenerated(api: Api, model: str) -> None:
    session_id = api.create_session(model, options={"num_predict": 40})["session_id"]
    first = api.send_message(session_id, "Name a colour.")["message"]
    second = api.send_message(session_id)["message"]
    assert second["message_id"] != first["message_id"]
    assert len(api.messages(session_id)) == 2


def test_disconnect_keeps_the_partial_answer_and_next_turn_works(api: Api, model: str) -> None:
    session_id = api.create_session(model)["session_id"]
    with api.open_stream(session_id, "Count from one to five hundred, in words.") as events:
        for _ in range(3):
            next(events)
    answer = api.send_message(session_id, "Say stop.", if_busy="wait", options={"num_predict": 20})
    assert answer["message"]["content"]
    assert api.messages(session_id)[1]["interrupted"] is True


def test_stopping_ends_the_stream(server: RunningServer, api: Api, model: str) -> None:
    session_id = api.create_session(model)["session_id"]
    with api.open_stream(session_id, "Count from one to five hundred, in words.") as events:
        next(events)
        threading.Thread(target=server.api().http.post, args=(f"/chat/{session_id}/stop",)).start()
        assert list(events)[-1].type == "done"


def test_two_turns_load_the_model_once(api: Api, model: str) -> None:
    session_id = api.create_session(model, options={"num_predict": 20})["session_id"]
    for message in ("Hello!", "And again!"):
        window = api.send_message(session_id, message)["context_window"]["current_window"]
    loaded = httpx.get(f"{OLLAMA}/api/ps").json()["models"]
    assert window in [entry["context_length"] for entry in loaded]


def test_session_is_summarized(api: Api, model: str) -> None:
    session_id = api.create_session(model, options={"num_predict": 60})["session_id"]
    api.send_message(session_id, "My boat is called Wanda and it is red.")
    made = api.ok(api.http.post(f"/sessions/{session_id}/summarize"))
    assert made["summary"]


def test_tool_can_be_offered(api: Api, model: str) -> None:
    settings = {"tools": ["add_numbers"], "execution_policy": "never_confirm"}
    session_id = api.create_session(model, tool_settings=settings, options={"num_predict": 200})[
        "session_id"
    ]
    events = api.stream_message(session_id, "Use the tool to add 17 and 25.")
    assert events[-1].type == "done"
    assert not [event for event in events if event.type == "error"]
