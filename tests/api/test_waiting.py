"""Status events before the first token."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from mochi_stub import Machine, Model, StubServer
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Failure, Gate, Reply, Text
from tests.support.api import Api, Event, types_of
from tests.support.server import RunningServer

SLOW = Model("slow", capabilities=("completion", "tools"), load_time=1.4)
QUICK = Model("quick", capabilities=("completion", "tools"))


class Load:
    """Load of a model, which takes for ever until `loaded` is set."""

    def __init__(self) -> None:
        self.loaded = threading.Event()

    async def wait(self, _: float) -> None:
        while not self.loaded.is_set():  # noqa: ASYNC110 - the test sets it in another thread
            await asyncio.sleep(0.005)


def status_states(events: Sequence[Event]) -> list[str]:
    return [event.data["state"] for event in events if event.type == "status"]


def test_slow_model_load_emits_loading_status(tmp_path: Path) -> None:
    load = Load()
    with (
        StubServer(load=load.wait, models=[SLOW], resolve=lambda _: Reply.of("Fine.")) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        api = server.api()
        session_id = api.create_session("slow")["session_id"]
        with api.open_stream(session_id, "Hi") as events:
            first = next(events)
            load.loaded.set()
            assert types_of(events)[-1] == "done"
        second = api.stream_message(session_id, "Again")
    assert (first.type, first.data["state"]) == ("status", "loading_model")
    assert first.data["elapsed"] >= 1
    assert set(first.data) == {"state", "elapsed"}
    assert "loading_model" not in status_states(second)


@pytest.mark.slow
def test_reload_with_a_larger_window_emits_loading_status(tmp_path: Path) -> None:
    refusal = Failure("request (9001 tokens) exceeds the available context size (8192 tokens)", 400)

    def resolve(prompt: Prompt) -> Reply:
        return (
            Reply([refusal])
            if prompt.user_text == "dense" and prompt.options["num_ctx"] == 8192
            else Reply.of("Ok")
        )

    models = [Model("large", context_length=40960, load_time=2.5)]
    with (
        StubServer(models=models, resolve=resolve) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        api = server.api()
        session_id = api.create_session("large")["session_id"]
        api.send_message(session_id, "Hi")
        assert set(status_states(api.stream_message(session_id, "dense"))) == {"loading_model"}


def test_slow_loaded_model_emits_processing_status(tmp_path: Path) -> None:
    gate = Gate()
    replies = {"wait": Reply([gate, Text("At last.")])}
    with (
        StubServer(
            speed=0, models=[QUICK], resolve=lambda prompt: replies.get(prompt.user_text)
        ) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        api = server.api()
        session_id = api.create_session("quick")["session_id"]
        api.send_message(session_id, "Hi")
        with api.open_stream(session_id, "wait") as events:
            first = next(events)
            gate.open()
            rest = list(events)
    assert first.type == "status"
    assert first.data["state"] == "processing_prompt"
    assert types_of(rest) == ["content_delta", "message_complete", "done"]


@pytest.mark.slow
def test_request_waiting_for_unload_emits_queued_status(tmp_path: Path) -> None:
    gate = Gate()

    def resolve(prompt: Prompt) -> Reply | None:
        return (
            Reply([Text("Well, "), gate, Text("yes.")])
            if prompt.user_text == "hold"
            else Reply.of("Fine.")
        )

    machine = Machine(max_loaded_models=1)
    models = [QUICK, Model("other", capabilities=("completion",))]
    with (
        StubServer(speed=0, models=models, resolve=resolve, machine=machine) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        api, elsewhere = server.api(), server.api()
        with api.open_stream(api.create_session("quick")["session_id"], "hold") as holding:
            next(holding)
            with elsewhere.open_stream(api.create_session("other")["session_id"], "Hi") as events:
                status = next(events)
                gate.open()
                list(events)
            list(holding)
    assert (status.type, status.data["state"]) == ("status", "queued")


def test_quick_answer_needs_no_status(api: Api) -> None:
    assert status_states(api.stream_message(api.create_session("mochi")["session_id"], "Hi")) == []


@pytest.mark.slow
def test_disconnect_during_load_cancels_request(tmp_path: Path) -> None:
    with (
        StubServer(load=Load().wait, models=[SLOW], resolve=lambda _: Reply.of("Fine.")) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        api = server.api()
        session_id = api.create_session("slow")["session_id"]
        with api.open_stream(session_id, "Hi") as events:
            assert next(events).type == "status"
        stub.wait_for(
            lambda all_: any(e.path == "/api/chat" and e.outcome == "cancelled" for e in all_)
        )
        assert [message["role"] for message in api.messages(session_id)] == ["user"]


@pytest.mark.parametrize("stream", [True, False])
def test_stop_during_load_takes_effect_at_once(tmp_path: Path, stream: bool) -> None:
    with (
        StubServer(load=Load().wait, models=[SLOW], resolve=lambda _: Reply.of("Fine.")) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        api, other = server.api(), server.api()
        session_id = api.create_session("slow")["session_id"]
        asking = threading.Thread(
            target=lambda: (api.stream_message if stream else api.send_message)(session_id, "Hi")
        )
        asking.start()
        stub.wait_for(lambda all_: any(e.path == "/api/chat" for e in all_))
        assert other.ok(other.http.post(f"/chat/{session_id}/stop"))["state"] == "stopped"
        asking.join(60)
        assert not asking.is_alive()
