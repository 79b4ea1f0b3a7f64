"""The choice of an Ollama host for each turn."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from mochi_stub import Exchange, Machine, StubServer
from mochi_stub.models import Model
from tests.hosts.conftest import Start
from tests.support.agents import delegate, nested, write_agent
from tests.support.api import Api
from tests.support.holding import GatedStub
from tests.support.instructions import calls, words
from tests.support.ports import free_port
from tests.support.stub import chats
from tests.support.waiting import until

LONG = "word " * 60


def answering(stubs: list[StubServer]) -> list[int]:
    """Return how many answers each stub has given."""
    return [len(chats(stub)) for stub in stubs]


def is_cached(exchange: Exchange) -> bool:
    """Return whether a slot had at least half of the prompt."""
    return (exchange.evaluated_tokens or 0) < (exchange.prompt_tokens or 0) / 2


def _error(response: Any, status: int) -> Any:
    assert response.status_code == status, response.text
    return response.json()["error"]


def last_host(api: Api, session_id: str) -> Any:
    return api.ok(api.http.get(f"/sessions/{session_id}/status"))["last_host"]


def test_turns_of_a_session_stay_where_the_prompt_is(start: Start, stubs: list[StubServer]) -> None:
    api = start(*stubs).api()
    session_id = api.create_session("mochi")["session_id"]
    for _ in range(4):
        api.send_message(session_id, "Hello!")
    assert sorted(answering(stubs)) == [0, 4]
    assert last_host(api, session_id)["reason"] == "prompt_cached"


def test_new_session_takes_the_host_with_a_free_slot(start: Start, stubs: list[StubServer]) -> None:
    api = start(*stubs).api()
    sessions = [api.create_session("mochi")["session_id"] for _ in range(2)]
    for _ in range(3):
        for session_id in sessions:
            api.send_message(session_id, LONG)
    assert answering(stubs) == [3, 3]
    assert {last_host(api, session_id)["name"] for session_id in sessions} == {
        stub.url.removeprefix("http://") for stub in stubs
    }
    assert all(is_cached(exchange) for stub in stubs for exchange in chats(stub)[1:])


@pytest.fixture
def pair(request: pytest.FixtureRequest) -> Iterator[list[StubServer]]:
    """Two stubs with the models "left" and "right", and a machine of these limits."""
    settings: dict[str, Any] = {
        "speed": 0,
        "machine": Machine(**request.param),
        "models": [Model("left"), Model("right")],
    }
    with (
        StubServer(**settings, resolve=lambda _: "Fine.") as one,
        StubServer(**settings, resolve=lambda _: "Fine.") as two,
    ):
        yield [one, two]


def latest_are_cached(
    api: Api, pair: list[StubServer], sessions: list[str], rounds: int
) -> list[bool]:
    """Send messages of all sessions in turn.

    Return whether the slots had the prompts of the latest round.
    """
    for _ in range(rounds):
        before = answering(pair)
        for session_id in sessions:
            api.send_message(session_id, session_id + LONG)
    return [
        is_cached(each)
        for stub, count in zip(pair, before, strict=True)
        for each in chats(stub)[count:]
    ]


@pytest.mark.parametrize("pair", [{"parallel": 2}], indirect=True)
def test_sessions_leave_a_host_that_cannot_hold_all_their_prompts(
    start: Start, pair: list[StubServer]
) -> None:
    api = start(f"a={pair[0].url}", f"b={pair[1].url}").api()
    sessions = [api.create_session("left")["session_id"] for _ in range(4)]
    for session_id, name in zip(sessions, "aaab", strict=True):
        api.ok(api.http.patch(f"/sessions/{session_id}", json={"ollama_host": name}))
        api.send_message(session_id, session_id + LONG)
        api.ok(api.http.patch(f"/sessions/{session_id}", json={"ollama_host": None}))
    assert latest_are_cached(api, pair, sessions, rounds=3) == [True] * 4


@pytest.mark.parametrize("pair", [{"parallel": 3}], indirect=True)
def test_host_that_has_shown_little_is_expected_to_hold_as_many_prompts(
    start: Start, pair: list[StubServer]
) -> None:
    api = start(f"a={pair[0].url}", f"b={pair[1].url}").api()
    sessions = [api.create_session("left")["session_id"] for _ in "aaab"]
    for session_id, name in zip(sessions, "aaab", strict=True):
        api.ok(api.http.patch(f"/sessions/{session_id}", json={"ollama_host": name}))
    for session_id in sessions[:3] * 2:
        api.send_message(session_id, session_id + LONG)
    api.send_message(
        sessions[3], sessions[3] + LONG * 5
    )  # costs more to evict than a prompt of host a
    new = api.create_session("left")["session_id"]
    api.send_message(new, new + LONG)
    assert last_host(api, new)["name"] == "b"


@pytest.mark.parametrize("pair", [{"parallel": 4, "max_loaded_models": 1}], indirect=True)
def test_models_that_do_not_fit_together_go_to_different_hosts(
    start: Start, pair: list[StubServer]
) -> None:
    api = start(*pair).api()
    sessions = [
        api.create_session(model)["session_id"] for _ in range(3) for model in ("left", "right")
    ]
    assert latest_are_cached(api, pair, sessions, rounds=4) == [True] * 6


def test_servers_without_knowledge_agree(
    start: Start, stubs: list[StubServer], tmp_path: Path
) -> None:
    session_id, hosts = "", []
    for _ in range(2):  # one after the other, with the same sessions
        server = start(*stubs, data_dir=tmp_path / "shared")
        api = server.api()
        session_id = session_id or api.create_session("mochi")["session_id"]
        api.send_message(session_id, "Hello!")
        hosts.append(last_host(api, session_id))
        server.stop()
        for stub in stubs:
            httpx.post(f"{stub.url}/api/generate", json={"model": "mochi", "keep_alive": 0})
    assert hosts[0] == hosts[1]
    assert hosts[0]["reason"] == "hash"


def test_parts_of_a_comparison_go_to_different_hosts(start: Start, stubs: list[StubServer]) -> None:
    api = start(*stubs).api()
    body = {"modelIds": ["mochi", "mochi-chat"], "message": "Hello!"}
    assert api.http.post("/models/test", json=body).status_code == 200
    assert answering(stubs) == [1, 1]


def test_summary_goes_to_the_host_of_the_prompt(start: Start, stubs: list[StubServer]) -> None:
    api = start(*stubs).api()
    sessions = [api.create_session("mochi")["session_id"] for _ in range(2)]
    for session_id in sessions:
        api.send_message(session_id, LONG)
    for session_id in sessions:
        api.ok(api.http.post(f"/sessions/{session_id}/summarize"))
    for stub in stubs:
        _, summary = chats(stub)
        assert is_cached(summary)


def test_summary_model_is_loaded_on_an_idle_host_while_another_host_is_busy(
    start: Start, holding: GatedStub, stubs: list[StubServer]
) -> None:
    server = start(
        f"busy={holding.stub.url}",
        f"idle={stubs[0].url}",
        summary_unsupported_models=["mochi"],
        summarization_interval_seconds=0.01,
    )
    server.app.state.services.summaries.idle_seconds = 0.2
    api = server.api()
    running, ended = (api.create_session("mochi")["session_id"] for _ in range(2))
    api.ok(api.http.patch(f"/sessions/{running}", json={"ollama_host": "busy"}))
    settings = {"ollama_host": "idle", "summary_model": "mochi-long"}
    api.ok(api.http.patch(f"/sessions/{ended}", json=settings))
    with api.open_stream(running, "hold") as events:
        next(event for event in events if event.type == "content_delta")
        api.send_message(ended, "My boat is called Wanda.")
        until(lambda: api.session(ended)["summary"])
    assert answering([holding.stub, stubs[0]]) == [1, 2]


def test_first_request_of_a_server_may_be_a_summary(start: Start) -> None:
    with (
        StubServer(speed=0, models=[Model("left")]) as one,
        StubServer(speed=0, models=[Model("right")]) as two,
    ):
        api = start(one, two).api()
        file = {"metadata": {"model": "right"}, "messages": [{"role": "user", "content": "Hello"}]}
        (session,) = api.ok(api.http.post("/sessions/import", json=file), 201)["sessions"]
        api.ok(api.http.post(f"/sessions/{session['session_id']}/summarize"))
        assert len(chats(two)) == 1


def test_window_of_a_pinned_session_changes_only_at_its_host(
    start: Start, stubs: list[StubServer]
) -> None:
    api = start(f"a={stubs[0].url}", f"b={stubs[1].url}").api()
    sessions = {name: api.create_session("mochi")["session_id"] for name in ("a", "b")}
    for name, session_id in sessions.items():
        api.ok(api.http.patch(f"/sessions/{session_id}", json={"ollama_host": name}))
        api.send_message(session_id, "Hello!")
    api.send_message(sessions["b"], "word " * 2500)
    reset = {"context_window": None}
    api.ok(api.http.patch(f"/sessions/{sessions['b']}", json=reset))
    api.send_message(sessions["a"], "And now?")
    windows = [(exchange.body or {})["options"]["num_ctx"] for exchange in chats(stubs[0])]
    assert windows == [8192, 8192]


def test_pinned_session_uses_only_its_host(start: Start, stubs: list[StubServer]) -> None:
    api = start(f"a={stubs[0].url}", f"b={stubs[1].url}").api()
    for name, counts in (("b", [0, 1]), ("a", [1, 1])):
        session_id = api.create_session("mochi")["session_id"]
        changed = api.ok(api.http.patch(f"/sessions/{session_id}", json={"ollama_host": name}))
        assert changed["ollama_host"] == name
        api.send_message(session_id, "Hello!")
        assert answering(stubs) == counts
        assert last_host(api, session_id) == {"name": name, "reason": "pinned"}


def pinned_session(api: Api, host: str) -> str:
    """Create a session that is pinned to a host and may call the agent `helper`."""
    session = api.create_session(
        "mochi",
        agent_settings={"enabled_agents": ["helper"]},
        tool_settings={"tools": [], "execution_policy": "never_confirm"},
    )
    session_id = str(session["session_id"])
    api.ok(api.http.patch(f"/sessions/{session_id}", json={"ollama_host": host}))
    return session_id


def test_agents_of_a_pinned_session_use_only_its_host(
    start: Start, stubs: list[StubServer], tmp_path: Path
) -> None:
    write_agent(tmp_path)
    server = start(f"a={stubs[0].url}", f"b={stubs[1].url}", data_dir=tmp_path)
    api = server.api()
    work = nested(delegate(calls("note", text="hi"), words(2)), words(3), label="M")
    session_id = ""
    for name, counts in (("b", [0, 5]), ("a", [5, 5])):
        session_id = pinned_session(api, name)
        api.send_message(session_id, work)
        assert answering(stubs) == counts
    agent_session = api.messages(session_id)[2]["agent_session_id"]
    server.stop()

    api = start(f"a={stubs[0].url}", f"b={stubs[1].url}", data_dir=tmp_path).api()
    for name, counts in (("b", [5, 10]), ("a", [10, 10])):
        api.ok(api.http.patch(f"/sessions/{session_id}", json={"ollama_host": name}))
        again = delegate(calls("note", text="hi"), words(2), session_id=agent_session)
        api.send_message(session_id, nested(again, words(3), label=name))
        assert answering(stubs) == counts


def test_agent_uses_the_model_of_its_session_if_the_host_has_no_other(
    start: Start, tmp_path: Path
) -> None:
    skill = "---\ndescription: Helps.\nmodel: other\n---\nYou help.\n"
    write_agent(tmp_path, SKILL=skill)
    mochi = Model("mochi", capabilities=("completion", "tools"))
    with (
        StubServer(speed=0, models=[mochi]) as one,
        StubServer(speed=0, models=[mochi, replace(mochi, name="other")]) as two,
    ):
        api = start(f"a={one.url}", f"b={two.url}", data_dir=tmp_path).api()
        for name, model in (("a", "mochi"), ("b", "other")):
            events = api.stream_message(
                pinned_session(api, name), nested(delegate(words(2)), words(3), label="M")
            )
            (started,) = (event for event in events if event.type == "agent_start")
            agent_session = started.data["agent_session_id"]
            chat = api.ok(api.http.get(f"/agents/chats/{agent_session}"))
            assert chat["model"] == model
            warnings = [event.data["code"] for event in events if event.type == "warning"]
            assert warnings == (["MODEL_NOT_FOUND"] if name == "a" else [])


def test_missing_model_of_a_pinned_session_names_the_hosts_that_have_it(start: Start) -> None:
    common, left, right = Model("common"), Model("left"), Model("right")
    with (
        StubServer(speed=0, models=[common, left]) as one,
        StubServer(speed=0, models=[common, right]) as two,
    ):
        api = start(f"a={one.url}", f"b={two.url}").api()
        path = f"/sessions/{api.create_session('common')['session_id']}"
        api.ok(api.http.patch(path, json={"ollama_host": "b"}))
        api.ok(api.http.patch(path, json={"model": "right", "summary_model": "right"}))
        for changes in ({"model": "left"}, {"summary_model": "left"}):
            error = _error(api.http.patch(path, json=changes), 404)
            assert error["code"] == "MODEL_NOT_FOUND"
            assert error["message"] == (
                "The session is pinned to the Ollama host b, which does not have the chat model "
                "'left'. Set the session's `ollama_host` to null, or to a host that has it: a."
            )
        unknown = _error(api.http.patch(path, json={"model": "absent"}), 404)
        assert unknown["message"].startswith("There is no chat model 'absent'.")
        freed = api.http.patch(path, json={"summary_model": "left", "ollama_host": None})
        assert api.ok(freed)["summary_model"] == "left"


def test_session_is_not_pinned_to_a_host_without_its_summary_model(start: Start) -> None:
    common, left = Model("common"), Model("left")
    with (
        StubServer(speed=0, models=[common, left]) as one,
        StubServer(speed=0, models=[common]) as two,
    ):
        api = start(f"a={one.url}", f"b={two.url}").api()
        path = f"/sessions/{api.create_session('common')['session_id']}"
        api.ok(api.http.patch(path, json={"summary_model": "left"}))
        error = _error(api.http.patch(path, json={"ollama_host": "b"}), 404)
        assert error["code"] == "MODEL_NOT_FOUND"
        assert "'left'" in error["message"]
        assert api.ok(api.http.get(path))["ollama_host"] is None
        api.ok(api.http.patch(path, json={"ollama_host": "b", "summary_model": None}))
        api.ok(api.http.patch(path, json={"ollama_host": "a", "summary_model": "left"}))
        api.ok(api.http.patch(path, json={"ollama_host": "a", "title": "Still pinned"}))


def test_missing_model_of_a_session_without_a_pin_names_no_pin(start: Start) -> None:
    common, writer = Model("common"), Model("writer")
    with (
        StubServer(speed=0, models=[common]) as one,
        StubServer(speed=0, models=[common, writer]) as two,
    ):
        api = start(f"a={one.url}", f"b={two.url}").api()
        session_id = api.create_session("writer")["session_id"]
        api.send_message(session_id, "Hello!")
        two.stop()
        api.http.get("/health")  # finds that the host is down
        error = _error(api.http.post(f"/sessions/{session_id}/summarize"), 404)
    assert error["message"].startswith("There is no chat model 'writer'.")


def test_pin_can_be_removed_while_the_hosts_are_down(start: Start, stubs: list[StubServer]) -> None:
    api = start(f"a={stubs[0].url}", f"b={stubs[1].url}").api()
    session_id = api.create_session("mochi")["session_id"]
    api.ok(api.http.patch(f"/sessions/{session_id}", json={"ollama_host": "a"}))
    for stub in stubs:
        stub.stop()
    assert (
        api.ok(api.http.patch(f"/sessions/{session_id}", json={"ollama_host": None}))["ollama_host"]
        is None
    )


def test_pin_to_an_unknown_host_is_refused(start: Start, stubs: list[StubServer]) -> None:
    api = start(f"a={stubs[0].url}", f"b={stubs[1].url}").api()
    session_id = api.create_session("mochi")["session_id"]
    error = _error(api.http.patch(f"/sessions/{session_id}", json={"ollama_host": "c"}), 422)
    assert error["code"] == "VALIDATION_ERROR"
    assert "a, b" in error["message"]


def test_pins_follow_the_file_of_hosts(
    start: Start, stubs: list[StubServer], tmp_path: Path
) -> None:
    file = tmp_path / "hosts"
    file.write_text(f"a={stubs[0].url}")
    api = start(ollama_hosts=[f"@{file}"]).api()
    session_id = api.create_session("mochi")["session_id"]
    file.write_text(f"new={stubs[1].url}")
    error = _error(api.http.patch(f"/sessions/{session_id}", json={"ollama_host": "a"}), 422)
    assert "new" in error["message"]
    file.write_text(f"a={stubs[0].url}\nnewest={stubs[1].url}")
    assert (
        api.http.patch(f"/sessions/{session_id}", json={"ollama_host": "newest"}).status_code == 200
    )
    file.write_text(f"a={stubs[0].url}")
    error = _error(api.http.post(f"/chat/{session_id}", json={"message": "Hello!"}), 502)
    assert (error["code"], error["details"]["ollama_host"]) == ("OLLAMA_UNREACHABLE", "newest")
    assert "set the session's `ollama_host` to null" in error["message"]
    assert "ollama serve" not in error["message"]


def test_file_of_hosts_is_read_after_a_change_that_keeps_its_time_and_size(
    start: Start, stubs: list[StubServer], tmp_path: Path
) -> None:
    """A change of its permissions is one."""
    file = tmp_path / "hosts"
    file.write_text(f"a={stubs[0].url}")
    api = start(ollama_hosts=[f"@{file}"]).api()
    modified = file.stat().st_mtime_ns
    file.write_text(f"b={stubs[0].url}")
    os.utime(file, ns=(modified, modified))
    assert [host["name"] for host in api.ok(api.http.get("/hosts"))["hosts"]] == ["b"]


def test_session_is_not_pinned_while_the_removed_host_still_answers(
    start: Start, holding: GatedStub, stubs: list[StubServer], tmp_path: Path
) -> None:
    file = tmp_path / "hosts"
    file.write_text(f"old={holding.stub.url}")
    api = start(ollama_hosts=[f"@{file}"]).api()
    held = api.create_session("mochi")["session_id"]
    session_id = api.create_session("mochi")["session_id"]
    with api.open_stream(held, "hold") as events:
        next(event for event in events if event.type == "content_delta")
        file.write_text(f"new={stubs[0].url}")
        api.send_message(session_id, "Hello!")
        states = {host["name"]: host["state"] for host in api.ok(api.http.get("/hosts"))["hosts"]}
        assert states == {"new": "up", "old": "draining"}
        assert last_host(api, session_id) == {"name": "new", "reason": "only_host"}


def test_models_are_the_union_with_their_hosts(start: Start) -> None:
    with (
        StubServer(speed=0, models=[Model("both"), Model("left")]) as one,
        StubServer(speed=0, models=[Model("right"), Model("both")]) as two,
    ):
        api = start(f"a={one.url}", f"b={two.url}").api()
        models = {
            model["name"]: model["hosts"] for model in api.ok(api.http.get("/models"))["models"]
        }
        assert models == {"both:latest": ["a", "b"], "left:latest": ["a"], "right:latest": ["b"]}
        session_id = api.create_session("right")["session_id"]
        api.send_message(session_id, "Hello!")
        assert answering([one, two]) == [0, 1]
        error = _error(api.http.post("/sessions", json={"model": "none"}), 404)
        assert error["code"] == "MODEL_NOT_FOUND"
        assert error["details"]["hosts"] == ["a", "b"]
        assert "a, b" in error["message"]
        assert error["details"]["chat_models"] == ["both", "left", "right"]
        assert "Choose one of the chat models: both, left, right." in error["message"]


def test_model_that_was_removed_from_all_hosts_is_404(
    start: Start, stubs: list[StubServer]
) -> None:
    api = start(*stubs).api()
    session_id = api.create_session("mochi")["session_id"]
    for stub in stubs:
        httpx.request(
            "DELETE", f"{stub.url}/api/delete", json={"model": "mochi"}
        ).raise_for_status()
    error = _error(
        api.http.post(f"/chat/{session_id}", json={"message": "Hello!"}), 404
    )  # the lists are still cached
    assert error["code"] == "MODEL_NOT_FOUND"
    assert len(error["details"]["hosts"]) == 2


def test_hosts_are_listed_without_credentials(start: Start, stubs: list[StubServer]) -> None:
    url = stubs[0].url.replace("http://", "http://user:secret@")
    api = start(f"gpu={url}", f"gone=http://127.0.0.1:{free_port()}").api()
    response = api.http.get("/hosts")
    one, gone = api.ok(response)["hosts"]
    assert (one["name"], one["url"], one["state"]) == ("gpu", stubs[0].url, "up")
    assert (gone["name"], gone["state"]) == ("gone", "down")
    assert gone["reason"]
    assert "secret" not in response.text


def test_only_host_is_listed(start: Start, stubs: list[StubServer]) -> None:
    api = start(stubs[0], ollama_hosts=(), ollama_host=stubs[0].url).api()
    (host,) = api.ok(api.http.get("/hosts"))["hosts"]
    assert (host["name"], host["state"]) == (stubs[0].url.removeprefix("http://"), "up")


def test_metrics_by_host(start: Start, stubs: list[StubServer]) -> None:
    api = start(f"a={stubs[0].url}", f"b={stubs[1].url}").api()
    session_id = api.create_session("mochi")["session_id"]
    api.ok(api.http.patch(f"/sessions/{session_id}", json={"ollama_host": "b"}))
    for _ in range(2):
        api.send_message(session_id, LONG)
    text = api.http.get("/metrics").text
    assert 'mochi_ollama_host_requests_total{host="b"} 2.0' in text
    assert 'mochi_ollama_host_state{host="a",state="up"} 1.0' in text
    tokens = sum(exchange.evaluated_tokens or 0 for exchange in chats(stubs[1]))
    assert (
        f'mochi_ollama_host_prompt_tokens_total{{host="b",kind="evaluated"}} {float(tokens)}'
        in text
    )
    assert 'mochi_ollama_host_prompt_tokens_total{host="b",kind="spared"}' in text


def test_conversation_keeps_the_digest_it_began_with(
    start: Start, stubs: list[StubServer], caplog: pytest.LogCaptureFixture
) -> None:
    with StubServer(speed=0, models=[Model("mochi", manifest="0" * 64)]) as third:
        api = start(*stubs, third).api()
        for _ in range(3):
            session_id = api.create_session("mochi")["session_id"]
            hosts = set()
            for _ in range(3):
                api.send_message(session_id, LONG)
                hosts.add(last_host(api, session_id)["name"] == third.url.removeprefix("http://"))
            assert len(hosts) == 1
    warnings = [
        record.getMessage()
        for record in caplog.records
        if "different digests" in record.getMessage()
    ]
    assert len(warnings) == 1


def test_different_digests_are_warned_of_once(
    start: Start, stubs: list[StubServer], caplog: pytest.LogCaptureFixture
) -> None:
    with StubServer(speed=0, models=[Model("mochi", manifest="0" * 64)]) as third:
        api = start(*stubs, third).api()
        api.create_session("mochi")
        stubs[1].stop()
        assert "down" in [host["state"] for host in api.ok(api.http.get("/hosts"))["hosts"]]
        api.create_session("mochi")
    assert sum("different digests" in record.getMessage() for record in caplog.records) == 1
