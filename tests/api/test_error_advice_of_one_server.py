"""Errors whose advice depends on the files or the cached models of one server."""

from pathlib import Path

import httpx

from mochi_stub import StubServer
from tests.api.test_error_advice import message_of
from tests.support.api import Api
from tests.support.server import RunningServer


def test_model_that_was_removed_after_the_session_was_created(private_stub: StubServer, tmp_path: Path) -> None:
    with RunningServer(tmp_path, private_stub.url, env="test") as server:
        session = server.client.create_session("echo")["session_id"]
        httpx.request("DELETE", f"{private_stub.url}/api/delete", json={"model": "echo"}).raise_for_status()
        events = server.client.stream_message(session, "Hello")
        message = message_of(server.client, "POST", f"/chat/{session}", 404, json={"message": "Hello"})
    assert message.startswith("There is no chat model 'echo'. Choose one of the chat models: mochi, ")
    assert "ollama pull" not in message
    assert [event.data["message"] for event in events if event.type == "error"] == [message]


def test_session_file_of_a_later_version_is_refused(private_api: Api, tmp_path: Path) -> None:
    session = private_api.create_session("mochi")["session_id"]
    path = tmp_path / "chat_sessions" / f"{session}.json"
    path.write_text(path.read_text().replace('"format_version": "1.3"', '"format_version": "2.0"'))
    message = message_of(private_api, "GET", f"/sessions/{session}", 409)
    assert message == (
        f"The file of session '{session}' has format version 2.0, and this server reads versions up to 1.3. "
        "Update mochi-server."
    )
    assert message_of(private_api, "POST", f"/chat/{session}", 409, json={"message": "Hello"}) == message
    assert private_api.ok(private_api.http.get("/sessions")) == {"sessions": []}
    assert private_api.http.delete(f"/sessions/{session}").status_code == 409
