"""Sessions, answers, approvals and errors through the client."""

import json
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from mochi_server.client import ApiError, AsyncMochiClient, ConnectionFailed, MochiClient
from mochi_server.client.client import AttachedFile
from mochi_server.client.streams import Backoff
from mochi_server.events import (
    ContentDelta,
    Done,
    MessageComplete,
    ToolConfirmationRequired,
    ToolResult,
)
from mochi_stub import Cut, Reply, StubServer, Text
from tests.client.conftest import Connect
from tests.support.cases import cases
from tests.support.holding import GatedStub
from tests.support.images import GIF, PNG, base64_image
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.stub import chats
from tests.support.tools import write_tools
from tests.support.waiting import until

ADDING = """
    __all__ = ["add"]

    def add(a: int, b: int) -> int:
        '''Add two numbers.'''
        return a + b
"""


@pytest.fixture(scope="module")
def adding_server(
    shared_stub: StubServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    data_dir = tmp_path_factory.mktemp("adding")
    write_tools(data_dir, ADDING)
    with RunningServer(data_dir, shared_stub.url) as server:
        yield server


def test_sessions_are_created_listed_read_and_deleted(private_client: MochiClient) -> None:
    client = private_client
    session = client.create_session("mochi", title="Paris", think=True)
    assert (session["title"], session["think"]) == ("Paris", True)
    assert [each["session_id"] for each in client.list_sessions()] == [session["session_id"]]
    assert client.get_session(session["session_id"])["messages"] == []
    client.delete_session(session["session_id"])
    assert client.list_sessions() == []


def test_sessions_are_tagged_pinned_archived_and_temporary(private_client: MochiClient) -> None:
    client = private_client
    first = client.create_session("mochi", tags=["work"], pinned=True)["session_id"]
    second = client.create_session("mochi")["session_id"]
    hidden = client.create_session("mochi", temporary=True)["session_id"]
    client.update_session(second, tags=["work", "home"], archived=True)

    def listed(**filters: Any) -> list[str]:
        return [each["session_id"] for each in client.list_sessions(**filters)]

    assert listed() == [second, first]
    assert listed(pinned_first=True) == [first, second]
    assert listed(tag="home") == listed(archived=True) == [second]
    assert listed(tag=["work", "home"]) == [second]
    assert listed(archived=False) == [first]
    assert listed(temporary=True) == [hidden]
    assert client.list_tags() == [{"tag": "work", "count": 2}, {"tag": "home", "count": 1}]
    assert client.list_tags(archived=False) == [{"tag": "work", "count": 1}]


def test_versions_are_listed_selected_copied_and_deleted(private_client: MochiClient) -> None:
    client = private_client
    session_id = client.create_session("mochi")["session_id"]
    client.chat(session_id, "Apples?")
    client.edit_message(session_id, 0, "Pears?")
    (message,) = client.get_session(session_id)["messages"]
    first, shown = client.list_versions(session_id, message["message_id"])
    assert (first["preview"], shown["preview"]) == ("Apples?", "Pears?")
    selected = client.select_version(session_id, first["version_id"])
    assert selected["messages"][0]["content"] == "Apples?"
    place = selected["messages"][0]["message_id"]
    assert client.fork_session(session_id, versions=True)["versions"] == selected["versions"]
    (imported,) = client.import_sessions(client.export_session(session_id, versions=True))
    assert client.get_session(imported["session_id"])["versions"] == selected["versions"]
    client.delete_versions(session_id, place)
    assert client.get_session(session_id)["versions"] == {}
    with pytest.raises(ApiError) as refused:
        client.select_version(session_id, "none")
    assert refused.value.code == "VERSION_NOT_FOUND"


def test_sessions_are_found_titled_forked_exported_and_imported(
    private_client: MochiClient,
) -> None:
    client = private_client
    session_id = client.create_session("mochi")["session_id"]
    client.chat(session_id, "Apples?")
    fork = client.fork_session(session_id, 0)
    assert [message["content"] for message in fork["messages"]] == ["Apples?"]
    assert (
        client.fork_session(session_id, message_id=fork["messages"][0]["message_id"])[
            "message_count"
        ]
        == 1
    )
    assert client.set_title(session_id, "Fruit")["title"] == "Fruit"
    assert [each["title"] for each in client.list_sessions("fruit")] == ["Fruit"]
    assert [each["session_id"] for each in client.list_sessions("apples", limit=1)] == [session_id]
    assert len(client.list_sessions(offset=1)) == 2
    (imported,) = client.import_sessions(client.export_session(session_id))
    assert (
        client.get_session(imported["session_id"])["messages"]
        == client.get_session(session_id)["messages"]
    )
    assert client.export_session(session_id, "markdown").startswith(b"# Fruit\n")
    assert client.set_title(session_id, None)["title"] == "Apples?"
    with pytest.raises(ApiError) as refused:
        client.import_sessions(b"[")
    assert refused.value.code == "VALIDATION_ERROR"


def test_import_returns_the_warnings(private_client: MochiClient) -> None:
    export = Path(__file__).parent.parent / "api/exports/claude/tools.json"
    imported = private_client.import_sessions(export.read_bytes())
    assert [session["title"] for session in imported] == ["Tide table"]
    (warning,) = imported.warnings
    assert warning["code"] == "CONTENT_LEFT_OUT"
    assert warning["message"] == "The import left out tool calls and their results: 1."
    exported = private_client.export_session(imported[0]["session_id"])
    assert private_client.import_sessions(exported).warnings == []


def test_stream_of_typed_events_adds_up_to_the_answer(client: MochiClient) -> None:
    session_id = client.create_session("mochi")["session_id"]
    with client.stream(session_id, instruct(words(20), reasoning=5), think=True) as stream:
        events = list(stream)
    assert isinstance(events[-2], MessageComplete)
    assert events[-1] == Done(session_id)
    assert stream.text == "".join(
        event.content for event in events if isinstance(event, ContentDelta)
    )
    stored = client.get_session(session_id)["messages"][-1]
    assert (stored["content"], stored["thinking"]) == (stream.text, stream.thinking)
    with client.listen(session_id) as again:
        assert list(again) == events


def test_attachments_are_files_or_bytes_with_a_name(
    client: MochiClient, stub: StubServer, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("Three apples")
    session_id = client.create_session("mochi")["session_id"]
    data: AttachedFile = {"name": "b.csv", "data": b"1;2", "media_type": "text/csv"}
    encoded: AttachedFile = {"name": "c.txt", "data": "Rm91cg=="}
    client.chat(session_id, "Read.", attachments=[tmp_path / "notes.txt", data, encoded])
    stored = client.get_session(session_id)["messages"][0]["attachments"]
    assert [file["name"] for file in stored] == ["notes.txt", "b.csv", "c.txt"]
    assert client.get_file(session_id, stored[1]["sha256"]) == b"1;2"
    content = chats(stub)[-1].body["messages"][-1]["content"]
    assert all(text in content for text in ("Three apples", "1;2", "Four"))
    with pytest.raises(FileNotFoundError):
        client.chat(session_id, "Read.", attachments=[tmp_path / "none.txt"])


def test_turn_in_the_background_returns_its_run(client: MochiClient) -> None:
    session_id = client.create_session("mochi")["session_id"]
    assert client.chat(session_id, "Hello!", background=True)["state"] in ("running", "completed")


def test_stream_outlives_the_variable_of_its_client(server: RunningServer) -> None:
    session_id = MochiClient(server.url).create_session("mochi")["session_id"]
    stream = MochiClient(server.url).stream(session_id, "Hello")
    assert isinstance([*stream][-1], Done)
    assert isinstance([*MochiClient(server.url).listen(session_id)][-1], Done)


def test_images_are_bytes_or_base64_or_files(
    client: MochiClient, stub: StubServer, tmp_path: Path
) -> None:
    (tmp_path / "two.gif").write_bytes(GIF)
    images = (
        PNG,
        base64_image(PNG),
        f"data:image/png;base64,{base64_image(PNG)}",
        tmp_path / "two.gif",
    )
    session_id = client.create_session("echo")["session_id"]
    client.chat(session_id, "Look!", images=images)
    with client.stream(session_id, "And this!", images=[PNG]) as events:
        assert list(events)[-1] == Done(session_id)
    sent = {
        messages[-1]["content"]: messages
        for messages in (each.body["messages"] for each in chats(stub))
    }
    first, second = sent["Look!"], sent["And this!"]  # there may be summaries too
    assert first[-1]["images"] == [base64_image(PNG)] * 3 + [base64_image(GIF)]
    assert [len(each.get("images", ())) for each in second] == [4, 0, 1]
    with pytest.raises(ApiError, match=r"images\.0: not an image, but a path"):
        client.chat(session_id, "Look!", images=["two.gif"])
    with pytest.raises(FileNotFoundError):
        client.chat(session_id, "Look!", images=[tmp_path / "none.gif"])


def test_whole_answer_is_the_stored_message(client: MochiClient) -> None:
    session_id = client.create_session("mochi")["session_id"]
    answer = client.chat(session_id, "Hello!")
    assert answer["message"] == client.get_session(session_id)["messages"][-1]
    again = client.chat(session_id)
    assert again["message"] is not None
    assert len(client.get_session(session_id)["messages"]) == 2


@cases(
    ("decision", "success", "text"),
    [
        ({"approved": True}, True, "3"),
        ({"approved": True, "arguments": {"a": 20, "b": 3}}, True, "23"),
        ({"approved": False, "reason": "No sums today."}, False, "No sums today."),
    ],
)
def test_tool_call_is_decided_while_the_stream_waits(
    connect: Connect,
    adding_server: RunningServer,
    decision: dict[str, Any],
    success: bool,
    text: str,
) -> None:
    results = []
    with connect(adding_server.url) as client:
        session_id = client.create_session("mochi", tool_settings={"tools": ["add"]})["session_id"]
        with client.stream(session_id, instruct(calls("add", a=1, b=2), words(3))) as events:
            for event in events:
                if isinstance(event, ToolConfirmationRequired):
                    waiting = client.list_confirmations(session_id)
                    assert [each["confirmation_id"] for each in waiting] == [event.confirmation_id]
                    decided = client.confirm(session_id, event, **decision)
                    assert decided["approved"] is success
                elif isinstance(event, ToolResult):
                    results.append(event)
    assert [result.success for result in results] == [success]
    assert text in str(results[0].result if success else results[0].error_message)


@cases(
    ("decision", "text"),
    [
        (True, "3"),
        ({"approved": True, "arguments": {"a": 20, "b": 3}}, "23"),
        ({"approved": False, "reason": "No sums."}, "No sums."),
    ],
)
def test_callback_decides_about_tool_calls(
    connect: Connect, adding_server: RunningServer, decision: Any, text: str
) -> None:
    asked: list[str] = []

    def decide(event: ToolConfirmationRequired) -> Any:
        asked.append(event.tool_name)
        return decision

    async def decide_later(event: ToolConfirmationRequired) -> Any:
        return decide(event)

    message = instruct(calls("add", a=1, b=2), words(3))
    with connect(adding_server.url) as client:
        session_id = client.create_session("mochi", tool_settings={"tools": ["add"]})["session_id"]
        with client.stream(session_id, message, on_confirm=decide) as events:
            (result,) = [event for event in events if isinstance(event, ToolResult)]
        answer = client.chat(session_id, message, on_confirm=decide_later)
    assert text in str(result.result if result.success else result.error_message)
    (executed,) = answer["tool_calls_executed"]
    assert text in str(executed["result"] if executed["success"] else executed["error_message"])
    assert asked == ["add", "add"]


def test_error_of_the_callback_reaches_the_caller(
    connect: Connect, adding_server: RunningServer
) -> None:
    def decide(_: ToolConfirmationRequired) -> bool:
        raise RuntimeError("no idea")

    with connect(adding_server.url) as client:
        session_id = client.create_session("mochi", tool_settings={"tools": ["add"]})["session_id"]
        message = instruct(calls("add", a=1, b=2), words(3))
        with pytest.raises(RuntimeError, match="no idea"):
            client.chat(session_id, message, on_confirm=decide)
        client.stop(session_id)
        with (
            pytest.raises(RuntimeError, match="no idea"),
            client.stream(session_id, message, on_confirm=decide) as events,
        ):
            list(events)
        client.stop(session_id)


def test_failed_turn_with_a_callback_is_an_error(connect: Connect, tmp_path: Path) -> None:
    replies = [Reply([Text(["one "]), Cut()]), Reply.of("Fine.")]
    with (
        StubServer(speed=0, resolve=lambda _: replies.pop(0)) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
        connect(server.url) as client,
    ):
        session_id = client.create_session("mochi")["session_id"]
        with pytest.raises(ApiError) as failed:
            client.chat(session_id, "Hi", on_confirm=lambda _: True)
        assert (failed.value.status, failed.value.code) == (502, "OLLAMA_ERROR")
        assert client.get_session(session_id)["messages"][-1]["content"] == "one "
        assert client.chat(session_id)["message"]["content"] == "Fine."


_INVALID_DECISIONS = ["yes", {}, {"approve": True}, {"approved": True, "because": "it is safe"}]


@pytest.mark.parametrize(
    "decision",
    [None, *(pytest.param(decision, marks=pytest.mark.slow) for decision in _INVALID_DECISIONS)],
)
def test_callback_with_an_invalid_decision_is_an_error(
    connect: Connect, adding_server: RunningServer, decision: Any
) -> None:
    with connect(adding_server.url) as client:
        session_id = client.create_session("mochi", tool_settings={"tools": ["add"]})["session_id"]
        with pytest.raises(
            TypeError, match="on_confirm must return True, False or a dictionary such as"
        ):
            client.chat(
                session_id,
                instruct(calls("add", a=1, b=2), words(3)),
                on_confirm=lambda _: decision,
            )
        client.stop(session_id)


def test_callback_can_return_a_coroutine(connect: Connect, adding_server: RunningServer) -> None:
    async def approve() -> bool:
        return True

    with connect(adding_server.url) as client:
        session_id = client.create_session("mochi", tool_settings={"tools": ["add"]})["session_id"]
        message = instruct(calls("add", a=1, b=2), words(3))
        answer = client.chat(session_id, message, on_confirm=lambda _: approve())
    assert answer["tool_calls_executed"][0]["success"]


def test_decision_after_the_timeout_does_not_end_the_stream(
    connect: Connect, stub: StubServer, tmp_path: Path
) -> None:
    write_tools(tmp_path, ADDING)

    def decide_late(_: ToolConfirmationRequired) -> bool:
        until(lambda: not client.list_confirmations(session_id))
        return True

    with (
        RunningServer(tmp_path, stub.url, tool_confirmation_timeout_seconds=0.1) as server,
        connect(server.url) as client,
    ):
        session_id = client.create_session("mochi", tool_settings={"tools": ["add"]})["session_id"]
        with client.stream(
            session_id, instruct(calls("add", a=1, b=2), words(3)), on_confirm=decide_late
        ) as stream:
            events = list(stream)
    assert [event.error_code for event in events if isinstance(event, ToolResult)] == [
        "TOOL_CONFIRMATION_TIMEOUT"
    ]
    assert isinstance(events[-1], Done)


@pytest.mark.parametrize("ending", ["stop", "delete_session"])
def test_decision_after_the_end_of_the_turn_does_not_end_the_stream(
    connect: Connect, adding_server: RunningServer, ending: str
) -> None:
    def decide_late(_: ToolConfirmationRequired) -> bool:
        getattr(client, ending)(session_id)
        return True

    with connect(adding_server.url) as client:
        session_id = client.create_session("mochi", tool_settings={"tools": ["add"]})["session_id"]
        with client.stream(
            session_id, instruct(calls("add", a=1, b=2), words(3)), on_confirm=decide_late
        ) as stream:
            assert isinstance(list(stream)[-1], Done)


def test_refused_decision_on_a_call_that_still_waits_is_an_error(
    connect: Connect, stub: StubServer, tmp_path: Path
) -> None:
    write_tools(tmp_path, ADDING)
    with RunningServer(tmp_path, stub.url) as server, connect(server.url) as client:
        session_id = client.create_session("mochi", tool_settings={"tools": ["add"]})["session_id"]
        file = server.settings.resolved_sessions_dir / f"{session_id}.json"

        def decide(_: ToolConfirmationRequired) -> bool:
            session = json.loads(file.read_text())
            session["metadata"]["format_version"] = "9.0"
            file.write_text(json.dumps(session))
            return True

        message = instruct(calls("add", a=1, b=2), words(3))
        with (
            pytest.raises(ApiError, match="SESSION_TOO_NEW"),
            client.stream(session_id, message, on_confirm=decide) as events,
        ):
            list(events)


def test_models_and_tools_are_listed(connect: Connect, adding_server: RunningServer) -> None:
    with connect(adding_server.url) as client:
        names = [model["name"] for model in client.list_models()]
        assert "mochi:latest" in names
        assert client.get_model("mochi")["capabilities"]
        assert list(client.list_tools()["tools"]) == ["add"]
        with pytest.raises(ApiError, match="MODEL_NOT_FOUND"):
            client.get_model("none")


def test_session_is_updated_and_message_edited(client: MochiClient) -> None:
    session_id = client.create_session("mochi", title="First")["session_id"]
    changed = client.update_session(session_id, title=None, think=True, tool_settings={"tools": []})
    assert (changed["title"], changed["think"]) == (None, True)
    client.chat(session_id, "My boat is called Wanda.")
    edited = client.edit_message(session_id, 0, "My cat is called Otto.")
    assert [message["content"] for message in edited["messages"]] == ["My cat is called Otto."]
    answer = client.chat(session_id)["message"]
    assert answer is not None
    assert "Otto" in answer["content"]


def test_models_are_compared(client: MochiClient) -> None:
    history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    answers = client.compare(["mochi", "mochi-long"], "My boat is called Wanda.", history=history)
    assert [answer["model"] for answer in answers] == ["mochi", "mochi-long"]
    assert all("Wanda" in str(answer["response"]) and answer["error"] is None for answer in answers)
    with pytest.raises(ApiError):
        client.compare(["none"], "Hi")


def test_stopped_turn_keeps_its_text(connect: Connect, holding: GatedStub, tmp_path: Path) -> None:
    with RunningServer(tmp_path, holding.stub.url) as server, connect(server.url) as client:
        session_id = client.create_session("mochi")["session_id"]
        assert client.get_run(session_id)["state"] == "idle"
        with client.stream(session_id, "hold") as stream:
            for event in stream:
                if event == ContentDelta("three "):
                    assert client.stop(session_id)["state"] == "stopped"
        assert stream.text == "one two three "
        assert client.get_session(session_id)["messages"][-1]["interrupted"] is True


@pytest.mark.slow
def test_client_holds_more_streams_than_a_default_pool(
    connect: Connect, holding: GatedStub, tmp_path: Path
) -> None:
    with (
        RunningServer(tmp_path, holding.stub.url) as server,
        ExitStack() as open_streams,
        connect(server.url) as client,
    ):
        session_id = client.create_session("mochi")["session_id"]
        streams = [open_streams.enter_context(client.stream(session_id, "hold"))]
        streams += [open_streams.enter_context(client.listen(session_id)) for _ in range(100)]
        received = [next(stream) for stream in streams]
        assert all(event == received[0] for event in received)
        assert client.stop(session_id)["state"] == "stopped"
        open_streams.close()


def test_errors_carry_code_status_and_details(client: MochiClient) -> None:
    for refused in (
        lambda: client.get_session("0123456789"),
        lambda: list(client.stream("0123456789", "Hello!")),
    ):
        with pytest.raises(
            ApiError, match=r"^SESSION_NOT_FOUND \(404\): Session with ID"
        ) as caught:
            refused()
        assert (caught.value.code, caught.value.status) == ("SESSION_NOT_FOUND", 404)
        assert caught.value.details == {"session_id": "0123456789"}


def test_path_parameter_cannot_change_the_path(client: MochiClient) -> None:
    with pytest.raises(ApiError) as caught:
        client.get_session("../sessions")
    assert caught.value.status == 404


def test_unreachable_server_raises_connection_failed(connect: Connect, stub: StubServer) -> None:
    with connect("http://127.0.0.1:9", delays=(60,)) as client:
        for asked in (
            client.list_sessions,
            lambda: client.chat("a", "b"),
            lambda: list(client.stream("a", "b")),
        ):
            with pytest.raises(
                ConnectionFailed,
                match=r"Cannot connect to http://127\.0\.0\.1:9: .+ Start mochi-server",
            ):
                asked()


def test_first_connection_that_times_out_is_not_tried_again() -> None:
    request = httpx.Request("GET", "http://192.0.2.1:8000/api/v1/sessions")
    timeout = httpx.ConnectTimeout("", request=request)  # as raised by httpx
    with pytest.raises(
        ConnectionFailed, match=r"Cannot connect to http://192\.0\.2\.1:8000: ConnectTimeout\."
    ):
        Backoff((60,)).delay_after(timeout)


def test_other_server_raises_api_error(connect: Connect, stub: StubServer) -> None:
    with connect(stub.url) as client, pytest.raises(ApiError, match="UNKNOWN"):
        client.list_sessions()


def test_html_response_raises_api_error(tmp_path: Path) -> None:
    for path in ("api/v1/sessions", "api/v1/chat/a/stream"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("<html></html>")
    with HTTPServer(
        ("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    ) as server:
        Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        with MochiClient(f"http://127.0.0.1:{server.server_port}") as client:
            for request in (client.list_sessions, lambda: list(client.listen("a"))):
                with pytest.raises(
                    ApiError, match=r"UNKNOWN \(200\): The response is not from mochi-server"
                ):
                    request()
        server.shutdown()


async def test_async_client_streams_and_collects_answers(server: RunningServer) -> None:
    async with AsyncMochiClient(server.url) as client:
        session_id = (await client.create_session("mochi"))["session_id"]
        async with client.stream(session_id, "Hello!") as stream:
            events = [event async for event in stream]
        assert events[-1] == Done(session_id)
        assert stream.text == (await client.get_session(session_id))["messages"][-1]["content"]
        async with client.listen(session_id, stream.last_event_id) as rest:
            assert [event async for event in rest] == []
        assert (await client.chat(session_id, "Again."))["message"] is not None


def test_threads_may_share_a_client(client: MochiClient) -> None:
    with ThreadPoolExecutor() as threads:
        created = list(threads.map(client.create_session, ["mochi"] * 8))
    assert len({session["session_id"] for session in created}) == 8


@cases("url", ["127.0.0.1:8000", "http://localhost:port", "http://[::1"])
def test_invalid_url_raises_value_error(connect: Connect, url: str) -> None:
    with pytest.raises(ValueError, match="is not a"), connect(url):
        pass


def test_api_key_is_sent(connect: Connect, stub: StubServer, tmp_path: Path) -> None:
    with RunningServer(tmp_path, stub.url, api_keys=("secret",)) as server:
        with connect(server.url, api_key="secret") as client:
            assert client.list_sessions() == []
        with connect(server.url) as client, pytest.raises(ApiError, match="UNAUTHORIZED"):
            client.list_sessions()


def request_in_a_child(url: str) -> None:
    with MochiClient(url) as client:
        client.list_sessions()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forked_process_has_a_client_of_its_own(adding_server: RunningServer) -> None:
    request_in_a_child(adding_server.url)
    child = multiprocessing.get_context("fork").Process(
        target=request_in_a_child, args=(adding_server.url,)
    )
    child.start()
    child.join(60)
    exit_code = child.exitcode
    child.kill()
    child.join()
    assert exit_code == 0
