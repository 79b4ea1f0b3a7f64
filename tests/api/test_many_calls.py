"""Answers with more tool calls than a round may have."""

from collections.abc import Iterator

import pytest

from mochi_server.chat.steps import TurnRules
from mochi_server.config import MochiServerSettings
from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.reply import Reply, Text, ToolCalls
from tests.support.api import Api
from tests.support.cases import cases
from tests.support.server import RunningServer
from tests.support.stub import ModelStub
from tests.support.tools import write_tools

TOOL = '''
    def double(a: int) -> int:
        """Double a number."""
        return 2 * a

    __all__ = ["double"]
    __read_only__ = ["double"]
'''


LIMIT = 3


@pytest.fixture(scope="module")
def shared_stub() -> Iterator[ModelStub]:
    with ModelStub() as stub:
        yield stub


@pytest.fixture(scope="module")
def shared_server(
    shared_stub: ModelStub, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server with the tool `double` and with `LIMIT`."""
    write_tools(data_dir := tmp_path_factory.mktemp("calls"), TOOL)
    settings = {"max_tool_calls_per_round": LIMIT, "summarization_enabled": False}
    with RunningServer(data_dir, shared_stub.url, **settings) as server:
        yield server


def session_calling(api: Api, stub: ModelStub, *numbers: int) -> str:
    """Create a session whose model first calls the tool with each of `numbers`."""

    def resolve(prompt: Prompt) -> Reply:
        if prompt.messages[-1].role == "user":
            return Reply([ToolCalls([ToolCall("double", {"a": number}) for number in numbers])])
        return Reply([Text("Fine.")])

    settings = {"tools": ["double"], "execution_policy": "never_confirm"}
    return str(api.create_session(stub.add_model(resolve), tool_settings=settings)["session_id"])


@cases("count", [LIMIT, LIMIT + 2])
def test_calls_beyond_the_round_limit_are_dropped(api: Api, stub: ModelStub, count: int) -> None:
    session_id = session_calling(api, stub, *range(count))
    events = api.stream_message(session_id, "Hello!")
    messages = api.messages(session_id)
    assert len([event for event in events if event.type == "tool_result"]) == LIMIT
    warnings = [event.data for event in events if event.type == "warning"]
    assert [warning["code"] for warning in warnings] == ["TOOL_CALLS_LEFT_OUT"] * (count > LIMIT)
    assert all("MOCHI_MAX_TOOL_CALLS_PER_ROUND" in warning["message"] for warning in warnings)
    assert len(messages[1]["tool_calls"]) == LIMIT
    assert [message["role"] for message in messages] == [
        "user",
        "assistant",
        *["tool"] * LIMIT,
        "assistant",
    ]


def test_identical_calls_count_once_for_the_round_limit(api: Api, stub: ModelStub) -> None:
    events = api.stream_message(session_calling(api, stub, 1, 2, 3, 1, 2, 4, 1), "Hello!")
    assert [event.data["result"] for event in events if event.type == "tool_result"] == [
        "2",
        "4",
        "6",
        "2",
        "4",
        "2",
    ]
    (warning,) = [event.data["message"] for event in events if event.type == "warning"]
    assert warning.startswith(
        "The model made more than 3 distinct tool calls in one round. Skipped calls: 1."
    )


def test_repeated_calls_are_limited(api: Api, stub: ModelStub) -> None:
    events = api.stream_message(session_calling(api, stub, *[1, 2, 3] * 7), "Hello!")
    assert len([event for event in events if event.type == "tool_result"]) == 4 * LIMIT
    (warning,) = [event.data["message"] for event in events if event.type == "warning"]
    assert "Skipped calls: 9." in warning


def test_round_may_have_128_calls_by_default() -> None:
    setting = MochiServerSettings.model_fields["max_tool_calls_per_round"]
    assert setting.default == TurnRules().calls_per_round == 128
