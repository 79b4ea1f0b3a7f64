"""A stored session whose arguments are nested too deeply."""

from collections.abc import Iterator

import orjson
import pytest

from tests.api.test_deep_arguments import TOOL
from tests.support.api import Api
from tests.support.cases import cases
from tests.support.server import RunningServer
from tests.support.stub import ModelStub
from tests.support.tools import write_tools


@pytest.fixture(scope="module")
def shared_stub() -> Iterator[ModelStub]:
    with ModelStub() as stub:
        yield stub


@pytest.fixture(scope="module")
def shared_server(shared_stub: ModelStub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with the tool `take`."""
    write_tools(data_dir := tmp_path_factory.mktemp("deep"), TOOL)
    with RunningServer(data_dir, shared_stub.url, summarization_enabled=False) as server:
        yield server


@cases("depth", [246, 252, 900])
def test_stored_session_with_too_deep_arguments_can_be_read(
    api: Api, server: RunningServer, stub: ModelStub, depth: int
) -> None:
    session_id = api.create_session(stub.add_model())["session_id"]
    path = server.settings.resolved_sessions_dir / f"{session_id}.json"
    stored = orjson.loads(path.read_bytes())
    call = {"id": "call_1", "function": {"index": 0, "name": "take", "arguments": "ARGUMENTS"}}
    stored["messages"] = [
        {"role": "user", "content": "Hello!"},
        {"role": "assistant", "content": "", "model": stored["metadata"]["model"], "tool_calls": [call]},
        {"role": "tool", "content": "taken", "tool_name": "take", "tool_call_id": "call_1"},
    ]
    deep = b'{"value":' * depth + b"1" + b"}" * depth
    path.write_bytes(orjson.dumps(stored).replace(b'"ARGUMENTS"', deep))

    messages = api.messages(session_id)
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert messages[1]["tool_calls"][0]["function"]["name"] == "take"
    assert api.ok(api.http.get("/sessions"))["sessions"][0]["message_count"] == 3
    assert api.send_message(session_id, "Go on")["message"]["content"]
    assert len(api.messages(session_id)) == 5
