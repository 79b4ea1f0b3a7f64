"""Summaries: made while a session is idle, without delaying turns or overwriting newer data."""

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from mochi_stub import Machine, StubServer
from mochi_stub.journal import Exchange
from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.reply import Failure, Gate, Reply, Text, ToolCalls
from tests.support.api import Api, error_of
from tests.support.cases import cases
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.stub import ModelStub, chats
from tests.support.tools import write_tools
from tests.support.waiting import until

TOOL = '''
    def add(a: float, b: float) -> str:
        """Add two numbers."""
        return str(a + b)

    __all__ = ["add"]
'''

SLOW = '''
    import time

    def slow() -> str:
        """Take longer than the interval of summaries."""
        time.sleep(0.7)
        return "done"

    __all__ = ["slow"]
'''


def is_summary(exchange: Exchange) -> bool:
    return (
        exchange.path == "/api/chat" and bool(exchange.body) and "format" in (exchange.body or {})
    )


def summaries(stub: StubServer, count: int = 1, outcome: str = "finished") -> list[dict[str, Any]]:
    """Wait for summary requests with this outcome, or for running ones, and return their bodies."""

    def ended(exchanges: list[Exchange]) -> list[Exchange]:
        return [e for e in exchanges if is_summary(e) and outcome in (e.outcome, "running")]

    return [
        e.body or {} for e in ended(stub.wait_for(lambda exchanges: len(ended(exchanges)) >= count))
    ]


def summary_of(
    api: Api,
    session_id: str,
    holds: Callable[[dict[str, Any]], bool] = lambda s: bool(s["summary"]),
) -> dict[str, Any]:
    """Wait until the session's summary satisfies a condition and return it."""
    seen: list[dict[str, Any]] = []

    def is_made() -> bool:
        seen.append(api.ok(api.http.get(f"/sessions/{session_id}/summary")))
        return holds(seen[-1])

    until(is_made)
    return seen[-1]


@contextmanager
def session_being_summarized(
    tmp_path: Path, resolve: Callable[[Prompt], Reply | None]
) -> Iterator[tuple[StubServer, Api, str]]:
    """Return a session for which a summary has just been requested."""
    with (
        StubServer(speed=0, resolve=resolve) as stub,
        RunningServer(tmp_path, stub.url, summarization_interval_seconds=0.01) as server,
    ):
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        api.send_message(session_id, "My boat is called Wanda.")
        stub.wait_for(lambda exchanges: any(is_summary(e) for e in exchanges))
        yield stub, api, session_id


@pytest.fixture
def private_server(private_stub: StubServer, tmp_path: Path) -> Iterator[RunningServer]:
    """A server for one test that summarizes idle sessions after a short time."""
    with RunningServer(tmp_path, private_stub.url, summarization_interval_seconds=0.05) as server:
        yield server


@pytest.mark.two_servers
def test_idle_session_is_summarized_with_same_window(
    private_api: Api, private_stub: StubServer
) -> None:
    session_id = private_api.create_session("mochi")["session_id"]
    assert private_api.ok(private_api.http.get(f"/sessions/{session_id}/summary")) == {
        "summary": None,
        "topics": None,
        "model_used": None,
    }
    private_api.send_message(session_id, "My boat is called Wanda. It is red.")

    (requested,) = summaries(private_stub)

    assert requested["options"]["num_ctx"] == 8192
    assert requested["think"] is False
    assert requested["format"]["properties"].keys() == {"summary", "topics"}
    summary = summary_of(private_api, session_id)
    assert "My boat is called Wanda." in summary["summary"]
    assert isinstance(summary["topics"], list)
    assert summary["model_used"] == "mochi"
    assert private_api.session(session_id)["summary_model"] == "mochi"
    cleared = {"summary_model": None}
    changed = private_api.ok(private_api.http.patch(f"/sessions/{session_id}", json=cleared))
    assert changed["summary_model"] is None
    listed = private_api.ok(private_api.http.get("/sessions"))["sessions"][0]["summary"]
    assert listed == {"summary": summary["summary"], "topics": summary["topics"]}
    assert not any(e.reload for e in private_stub.exchanges())


def chat_bodies(stub: StubServer) -> list[dict[str, Any]]:
    """Return the bodies of the requests for answers, without the requests for summaries."""
    return [e.body or {} for e in chats(stub) if not is_summary(e)]


def test_summary_continues_the_evaluated_prompt(private_stub: StubServer, tmp_path: Path) -> None:
    write_tools(tmp_path, TOOL)
    with RunningServer(tmp_path, private_stub.url, summarization_enabled=False) as server:
        for think in (False, True):
            fields = {
                "system_prompt": "Be brief.",
                "tool_settings": {"tools": ["add"]},
                "think": think,
            }
            session_id = server.client.create_session("mochi", **fields)["session_id"]
            for text in ("My boat is called Wanda.", "My cat is called Otto."):
                server.client.send_message(session_id, text)
                server.client.ok(server.client.http.post(f"/sessions/{session_id}/summarize"))
            last = server.client.messages(session_id)[-1]
            summary, answered = summaries(private_stub)[-1], chat_bodies(private_stub)[-1]

            *prompt, answer, request = summary["messages"]
            assert prompt == answered["messages"]
            assert answer == {"role": "assistant", "content": last["content"]}
            assert request["role"] == "user"
            assert summary["options"]["num_ctx"] == answered["options"]["num_ctx"]
            template = ("tools", "think", "truncate", "keep_alive")
            assert [summary.get(name) for name in template] == [
                answered.get(name) for name in template
            ]
            assert summary["tools"]
            assert summary["truncate"] is False


@cases("system_prompt", [None, "Be brief."])
def test_summary_continues_a_prompt_with_instructions(
    api: Api, server: RunningServer, stub: StubServer, system_prompt: str | None
) -> None:
    session_id = api.create_session("mochi", system_prompt=system_prompt)["session_id"]
    messages = [
        {"role": "system", "content": "Rhyme."},
        {"role": "user", "content": "My boat is called Wanda."},
    ]
    headers, body = {"X-Mochi-Session": session_id}, {"model": "mochi", "messages": messages}
    api.ok(api.http.post(f"{server.url}/v1/chat/completions", headers=headers, json=body))
    api.ok(api.http.post(f"/sessions/{session_id}/summarize"))
    api.ok(api.http.put(f"/sessions/{session_id}/system-prompt", json={"content": "Be verbose."}))
    api.ok(api.http.post(f"/sessions/{session_id}/summarize"))
    summary, changed = summaries(stub, 2)
    assert summary["messages"][:-2] == chat_bodies(stub)[-1]["messages"]
    assert is_separate(changed)


def is_separate(body: dict[str, Any]) -> bool:
    """Return whether a summary request has a prompt of its own."""
    return [message["role"] for message in body["messages"]] == ["system", "user"]


def test_summary_is_separate_when_the_slot_was_used(api: Api, stub: StubServer) -> None:
    first, second = (api.create_session("mochi")["session_id"] for _ in range(2))
    api.send_message(first, "My boat is called Wanda.")
    api.send_message(second, "My cat is called Otto.")
    for session_id in (second, second, first, second):
        api.ok(api.http.post(f"/sessions/{session_id}/summarize"))
    assert [is_separate(body) for body in summaries(stub, 4)] == [False, False, True, True]


def evaluated(stub: StubServer, *, summaries: bool) -> int:
    """Return the tokens that the stub evaluated for summaries, or for answers."""
    return sum(e.evaluated_tokens or 0 for e in chats(stub) if is_summary(e) == summaries)


@dataclass(frozen=True)
class AlternatingSessions:
    """Two sessions that take turns on one model, and are summarized when both have their
    answers.
    """

    stub: StubServer
    api: Api

    def run(self, rounds: int) -> list[list[bool]]:
        """Return for each round which summaries were separate."""
        sessions, separate = [self.api.create_session("mochi")["session_id"] for _ in range(2)], []
        for number in range(rounds):
            for name, session_id in zip(("boat", "cat"), sessions, strict=True):
                self.api.send_message(
                    session_id, f"{name} {number}: " + f"My {name} is called Wanda. " * 20
                )
            before = len(chats(self.stub))
            for session_id in sessions:
                self.api.ok(self.api.http.post(f"/sessions/{session_id}/summarize"))
            separate.append(
                [is_separate(exchange.body or {}) for exchange in chats(self.stub)[before:]]
            )
        return separate


@pytest.fixture
def alternating(tmp_path: Path) -> Iterator[Callable[[int], AlternatingSessions]]:
    """A function that returns two sessions in front of a stub with this number of slots, or without
    counts for 0.
    """
    with ExitStack() as stack:

        def start(slots: int) -> AlternatingSessions:
            stub = stack.enter_context(StubServer(speed=0, machine=Machine(parallel=slots or None)))
            directory = tmp_path / str(slots)
            server = RunningServer(directory, stub.url, summarization_enabled=False)
            return AlternatingSessions(stub, stack.enter_context(server).api())

        yield start


ROUNDS = [4, *(pytest.param(rounds, marks=pytest.mark.nightly) for rounds in (14, 20))]


@pytest.mark.parametrize("slots", [2, pytest.param(8, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("rounds", ROUNDS)
def test_summaries_continue_prompts_that_slots_keep(
    alternating: Callable[[int], AlternatingSessions], rounds: int, slots: int
) -> None:
    sessions = alternating(slots)
    separate = sessions.run(rounds)
    assert separate[:3] == [[False, False]] * 3
    assert (
        sum(map(sum, separate)) <= 4
    )  # after a larger window has reloaded the model, and after compactions
    stub = sessions.stub
    assert evaluated(stub, summaries=True) <= 0.3 * evaluated(stub, summaries=False)


@pytest.mark.parametrize("rounds", [2, *ROUNDS[1:]])
def test_summaries_cost_no_more_with_one_slot(
    alternating: Callable[[int], AlternatingSessions], rounds: int
) -> None:
    counted, uncounted = alternating(1), alternating(0)
    assert uncounted.run(rounds) == [[True, True]] * rounds
    assert counted.run(rounds)[1:] == [[True, True]] * (rounds - 1)
    assert evaluated(counted.stub, summaries=True) <= evaluated(uncounted.stub, summaries=True)


def test_summaries_continue_prompts_again_after_a_third_session(
    alternating: Callable[[int], AlternatingSessions],
) -> None:
    """The third session removes one prompt from the two slots, which says nothing about the
    alternation of two.
    """
    sessions = alternating(2)
    api, (first, second, third) = (
        sessions.api,
        (sessions.api.create_session("mochi")["session_id"] for _ in range(3)),
    )

    def take_turns(*ids: str) -> list[bool]:
        for session_id in ids:
            api.send_message(session_id, "My boat is called Wanda. " * 20)
        before = len(chats(sessions.stub))
        for session_id in ids[-2:]:
            api.ok(api.http.post(f"/sessions/{session_id}/summarize"))
        return [is_separate(exchange.body or {}) for exchange in chats(sessions.stub)[before:]]

    assert [take_turns(first, second) for _ in range(2)] == [[False, False]] * 2
    assert take_turns(first, second, third) == [False, False]
    assert [take_turns(first, second) for _ in range(2)] == [[False, False]] * 2


@pytest.fixture(scope="module")
def shared_models() -> Iterator[ModelStub]:
    """A stub with models of single tests. Tests take `models`."""
    with ModelStub() as models:
        yield models


@pytest.fixture(scope="module")
def models_server(
    shared_models: ModelStub, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server in front of `models`, without summaries in the background."""
    data_dir = tmp_path_factory.mktemp("models")
    with RunningServer(data_dir, shared_models.url, summarization_enabled=False) as server:
        yield server


@pytest.fixture
def models(shared_models: ModelStub) -> ModelStub:
    """A stub with models of single tests and an empty journal."""
    shared_models.clear_exchanges()
    return shared_models


@pytest.fixture
def models_api(models: ModelStub, models_server: RunningServer) -> Api:
    """A client of the server in front of `models`."""
    return models_server.client


def test_summary_is_separate_when_an_embedding_used_the_slot(
    models_api: Api, models: ModelStub
) -> None:
    both = models.add_model(capabilities=("completion", "embedding"))
    session_id = models_api.create_session(both)["session_id"]
    models_api.send_message(session_id, "My boat is called Wanda.")
    embeddings = models_api.http.base_url.copy_with(path="/v1/embeddings")
    models_api.ok(models_api.http.post(embeddings, json={"model": both, "input": "My boat"}))
    models_api.ok(models_api.http.post(f"/sessions/{session_id}/summarize"))
    assert [is_separate(body) for body in summaries(models)] == [True]


def test_summary_is_separate_when_the_slot_was_used_during_the_answer(tmp_path: Path) -> None:
    gate = Gate()

    def resolve(prompt: Prompt) -> Reply | None:
        return Reply([Text("Wait."), gate]) if prompt.user_text == "Hold on." else None

    with (
        StubServer(speed=0, resolve=resolve, machine=Machine(parallel=2)) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
    ):
        api = server.api()
        first, second = (api.create_session("mochi")["session_id"] for _ in range(2))
        with api.open_stream(first, "Hold on.") as events:
            next(event for event in events if event.type == "content_delta")
            api.send_message(second, "My cat is called Otto.")
            gate.open()
            list(events)
        for session_id in (second, first):
            api.ok(api.http.post(f"/sessions/{session_id}/summarize"))
        assert [is_separate(body) for body in summaries(stub, 2)] == [False, True]


def test_separate_summary_extends_the_previous_one(api: Api, stub: StubServer) -> None:
    first, second = (api.create_session("mochi")["session_id"] for _ in range(2))
    api.send_message(first, "My boat is called Wanda.")
    api.ok(api.http.post(f"/sessions/{first}/summarize"))
    api.send_message(first, "My cat is called Otto.")
    api.send_message(second, "Hello!")
    api.ok(api.http.post(f"/sessions/{first}/summarize"))
    text = summaries(stub, 2)[1]["messages"][-1]["content"]
    assert "Summary so far" in text
    assert "Otto" in text
    assert "user: My boat" not in text


def second_summary(tmp_path: Path, *, edits_first: bool) -> str:
    """Return the text of a summary request after a restart, two messages and a first summary.

    The first message may be edited and answered again after the first summary.
    """
    body = {"model": "mochi-chat"}
    with StubServer(speed=0) as stub:
        with RunningServer(tmp_path, stub.url, summarization_enabled=False) as server:
            api = server.api()
            session_id = api.create_session("mochi")["session_id"]
            path = f"/sessions/{session_id}"
            api.send_message(session_id, "My boat is called Wanda.")
            api.ok(api.http.post(f"{path}/summarize", json=body))
            if edits_first:
                edit = {"content": "My boat is called Vera."}
                api.ok(api.http.put(f"{path}/messages/0", json=edit))
                api.ok(api.http.post(f"/chat/{session_id}", json={}))
        with RunningServer(tmp_path, stub.url, summarization_enabled=False) as server:
            api = server.api()
            api.send_message(session_id, "My cat is called Otto.")
            api.ok(api.http.post(f"{path}/summarize", json=body))
        return str(summaries(stub, 2)[1]["messages"][-1]["content"])


def test_separate_summary_extends_the_previous_one_after_a_restart(tmp_path: Path) -> None:
    text = second_summary(tmp_path, edits_first=False)
    assert "Summary so far" in text
    assert "user: My cat" in text
    assert "user: My boat" not in text


def test_summary_of_an_edited_conversation_is_not_extended(tmp_path: Path) -> None:
    text = second_summary(tmp_path, edits_first=True)
    assert "Summary so far" not in text
    assert "Wanda" not in text
    assert "user: My boat is called Vera." in text
    assert "user: My cat" in text


def test_summary_that_covers_an_edited_last_message_is_not_extended(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "My boat is called Wanda.", "message_id": "a" * 10}]
    file = {"metadata": {"model": "mochi"}, "messages": messages}
    body = {"model": "mochi-chat"}
    with (
        StubServer(speed=0) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
    ):
        api = server.api()
        imported = api.ok(api.http.post("/sessions/import", json=file), 201)
        session_id = imported["sessions"][0]["session_id"]
        path = f"/sessions/{session_id}"
        api.ok(api.http.post(f"{path}/summarize", json=body))
        edit = {"content": "My boat is called Vera."}
        api.ok(api.http.put(f"{path}/messages/0", json=edit))
        api.ok(api.http.post(f"/chat/{session_id}", json={}))
        api.ok(api.http.post(f"{path}/summarize", json=body))
        text = summaries(stub, 2)[1]["messages"][-1]["content"]
    assert "Wanda" not in text
    assert "user: My boat is called Vera." in text


def test_summary_that_was_removed_from_the_file_is_not_extended(tmp_path: Path) -> None:
    body = {"model": "mochi-chat"}
    with (
        StubServer(speed=0) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
    ):
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        api.send_message(session_id, "My boat is called Wanda.")
        api.ok(api.http.post(f"/sessions/{session_id}/summarize", json=body))
        file = api.ok(api.http.get(f"/sessions/{session_id}/export"))
        file["metadata"]["summary"] = None
        imported = api.ok(api.http.post("/sessions/import", json=file), 201)
        copy = imported["sessions"][0]["session_id"]
        api.send_message(copy, "My cat is called Otto.")
        api.ok(api.http.post(f"/sessions/{copy}/summarize", json=body))
        text = summaries(stub, 2)[1]["messages"][-1]["content"]
    assert "user: My boat" in text
    assert "user: My cat" in text


def test_stop_sequences_of_the_session_do_not_end_summaries(api: Api, stub: StubServer) -> None:
    session_id = api.create_session("mochi", options={"stop": [".", '"'], "temperature": 0})[
        "session_id"
    ]
    api.send_message(session_id, "My boat is called Wanda.")
    assert "Wanda" in api.ok(api.http.post(f"/sessions/{session_id}/summarize"))["summary"]
    (summary,) = summaries(stub)
    assert not is_separate(summary)
    assert summary["options"] == {"temperature": 0, "num_ctx": 8192, "num_predict": 1200}


@pytest.mark.parametrize("failing", ["no JSON", "tool call"])
def test_failed_continuation_falls_back_to_separate_summary(tmp_path: Path, failing: str) -> None:
    def resolve(prompt: Prompt) -> Reply | None:
        if prompt.format is None:
            return Reply.of("Fine.")
        if len(prompt.messages) == 2:
            return Reply.of('{"summary": "Separate.", "topics": []}')
        return (
            Reply.of("no JSON")
            if failing == "no JSON"
            else Reply([ToolCalls([ToolCall("add_numbers")])])
        )

    with (
        StubServer(speed=0, resolve=resolve) as stub,
        RunningServer(tmp_path, stub.url, summarization_interval_seconds=0.01) as server,
    ):
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        api.send_message(session_id, "Hello!")
        assert summary_of(api, session_id)["summary"] == "Separate."
        assert [is_separate(body) for body in summaries(stub, 3)] == [False, False, True]
        stub.clear_exchanges()
        other = api.create_session("mochi")["session_id"]
        for each in (session_id, other):
            api.send_message(each, "Hello again!")
        assert summary_of(api, other)["summary"] == "Separate."
        assert "Summary so far" not in str(summaries(stub))


def asks_for_loaded_models_after_the_answer(exchanges: list[Exchange]) -> bool:
    paths = [exchange.path for exchange in exchanges]
    return "/api/ps" in paths[paths.index("/api/chat") :]


@pytest.mark.two_servers
def test_model_that_is_not_loaded_is_not_summarized(tmp_path: Path) -> None:
    with (
        StubServer(speed=0) as stub,
        RunningServer(tmp_path, stub.url, summarization_interval_seconds=0.01) as server,
    ):
        api = server.api()
        unloaded = api.create_session("mochi")["session_id"]
        api.ok(api.http.patch(f"/sessions/{unloaded}", json={"keep_alive": 0}))
        api.send_message(unloaded, "My boat is called Wanda.")
        stub.wait_for(asks_for_loaded_models_after_the_answer)
        other = api.create_session("mochi-long")["session_id"]
        api.send_message(other, "My cat is called Otto.")
        summary_of(api, other)
        assert {body["model"] for body in summaries(stub)} == {"mochi-long"}
        assert api.ok(api.http.post(f"/sessions/{unloaded}/summarize"))["summary"]


def test_session_with_a_manual_window_is_summarized_with_its_window(tmp_path: Path) -> None:
    with (
        StubServer(speed=0) as stub,
        RunningServer(tmp_path, stub.url, summarization_interval_seconds=0.2) as server,
    ):
        api = server.api()
        common, own = (api.create_session("mochi")["session_id"] for _ in range(2))
        api.ok(
            api.http.patch(f"/sessions/{own}", json={"context_window": {"current_window": 16384}})
        )
        api.send_message(common, "My cat is called Otto.")
        api.send_message(own, "My boat is called Wanda.")
        summaries(stub)
        assert "Wanda" in summary_of(api, own)["summary"]
        # The model is loaded with the window of the other session.
        assert api.session(common)["summary"] is None
        windows = [body["options"]["num_ctx"] for body in summaries(stub)]
        api.ok(api.http.post(f"/sessions/{own}/summarize"))
    assert windows == [16384]
    assert [exchange.reload for exchange in chats(stub)] == [False, True, False, False]


def test_summary_does_not_unload_a_model_that_another_session_uses(tmp_path: Path) -> None:
    with (
        StubServer(speed=0) as stub,
        RunningServer(tmp_path, stub.url, summarization_interval_seconds=0.2) as server,
    ):
        api = server.api()
        for keep_alive in (0, "0m0s"):
            unloading = api.create_session("mochi", keep_alive=keep_alive)["session_id"]
            api.send_message(unloading, "My boat is called Wanda.")
        other = api.create_session("mochi")["session_id"]
        api.send_message(other, "My cat is called Otto.")
        summaries(stub)
        assert "Otto" in summary_of(api, other)["summary"]
        assert ["keep_alive" in body for body in summaries(stub)] == [False]


def test_summary_does_not_unload_a_model_that_another_program_has_loaded(tmp_path: Path) -> None:
    with (
        StubServer(speed=0) as stub,
        RunningServer(tmp_path, stub.url, summarization_interval_seconds=1) as server,
    ):
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        api.send_message(session_id, "My boat is called Wanda.", keep_alive=0)
        httpx.post(
            f"{stub.url}/api/generate", json={"model": "mochi", "options": {"num_ctx": 8192}}
        )
        assert "keep_alive" not in summaries(stub)[0]


def test_new_message_cancels_and_postpones_summary(tmp_path: Path) -> None:
    gate, requested = Gate(), []

    def resolve(prompt: Prompt) -> Reply | None:
        if prompt.format is None:
            return Reply.of("Fine.")
        requested.append(prompt)
        return (
            Reply([gate, Text('{"summary": "First.", "topics": []}')])
            if len(requested) == 1
            else None
        )

    with session_being_summarized(tmp_path, resolve) as (stub, api, session_id):
        assert api.send_message(session_id, "And?")["message"]["content"] == "Fine."
        assert len(summaries(stub, outcome="cancelled")) == 1
        summary = summary_of(api, session_id)
        assert "Wanda" in summary["summary"]
        gate.open()


def test_background_title_does_not_move_its_session_in_the_list(tmp_path: Path) -> None:
    gate = Gate()

    def resolve(prompt: Prompt) -> Reply:
        if prompt.format is None:
            return Reply.of("Fine.")
        return Reply([gate, Text('{"summary": "The boat Wanda.", "topics": []}')])

    with session_being_summarized(tmp_path, resolve) as (_, api, session_id):
        changed = api.session(session_id)["updated_at"]
        newer = api.create_session("mochi")["session_id"]
        gate.open()
        summary_of(api, session_id)
        listed = api.ok(api.http.get("/sessions"))["sessions"]
        assert [entry["session_id"] for entry in listed] == [newer, session_id]
        assert (listed[1]["title"], listed[1]["updated_at"]) == ("The boat Wanda", changed)
        api.ok(api.http.post(f"/sessions/{session_id}/summarize"))
        assert api.session(session_id)["updated_at"] > changed


@pytest.mark.two_servers
def test_disabled_summarization_makes_no_summaries(stub: StubServer, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"summarization_enabled": False, "summarization_interval_seconds": 0}
    with RunningServer(tmp_path, stub.url, **settings) as server:
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        api.send_message(session_id, "Hello!")
        api.send_message(session_id, "Hello again!")
        assert not any(is_summary(e) for e in stub.exchanges())
        made = api.ok(api.http.post(f"/sessions/{session_id}/summarize"))
        assert made == api.ok(api.http.get(f"/sessions/{session_id}/summary"))


@pytest.mark.two_servers
def test_requested_summary_stores_its_model(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    api.send_message(session_id, "My boat is called Wanda.")
    made = api.ok(api.http.post(f"/sessions/{session_id}/summarize", json={"model": "mochi-long"}))
    assert made["model_used"] == "mochi-long"
    assert "Wanda" in made["summary"]
    assert api.session(session_id)["summary_model"] == "mochi-long"
    response = api.http.post(f"/sessions/{session_id}/summarize", json={"model": "nobody"})
    assert error_of(response) == (404, "MODEL_NOT_FOUND")
    assert error_of(api.http.post("/sessions/0123456789/summarize")) == (404, "SESSION_NOT_FOUND")


@pytest.mark.two_servers
@cases("change", [{"model": "mochi-chat"}, {"summary_model": "mochi-chat"}])
def test_stored_summary_names_the_model_that_wrote_it(api: Api, change: dict[str, str]) -> None:
    path = f"/sessions/{api.create_session('mochi')['session_id']}"
    api.send_message(path.rpartition("/")[2], "My boat is called Wanda.")
    api.ok(api.http.post(f"{path}/summarize", json={"model": "mochi-long"}))
    api.ok(api.http.patch(path, json=change))
    assert api.ok(api.http.get(f"{path}/summary"))["model_used"] == "mochi-long"
    made = api.ok(api.http.post(f"{path}/summarize"))
    assert made["model_used"] == change.get("model", "mochi")
    assert api.ok(api.http.get(f"{path}/summary")) == made


def test_refused_summary_is_requested_again_with_less_text(
    models_api: Api, models: ModelStub
) -> None:
    dense = (
        "漢字" * 6000
    )  # the estimate for a model that has not answered yet is much too small for this text
    chatty, summarizing = (models.add_model(context_length=131_072) for _ in range(2))
    session_id = models_api.create_session(chatty)["session_id"]
    models_api.send_message(session_id, dense)
    path, body = f"/sessions/{session_id}/summarize", {"model": summarizing}
    assert models_api.ok(models_api.http.post(path, json=body))["model_used"] == summarizing
    assert len(summaries(models)) == 1
    assert models_api.ok(models_api.http.post(path, json=body))["summary"]


@pytest.mark.two_servers
def test_summary_fits_a_small_window(models_api: Api, models: ModelStub) -> None:
    session_id = models_api.create_session(models.add_model(context_length=2048))["session_id"]
    models_api.send_message(session_id, "Tell me about tea. " + "word " * 200)
    models_api.ok(models_api.http.post(f"/sessions/{session_id}/summarize"))
    exchange = [e for e in models.exchanges() if is_summary(e)][-1]
    assert exchange.prompt_tokens is not None
    options = (exchange.body or {})["options"]
    assert options["num_predict"] + exchange.prompt_tokens <= options["num_ctx"]
    assert 0 < options["num_predict"] < 1200


@pytest.mark.two_servers
def test_repeated_request_summarizes_the_whole_conversation_again(
    api: Api, stub: StubServer
) -> None:
    session_id = api.create_session("mochi")["session_id"]
    api.send_message(session_id, "Tell me about tea." + instruct(words(3)))
    for _ in range(2):
        api.ok(api.http.post(f"/sessions/{session_id}/summarize", json={"model": "mochi-chat"}))
    first, second = (body["messages"][-1]["content"] for body in summaries(stub, 2))
    assert "Tell me about tea." in first
    assert second == first


@pytest.mark.two_servers
@cases("created", [{}, {"system_prompt": "Be brief."}])
def test_session_without_messages_has_no_summary(
    api: Api, stub: StubServer, created: dict[str, Any]
) -> None:
    session_id = api.create_session("mochi", **created)["session_id"]
    for body in ({}, {"model": "mochi-long"}):
        response = api.http.post(f"/sessions/{session_id}/summarize", json=body)
        assert error_of(response) == (400, "EMPTY_HISTORY")
    session = api.session(session_id)
    assert (session["summary"], session["summary_model"], session["title"]) == (None, None, None)
    assert not any(is_summary(e) for e in stub.exchanges())


@pytest.mark.two_servers
def test_invalid_summary_is_retried_with_the_error(models_api: Api, models: ModelStub) -> None:
    requested: list[Prompt] = []

    def resolve(prompt: Prompt) -> Reply | None:
        if prompt.format is None:
            return Reply.of("Fine.")
        requested.append(prompt)
        wrapped = '<think>Hm.</think>```json\n{"summary": "Repaired.", "topics": ["boats"]}\n```'
        return Reply.of('{"summary": "", "topics": []}' if len(requested) == 1 else wrapped)

    model = models.add_model(resolve)
    session_id = models_api.create_session(model)["session_id"]
    models_api.send_message(session_id, "Hello!")
    made = models_api.ok(models_api.http.post(f"/sessions/{session_id}/summarize"))
    assert made == {"summary": "Repaired.", "topics": ["boats"], "model_used": model}
    assert "at least 1 character" in requested[1].user_text


@pytest.mark.two_servers
def test_summary_longer_than_requested_is_stored(models_api: Api, models: ModelStub) -> None:
    written: dict[str, Any] = {}

    def resolve(prompt: Prompt) -> Reply | None:
        return Reply.of("Fine.") if prompt.format is None else Reply.of(json.dumps(written))

    model = models.add_model(resolve)
    session_id = models_api.create_session(model)["session_id"]
    models_api.send_message(session_id, "Hello!")
    for long in ({"summary": "x" * 900}, {"topics": ["x" * 60]}, {"topics": ["boats"] * 12}):
        written = {"summary": "They talked.", "topics": []} | long
        made = models_api.ok(models_api.http.post(f"/sessions/{session_id}/summarize"))
        assert made == written | {"model_used": model}


@pytest.mark.two_servers
@pytest.mark.parametrize("text", ["no JSON", '{"summary": 5}'])
def test_failing_summary_model_is_used_only_on_request(tmp_path: Path, text: str) -> None:
    def resolve(prompt: Prompt) -> Reply | None:
        return Reply.of("Fine.") if prompt.format is None else Reply.of(text)

    with (
        StubServer(speed=0, resolve=resolve) as stub,
        RunningServer(tmp_path, stub.url, summarization_interval_seconds=0.01) as server,
    ):
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        api.send_message(session_id, "Hello!")
        assert (
            len(summaries(stub, 2)) <= 4
        )  # two attempts, and two more if the first ones continued the prompt
        response = api.http.post(f"/sessions/{session_id}/summarize")
        assert error_of(response) == (502, "OLLAMA_ERROR")
        api.send_message(session_id, "Hello again!")
        assert api.session(session_id)["summary"] is None
        assert api.send_message(session_id, "Still here?")["message"]["content"] == "Fine."


@pytest.mark.parametrize("requested", ["mochi", "mochi:latest"])
def test_model_that_failed_summarizes_again_after_a_requested_summary(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, requested: str
) -> None:
    caplog.set_level(logging.INFO, "mochi_server.services.summarization")
    text = "no JSON"

    def resolve(prompt: Prompt) -> Reply | None:
        return Reply.of("Fine.") if prompt.format is None else Reply.of(text)

    with (
        StubServer(speed=0, resolve=resolve) as stub,
        RunningServer(tmp_path, stub.url, summarization_interval_seconds=0.01) as server,
    ):
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        api.send_message(session_id, "Hello!")
        until(lambda: "Background summary failed" in caplog.text)
        text = '{"summary": "Requested.", "topics": []}'
        api.ok(api.http.post(f"/sessions/{session_id}/summarize", json={"model": requested}))
        api.ok(api.http.patch(f"/sessions/{session_id}", json={"summary_model": "mochi"}))
        text = '{"summary": "Automatic.", "topics": []}'
        api.send_message(session_id, "Hello again!")
        summary_of(api, session_id, lambda summary: summary["summary"] == "Automatic.")


@pytest.mark.two_servers
def test_busy_ollama_does_not_end_background_summaries(tmp_path: Path) -> None:
    busy = True

    def resolve(prompt: Prompt) -> Reply | None:
        if prompt.format is None:
            return Reply.of("Fine.")
        return (
            Reply([Failure("busy", 503)])
            if busy
            else Reply.of('{"summary": "Done.", "topics": []}')
        )

    with (
        StubServer(speed=0, resolve=resolve) as stub,
        RunningServer(tmp_path, stub.url, summarization_interval_seconds=0.01) as server,
    ):
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        api.send_message(session_id, "Hello!")
        assert summaries(stub, 2, outcome="failed")
        busy = False
        api.send_message(session_id, "Hello again!")
        assert summary_of(api, session_id)["summary"] == "Done."


@pytest.mark.two_servers
def test_unsupported_model_leaves_summary_to_summary_model(
    tmp_path: Path, stub: StubServer
) -> None:
    settings: dict[str, Any] = {
        "summary_unsupported_models": "mochi",
        "summarization_interval_seconds": 0.01,
    }
    with RunningServer(tmp_path, stub.url, **settings) as server:
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        api.ok(api.http.patch(f"/sessions/{session_id}", json={"summary_model": "mochi-long"}))
        api.send_message(api.create_session("mochi-long")["session_id"], "Hello!")
        api.send_message(session_id, "My boat is called Wanda.")
        summary_of(api, session_id)
        assert {body["model"] for body in summaries(stub)} == {"mochi-long"}
        assert "Wanda" in summary_of(api, session_id)["summary"]


def test_summary_model_that_no_user_has_set_is_not_loaded(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "summary_unsupported_models": ["mochi-chat"],
        "summarization_interval_seconds": 0.01,
    }
    with StubServer(speed=0) as stub, RunningServer(tmp_path, stub.url, **settings) as server:
        server.app.state.services.summaries.idle_seconds = 0
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        other = api.create_session("mochi-long")["session_id"]
        api.send_message(session_id, "My boat is called Wanda.")
        summary_of(api, session_id)
        api.ok(api.http.post(f"/sessions/{session_id}/summarize"))
        api.ok(api.http.patch(f"/sessions/{session_id}", json={"model": "mochi-chat"}))
        httpx.post(f"{stub.url}/api/generate", json={"model": "mochi", "keep_alive": 0})
        api.send_message(session_id, "My cat is called Otto.")
        api.send_message(other, "Hello!")
        summary_of(api, other)  # it begins after the time of the other summary
        models = [body["model"] for body in summaries(stub, 3)]
        assert models == ["mochi", "mochi", "mochi-long"]


def test_chosen_summary_model_is_loaded_when_the_host_is_idle(tmp_path: Path) -> None:
    """A turn that waits for approval does not keep it busy."""
    write_tools(tmp_path, TOOL)
    settings: dict[str, Any] = {
        "summary_unsupported_models": ["mochi"],
        "summarization_interval_seconds": 0.01,
    }
    with (
        StubServer(speed=0) as stub,
        RunningServer(tmp_path, stub.url, park_seconds=0, **settings) as server,
    ):
        services = server.app.state.services
        services.summaries.idle_seconds = 0.2
        api = server.api()
        waiting = api.create_session("mochi", tool_settings={"tools": ["add"]})["session_id"]
        api.ok(
            api.http.post(
                f"/chat/{waiting}",
                json={"message": instruct(calls("add", a=1, b=2)), "background": True},
            ),
            202,
        )
        until(lambda: not services.turns.table.running())
        session_id = api.create_session("mochi")["session_id"]
        api.send_message(session_id, "My boat is called Wanda.")
        api.ok(api.http.post(f"/sessions/{session_id}/summarize", json={"model": "mochi-long"}))
        httpx.post(f"{stub.url}/api/generate", json={"model": "mochi-long", "keep_alive": 0})
        api.send_message(session_id, "My cat is called Otto.")
        summaries(stub, 2)
        assert (
            "Otto"
            in summary_of(api, session_id, lambda summary: "Otto" in summary["summary"])["summary"]
        )
        assert {body["model"] for body in summaries(stub, 2)} == {"mochi-long"}


@pytest.mark.two_servers
def test_deleting_session_cancels_its_summary(tmp_path: Path) -> None:
    def resolve(prompt: Prompt) -> Reply | None:
        return None if prompt.format is None else Reply([Gate()])

    with session_being_summarized(tmp_path, resolve) as (stub, api, session_id):
        assert api.http.delete(f"/sessions/{session_id}").status_code == 204
        assert summaries(stub, outcome="cancelled")


def test_late_summary_does_not_restore_deleted_session(tmp_path: Path) -> None:
    gate = Gate()

    def resolve(prompt: Prompt) -> Reply | None:
        return (
            None
            if prompt.format is None
            else Reply([gate, Text('{"summary": "Late.", "topics": []}')])
        )

    with session_being_summarized(tmp_path, resolve) as (stub, api, session_id):
        with RunningServer(tmp_path, stub.url) as other:
            assert other.api().http.delete(f"/sessions/{session_id}").status_code == 204
        gate.open()
        summaries(stub)
        assert error_of(api.http.get(f"/sessions/{session_id}")) == (404, "SESSION_NOT_FOUND")
        assert api.ok(api.http.get("/sessions")) == {"sessions": []}


@pytest.mark.parametrize("is_stored", [True, False])
def test_running_summary_does_not_delay_another_session(tmp_path: Path, is_stored: bool) -> None:
    """Neither a message of a stored session, nor a request to `/v1` without a session, waits for
    the summary.
    """
    gate = Gate()

    def resolve(prompt: Prompt) -> Reply | None:
        if prompt.format is None:
            return Reply.of("Fine.")
        return Reply([gate, Text('{"summary": "Late.", "topics": []}')])

    with (
        StubServer(speed=0, resolve=resolve, machine=Machine(parallel=1)) as stub,
        RunningServer(tmp_path, stub.url, summarization_interval_seconds=0.01) as server,
    ):
        api = server.api()
        ids = [api.create_session("mochi")["session_id"] for _ in range(2 if is_stored else 1)]
        api.send_message(ids[0], "Hello!")
        summaries(stub, 1, "running")
        if is_stored:
            assert api.send_message(ids[1], "Hello!")["message"]["content"] == "Fine."
        else:
            body = {"model": "mochi", "messages": [{"role": "user", "content": "Hello!"}]}
            completion = api.ok(api.http.post(f"{server.url}/v1/chat/completions", json=body))
            assert completion["choices"][0]["message"]["content"] == "Fine."
        assert len(summaries(stub, 1, "cancelled")) >= 1
        gate.open()
        assert [summary_of(api, each)["summary"] for each in ids] == ["Late."] * len(ids)


@pytest.mark.slow
def test_summary_waits_between_the_tool_rounds_of_another_session(tmp_path: Path) -> None:
    write_tools(tmp_path, SLOW)
    with (
        StubServer(speed=0) as stub,
        RunningServer(tmp_path, stub.url, summarization_interval_seconds=0.3) as server,
    ):
        api = server.api()
        first = api.create_session("mochi")["session_id"]
        settings = {"tools": ["slow"], "execution_policy": "never_confirm"}
        second = api.create_session("mochi", tool_settings=settings)["session_id"]
        api.send_message(first, "Hello!")
        api.send_message(second, instruct(calls("slow"), words(3)))
        summaries(stub, 2)
        assert [is_summary(each) for each in chats(stub)] == [False] * 3 + [True] * 2


def test_running_summary_does_not_delay_next_answer(tmp_path: Path) -> None:
    gate = Gate()

    def resolve(prompt: Prompt) -> Reply | None:
        return Reply.of("Fine.") if prompt.format is None else Reply([gate])

    def first_token(api: Api, session_id: str) -> float:
        began = time.perf_counter()
        with api.open_stream(session_id, "Hello!") as events:
            next(events)
            return time.perf_counter() - began

    with (
        StubServer(speed=0, resolve=resolve, machine=Machine(parallel=1)) as stub,
        RunningServer(tmp_path, stub.url, summarization_interval_seconds=0) as server,
    ):
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        first_token(api, session_id)
        count, delay = 0, 1.0
        while delay >= 0.2 and count < 30:  # a busy machine delays some answers
            count += 1
            api.send_message(session_id, "Rest.", if_busy="wait")
            summaries(stub, count, "running")
            delay = first_token(api, session_id)
        gate.open()
    assert delay < 0.2


@pytest.mark.two_servers
def test_scripted_conversation_can_be_summarized(api: Api) -> None:
    session_id = api.create_session("mochi")["session_id"]
    api.send_message(session_id, "My boat is called Wanda. " + instruct(words(7)))
    assert "Wanda" in api.ok(api.http.post(f"/sessions/{session_id}/summarize"))["summary"]
