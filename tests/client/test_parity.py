"""The client has a method for each route of the native API, and short exceptions."""

import traceback
from pathlib import Path

import pytest

from mochi_server.client import ApiError, AsyncMochiClient, ClientError, MochiClient
from mochi_stub import StubServer
from tests.client.conftest import Connect
from tests.support.agents import write_agent
from tests.support.cases import cases
from tests.support.images import PNG, base64_image, sha256_of
from tests.support.openapi import document
from tests.support.server import RunningServer
from tests.support.tools import write_tools

RENAMED = {
    "stream_chat": "stream",
    "resume_stream": "listen",
    "stop_chat": "stop",
    "confirm_tool": "confirm",
    "patch_session": "update_session",
    "get_blob": "get_image",
    "compare_models": "compare",
    "compare_models_without_prefix": "compare",
}
"""Methods of the client whose name differs from that of the route."""
WITHOUT_METHOD = {"get_live", "get_ready", "get_metrics", "finish_mcp_authorization"}
"""Routes for monitoring tools and browsers."""
PROTOCOLS = {"frontends", "OpenAI", "Anthropic"}
"""Tags of the routes for other clients."""
EXTRA = {"aclose", "set_title"}
"""Methods of the client without a route of their own."""
ADD = """
    __all__ = ["add"]

    def add(a: int, b: int) -> int:
        '''Add two numbers.'''
        return a + b
"""


def native_routes() -> set[str]:
    names = set()
    for operations in document()["paths"].values():
        for operation in operations.values():
            if PROTOCOLS.isdisjoint(operation["tags"]):
                names.add(operation["operationId"])
    return names


def test_each_route_has_a_method_of_the_client() -> None:
    methods = {name for name in vars(AsyncMochiClient) if not name.startswith("_")}
    routes = {RENAMED.get(name, name) for name in native_routes() - WITHOUT_METHOD}
    assert methods - EXTRA == routes


def test_both_clients_have_the_same_methods() -> None:
    names = {name for name in vars(AsyncMochiClient) if not name.startswith("_")} - {"aclose"}
    assert names == {name for name in vars(MochiClient) if not name.startswith("_")}


def test_tools_and_agents_are_read_and_reloaded(
    private_stub: StubServer, tmp_path: Path, connect: Connect
) -> None:
    write_tools(tmp_path, ADD)
    write_agent(tmp_path, "coder")
    with RunningServer(tmp_path, private_stub.url) as server, connect(server.url) as client:
        assert client.get_tool("add")["schema"]["function"]["name"] == "add"
        assert list(client.list_agents()) == ["coder"]
        assert client.get_agent("coder")["name"] == "coder"
        write_tools(tmp_path, "__all__ = []")
        write_agent(tmp_path, "writer")
        assert client.reload_tools()["tools"] == {}
        assert client.reload_agents().keys() == {"coder", "writer"}
        assert client.list_executions()["executions"] == []
        assert client.list_agent_chats() == []
        with pytest.raises(ApiError, match="SESSION_NOT_FOUND"):
            client.get_agent_chat("0123456789")


def test_prompts_are_created_used_changed_and_deleted(private_client: MochiClient) -> None:
    client = private_client
    client.create_prompt("pirate.md", "Talk like a pirate.")
    session_id = client.create_session("mochi")["session_id"]
    client.set_system_prompt(session_id, source_file="pirate.md")
    assert client.list_messages(session_id)[0]["content"] == "Talk like a pirate."
    client.set_system_prompt(session_id, "Be brief.")
    assert client.list_messages(session_id)[0]["content"] == "Be brief."
    client.remove_system_prompt(session_id)
    assert client.list_messages(session_id) == []
    client.update_prompt("pirate.md", "Arr.")
    assert client.get_prompt("pirate.md") == "Arr."
    assert [prompt["filename"] for prompt in client.list_prompts()] == ["pirate.md"]
    client.delete_prompt("pirate.md")
    assert client.list_prompts() == []


def test_summaries_states_images_hosts_and_health_are_read(client: MochiClient) -> None:
    session_id = client.create_session("echo")["session_id"]
    client.chat(session_id, "Describe it.", images=[base64_image(PNG)])
    assert client.get_image(session_id, sha256_of(PNG)) == PNG
    assert client.get_status(session_id)["session_id"] == session_id
    assert client.get_summary(session_id)["summary"] is None
    summarized = client.create_session("mochi")["session_id"]
    client.chat(summarized, "Hello!")
    assert client.summarize_session(summarized) == client.get_summary(summarized)
    (host,) = client.list_hosts()
    assert host["state"] == "up"
    assert client.get_health()["status"] == "ok"


@cases("kind", ["request", "stream"])
def test_traceback_of_a_failed_connection_is_short(connect: Connect, kind: str) -> None:
    with connect("http://127.0.0.1:9") as client, pytest.raises(ClientError) as caught:
        client.list_models() if kind == "request" else list(client.stream("0123456789", "Hi."))
    text = "".join(traceback.format_exception(caught.value))
    assert "httpcore" not in text
    assert len(text.splitlines()) < 40
    assert text.splitlines()[-1].startswith(
        "mochi_server.client.streams.ConnectionFailed: Cannot connect to http://127.0.0.1:9"
    )
