"""Answers with more tool calls than a round may have."""

from pathlib import Path

import pytest

from mochi_server.chat.tool_loop import ToolLoopLimits
from mochi_server.config import MochiServerSettings
from mochi_stub import StubServer
from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.reply import Reply, Text, ToolCalls
from tests.support.server import RunningServer
from tests.support.tools import write_tools

pytestmark = pytest.mark.two_servers

TOOL = '''
    def double(a: int) -> int:
        """Double a number."""
        return 2 * a

    __all__ = ["double"]
    __read_only__ = ["double"]
'''


def calling(*numbers: int) -> StubServer:
    """Start a stub whose first answer calls the tool with each of `numbers`."""

    def resolve(prompt: Prompt) -> Reply:
        if prompt.messages[-1].role == "user":
            return Reply([ToolCalls([ToolCall("double", {"a": number}) for number in numbers])])
        return Reply([Text("Fine.")])

    return StubServer(speed=0, resolve=resolve)


@pytest.mark.parametrize(("count", "limit", "run"), [(3, 3, 3), (5, 3, 3)])
def test_calls_beyond_the_round_limit_are_dropped(tmp_path: Path, count: int, limit: int, run: int) -> None:
    write_tools(tmp_path, TOOL)
    settings = {"tools": ["double"], "execution_policy": "never_confirm"}
    with calling(*range(count)) as stub, RunningServer(tmp_path, stub.url, max_tool_calls_per_round=limit) as server:
        api = server.api()
        session_id = api.create_session("mochi", tool_settings=settings)["session_id"]
        events = api.stream_message(session_id, "Hello!")
        messages = api.messages(session_id)
    assert len([event for event in events if event.type == "tool_result"]) == run
    warnings = [event.data for event in events if event.type == "warning"]
    assert [warning["code"] for warning in warnings] == ["TOOL_CALLS_LEFT_OUT"] * (count > limit)
    assert all("MOCHI_MAX_TOOL_CALLS_PER_ROUND" in warning["message"] for warning in warnings)
    assert len(messages[1]["tool_calls"]) == run
    assert [message["role"] for message in messages] == ["user", "assistant", *["tool"] * run, "assistant"]


def test_identical_calls_count_once_for_the_round_limit(tmp_path: Path) -> None:
    write_tools(tmp_path, TOOL)
    settings = {"tools": ["double"], "execution_policy": "never_confirm"}
    with calling(1, 2, 1, 2, 3, 1) as stub, RunningServer(tmp_path, stub.url, max_tool_calls_per_round=2) as server:
        api = server.api()
        events = api.stream_message(api.create_session("mochi", tool_settings=settings)["session_id"], "Hello!")
    assert [event.data["result"] for event in events if event.type == "tool_result"] == ["2", "4", "2", "4", "2"]
    (warning,) = [event.data["message"] for event in events if event.type == "warning"]
    assert warning.startswith("The model made more than 2 distinct tool calls in one round. Skipped calls: 1.")


def test_repeated_calls_are_limited(tmp_path: Path) -> None:
    write_tools(tmp_path, TOOL)
    settings = {"tools": ["double"], "execution_policy": "never_confirm"}
    with calling(*[1, 2] * 10) as stub, RunningServer(tmp_path, stub.url, max_tool_calls_per_round=2) as server:
        api = server.api()
        events = api.stream_message(api.create_session("mochi", tool_settings=settings)["session_id"], "Hello!")
    assert len([event for event in events if event.type == "tool_result"]) == 8
    (warning,) = [event.data["message"] for event in events if event.type == "warning"]
    assert "Skipped calls: 12." in warning


def test_round_may_have_128_calls_by_default() -> None:
    setting = MochiServerSettings.model_fields["max_tool_calls_per_round"]
    assert setting.default == ToolLoopLimits().calls_per_round == 128
