"""Cloud models: Ollama forwards their requests, so that the server sets no limits of a local
window.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mochi_stub import Model, Remote, StubServer
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Reply
from tests.support.agents import delegate, nested, write_agent
from tests.support.api import Api, Event, text_of
from tests.support.instructions import words
from tests.support.raw_ollama import RawOllama, line, stream_head
from tests.support.server import RunningServer
from tests.support.stub import ModelStub, chats
from tests.support.waiting import until

WINDOW = 131_072
LARGEST_ANSWER = 4096  # of the provider; it refuses requests with a larger `num_predict`
LONG = "word " * 4000
SUMMARY = '{"summary": "They greeted.", "topics": ["greetings"]}'


@pytest.fixture(scope="module")
def shared_stub() -> Iterator[ModelStub]:
    with ModelStub() as stub:
        yield stub


@pytest.fixture(scope="module")
def shared_server(
    shared_stub: ModelStub, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    write_agent(data_dir := tmp_path_factory.mktemp("cloud"))
    with RunningServer(data_dir, shared_stub.url, summarization_enabled=False) as server:
        yield server


def reply(prompt: Prompt) -> Reply | None:
    """Answer with a text that is longer than a window of 8192 tokens, or with a summary."""
    if prompt.format is not None:
        return Reply.of(SUMMARY)
    return Reply.of(LONG) if prompt.user_text == "Much!" else None


def cloud_model(stub: ModelStub, **fields: Any) -> str:
    remote = Remote("big:latest", max_num_predict=LARGEST_ANSWER)
    return stub.add_model(reply, remote=remote, **{"context_length": WINDOW, **fields})


def options(stub: StubServer) -> list[dict[str, Any]]:
    """Return the options of each request for an answer."""
    assert {exchange.status for exchange in chats(stub)} == {200}
    return [(exchange.body or {}).get("options") or {} for exchange in chats(stub)]


def warnings(events: list[Event]) -> list[str]:
    return [event.data["code"] for event in events if event.type == "warning"]


def fill(api: Api, session_id: str) -> list[Event]:
    """Send messages that together exceed 6000 tokens, and return the events of their turns."""
    events: list[Event] = []
    for number in range(12):
        events += api.stream_message(session_id, f"Turn {number}. " + "x" * 600)
    return events


def window_of(api: Api, session_id: str) -> dict[str, Any]:
    window: dict[str, Any] = api.ok(api.http.get(f"/sessions/{session_id}/status"))[
        "context_window"
    ]
    return window


def test_turns_send_no_window_and_no_limit(api: Api, stub: ModelStub) -> None:
    session_id = api.create_session(cloud_model(stub))["session_id"]
    for _ in range(3):
        events = api.stream_message(session_id, "Much!")
        assert text_of(events) == LONG
        assert warnings(events) == []
    assert options(stub) == [{}] * 3
    assert all("shift" not in (exchange.body or {}) for exchange in chats(stub))


def test_window_of_the_status_is_the_context_length(api: Api, stub: ModelStub) -> None:
    session_id = api.create_session(cloud_model(stub))["session_id"]
    before = window_of(api, session_id)
    api.send_message(session_id, "Hello!")
    after = window_of(api, session_id)
    for window in (before, after):
        assert (window["current_window"], window["model_max_context"]) == (WINDOW, WINDOW)
        assert window["last_adjustment_reason"] in ("initial_setup", "no_adjustment")
    assert api.session(session_id)["context_window_config"]["adjustment_history"] == []


def test_session_with_an_old_local_window_is_corrected(api: Api, stub: ModelStub) -> None:
    config = {"current_window": 8192, "last_adjustment": "initial_setup"}
    metadata = {"model": cloud_model(stub), "context_window_config": config}
    texts = zip(itertools.cycle(("user", "assistant")), ("Hi", "Hello"), strict=False)
    messages = [{"role": role, "content": text} for role, text in texts]
    imported = api.ok(
        api.http.post("/sessions/import", json={"metadata": metadata, "messages": messages}), 201
    )
    session_id = imported["sessions"][0]["session_id"]
    api.send_message(session_id, "Much!")
    assert options(stub) == [{}]
    assert window_of(api, session_id)["current_window"] == WINDOW


def test_only_the_limit_of_the_client_is_sent(api: Api, stub: ModelStub) -> None:
    session_id = api.create_session(cloud_model(stub), options={"num_predict": 300})["session_id"]
    api.send_message(session_id, "Hello!")
    api.send_message(session_id, "Hello!", options={"num_predict": 50, "temperature": 0.5})
    assert options(stub) == [{"num_predict": 300}, {"num_predict": 50, "temperature": 0.5}]


def test_change_between_cloud_and_local_models_sets_the_window(api: Api, stub: ModelStub) -> None:
    near, far = stub.add_model(), cloud_model(stub)
    session_id = api.create_session(near)["session_id"]
    windows = []
    for model in (near, far, near):
        api.ok(api.http.patch(f"/sessions/{session_id}", json={"model": model}))
        api.send_message(session_id, "Hello!")
        windows.append(window_of(api, session_id)["current_window"])
    assert windows == [8192, WINDOW, 8192]
    assert ["num_ctx" in each for each in options(stub)] == [True, False, True]


def test_long_prompts_are_compacted_at_the_context_length(api: Api, stub: ModelStub) -> None:
    session_id = api.create_session(cloud_model(stub, context_length=6000))["session_id"]
    events = fill(api, session_id)
    assert "context_compacted" in [event.type for event in events]
    assert "error" not in [event.type for event in events]
    assert warnings(events) == []
    assert options(stub) == [{}] * len(chats(stub))


def test_manual_window_only_shortens_prompts(api: Api, stub: ModelStub) -> None:
    session_id = api.create_session(cloud_model(stub))["session_id"]
    body = {"context_window": {"current_window": 6000}}
    assert api.ok(api.http.patch(f"/sessions/{session_id}", json=body))["warnings"] == []
    assert window_of(api, session_id)["current_window"] == 6000
    window = api.send_message(session_id, "Hello!")["context_window"]
    assert (window["current_window"], window["reason"]) == (6000, "manual_override")
    events = fill(api, session_id)
    assert "context_compacted" in [event.type for event in events]
    assert warnings(events) == []
    assert options(stub) == [{}] * len(chats(stub))


def test_agents_send_no_window_and_no_limit(api: Api, stub: ModelStub) -> None:
    agents = {"enabled_agents": ["helper"]}
    session_id = api.create_session(cloud_model(stub), agent_settings=agents)["session_id"]
    events = api.stream_message(session_id, nested(delegate(words(2), words(2)), words(3)))
    assert "agent_complete" in [event.type for event in events]
    assert len(chats(stub)) >= 4  # the call, the planning, the execution and the answer
    assert options(stub) == [{}] * len(chats(stub))


def test_comparison_sends_no_window_and_no_limit(api: Api, stub: ModelStub) -> None:
    body = {"modelIds": [cloud_model(stub)], "message": "Much!"}
    assert "All models completed" in api.http.post("/models/test", json=body).text
    assert options(stub) == [{}]


@pytest.mark.parametrize(
    ("path", "fields", "sent"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Much!"}]}, {}),
        ("/v1/responses", {"input": "Much!"}, {}),
        (
            "/v1/messages",
            {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 70},
            {"num_predict": 70},
        ),
    ],
)
def test_protocols_send_only_limits_of_the_client(
    server: RunningServer, stub: ModelStub, path: str, fields: dict[str, Any], sent: dict[str, int]
) -> None:
    response = server.client.http.post(
        f"{server.url}{path}", json={"model": cloud_model(stub), **fields}
    )
    assert response.status_code == 200, response.text
    assert options(stub) == [sent]


def test_requested_summary_sends_no_window_and_no_limit(api: Api, stub: ModelStub) -> None:
    session_id = api.create_session(cloud_model(stub))["session_id"]
    api.send_message(session_id, "Hello!")
    assert api.ok(api.http.post(f"/sessions/{session_id}/summarize"))["summary"] == "They greeted."
    assert options(stub) == [{}] * 2


def test_background_summary_needs_no_loaded_model(tmp_path: Path) -> None:
    with (
        ModelStub() as stub,
        RunningServer(tmp_path, stub.url, summarization_interval_seconds=0) as server,
    ):
        api = server.api()
        session_id = api.create_session(cloud_model(stub))["session_id"]
        api.send_message(session_id, "Hello!")
        until(
            lambda: api.ok(api.http.get(f"/sessions/{session_id}/summary"))["summary"] is not None
        )
        assert options(stub) == [{}] * 2


def test_disabled_windows_do_not_change_cloud_models(tmp_path: Path) -> None:
    with (
        ModelStub() as stub,
        RunningServer(
            tmp_path, stub.url, dynamic_context_window_enabled=False, summarization_enabled=False
        ) as server,
    ):
        api = server.api()
        session_id = api.create_session(cloud_model(stub))["session_id"]
        api.send_message(session_id, "Much!")
        assert options(stub) == [{}]
        assert window_of(api, session_id)["current_window"] == WINDOW


@pytest.mark.parametrize("name", ["far:cloud", "far:20b-cloud"])
def test_name_of_a_cloud_model_is_enough(tmp_path: Path, name: str) -> None:
    with (
        StubServer(models=[Model(name, context_length=WINDOW)], speed=0) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
    ):
        api = server.api()
        session_id = api.create_session(name)["session_id"]
        api.send_message(session_id, "Hello!")
        assert options(stub) == [{}]


TAGS = (
    b'{"models":[{"name":"raw:latest","remote_model":"r","remote_host":"https://r","size":1,'
    b'"digest":"d","capabilities":["completion"],"details":{}}]}'
)


@pytest.mark.parametrize(
    ("show", "window"),
    [
        (
            b'{"model_info":{"general.architecture":"r","r.context_length":5000},"capabilities":["completion"]}',
            5000,
        ),
        (b'{"error":"cloud is disabled"}', None),
    ],
)
def test_context_length_is_that_of_the_model_details(
    tmp_path: Path, show: bytes, window: int | None
) -> None:
    """Old versions of Ollama do not list the context length of a model."""
    ollama = RawOllama(
        lambda it: it.sendall(stream_head() + line("Fine.", done=True)), tags=TAGS, show=show
    )
    with ollama, RunningServer(tmp_path, ollama.url, summarization_enabled=False) as server:
        api = server.api()
        session_id = api.create_session("raw")["session_id"]
        assert text_of(api.stream_message(session_id, "Hello!")) == "Fine."
        assert window_of(api, session_id)["current_window"] == window
