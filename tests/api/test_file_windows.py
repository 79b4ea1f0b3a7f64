"""Files that do not fit the context window, and compaction of old files."""

from pathlib import Path

from mochi_stub import Model, StubServer
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Reply
from tests.api.test_files import attached, sent_contents, stored_blobs
from tests.support.api import error_of
from tests.support.server import RunningServer
from tests.support.stub import chats


def test_file_that_does_not_fit_the_largest_window_is_refused(tmp_path: Path) -> None:
    model = Model("small", ("completion",), context_length=4096)
    with (
        StubServer(speed=0, models=[model]) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        api = server.api()
        session_id = api.create_session("small")["session_id"]
        for path in (f"/chat/{session_id}", f"/chat/{session_id}/stream"):
            body = {"message": "Read.", "attachments": [attached(b"word " * 10_000)]}
            response = api.http.post(path, json=body)
            assert error_of(response) == (422, "VALIDATION_ERROR")
            error = response.json()["error"]
            window, tokens = error["details"]["window"], error["details"]["estimated_tokens"]
            assert window < 4096 < tokens
            assert (
                f"has about {tokens} tokens, an answer needs 64, and the largest context window of "
                f"model 'small:latest' has {window}."
            ) in error["message"]
        assert api.messages(session_id) == []
        assert not stored_blobs(server)
        assert not chats(stub)


def test_file_that_fits_the_window_of_the_modelfile_is_accepted(tmp_path: Path) -> None:
    # Without the parameter, the largest window is nine tenths of the context length.
    model = Model(
        "full",
        ("completion",),
        context_length=16384,
        chars_per_token=3.5,
        parameters={"num_ctx": 16384},
    )
    with (
        StubServer(speed=0, models=[model]) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        api = server.api()
        session_id = api.create_session("full")["session_id"]
        file = attached(b"word " * 10_700)
        answer = api.send_message(session_id, "Read.", attachments=[file])
        assert answer["context_window"]["current_window"] == 16384


def test_file_that_fits_the_adopted_window_of_a_session_is_accepted_after_a_restart(
    tmp_path: Path,
) -> None:
    model = Model("full", ("completion",), context_length=16384, chars_per_token=3.5)
    with StubServer(speed=0, models=[model]) as stub:
        with RunningServer(tmp_path, stub.url) as server:
            api = server.api()
            load = {"model": "full", "messages": [], "options": {"num_ctx": 16384}}
            api.ok(api.http.post(f"{stub.url}/api/chat", json=load))
            session_id = api.create_session("full")["session_id"]
            answer = api.send_message(session_id, "Hello!")
            assert answer["context_window"]["reason"] == "adopted_loaded"
        with RunningServer(tmp_path, stub.url) as server:
            file = attached(b"word " * 10_700)
            answer = server.api().send_message(session_id, "Read.", attachments=[file])
            assert answer["context_window"]["current_window"] == 16384


def test_file_that_does_not_fit_a_manual_window_is_refused_with_its_remedy(
    tmp_path: Path,
) -> None:
    with StubServer(speed=0) as stub, RunningServer(tmp_path, stub.url) as server:
        api = server.api()
        session_id = api.create_session("mochi")["session_id"]
        manual = {"context_window": {"current_window": 2000}}
        api.ok(api.http.patch(f"/sessions/{session_id}", json=manual))
        body = {"message": "Read.", "attachments": [attached(b"word " * 3000)]}
        response = api.http.post(f"/chat/{session_id}", json=body)
        assert error_of(response) == (422, "VALIDATION_ERROR")
        message = response.json()["error"]["message"]
        assert "the session's manual context window has 2000" in message
        assert "`current_window`" in message
        assert "longer context" not in message

        api.ok(api.http.patch(f"/sessions/{session_id}", json={"context_window": None}))
        assert api.ok(api.http.post(f"/chat/{session_id}", json=body))["state"] == "completed"


def test_files_count_towards_the_context_window(tmp_path: Path) -> None:
    model = Model("large", ("completion",), context_length=65536)
    with (
        StubServer(speed=0, models=[model]) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        api = server.api()
        session_id = api.create_session("large")["session_id"]
        answer = api.send_message(session_id, "Read.", attachments=[attached(b"word " * 10_000)])
        assert answer["context_window"]["current_window"] >= 16384


def test_compaction_replaces_old_files_before_it_summarizes(tmp_path: Path) -> None:
    def resolve(prompt: Prompt) -> Reply | None:
        return Reply.of("Fine.") if "Turn" in prompt.user_text else None

    model = Model("small", ("completion",), context_length=4096)
    with (
        StubServer(speed=0, models=[model], resolve=resolve) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
    ):
        api = server.api()
        session_id = api.create_session("small")["session_id"]
        for number in range(3):
            file = attached(b"word " * 400 + b"%d" % number, f"{number}.txt")
            events = api.stream_message(session_id, f"Turn {number}", attachments=[file])
            assert "error" not in [event.type for event in events]

        compacted = [event.data for event in events if event.type == "context_compacted"]
        assert compacted == [
            {"dropped_messages": 0, "trimmed_tool_results": 2, "summary_used": False}
        ]
        contents = sent_contents(stub)
        note = 'The file "0.txt" is left out, because the conversation is long.'
        assert contents[0] == f"[{note}]\n\nTurn 0"
        assert contents[-1].startswith('[Begin of file "2.txt"')
        assert len(api.messages(session_id)[0]["attachments"]) == 1
