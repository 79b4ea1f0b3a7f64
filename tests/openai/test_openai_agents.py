"""The OpenAI Agents SDK, over the Responses API (its default) and over chat completions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mochi_stub import Prompt, Reply, StubServer, ToolCall
from tests.support.server import RunningServer

if TYPE_CHECKING:  # only the worker that runs these tests imports the library
    from agents import Agent

pytestmark = pytest.mark.slow

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def resolve(prompt: Prompt) -> Reply:
    """Call the tool, then report its result."""
    last = prompt.messages[-1]
    return (
        Reply.of(f"I have {last.content}.")
        if last.role == "tool"
        else Reply.of(tool_calls=[ToolCall("look", {})])
    )


@pytest.fixture
def server(tmp_path: Path) -> Any:
    with StubServer(resolve=resolve, speed=0) as stub, RunningServer(tmp_path, stub.url) as server:
        yield server


@STREAMED
@pytest.mark.parametrize("api", ["responses", "chat"])
async def test_three_turns_with_tools(server: RunningServer, api: str, stream: bool) -> None:
    """Each turn sends the whole conversation."""
    history: list[Any] = []
    async with agent_of(server, api) as agent:
        for turn in range(3):
            result = await run(
                agent, [*history, {"role": "user", "content": str(turn)}], stream=stream
            )
            assert result.final_output == "I have seen."
            assert result.context_wrapper.usage.total_tokens > 0
            history = result.to_input_list()


@STREAMED
async def test_session_with_previous_response(server: RunningServer, stream: bool) -> None:
    """Each request sends only new items and the ID of the previous response."""
    session = str(server.api().create_session("mochi")["session_id"])
    previous = None
    async with agent_of(server, "responses", session) as agent:
        for turn in range(3):
            asks = (
                {"previous_response_id": previous}
                if previous
                else {"auto_previous_response_id": True}
            )
            result = await run(agent, str(turn), stream=stream, **asks)
            assert result.final_output == "I have seen."
            previous = result.last_response_id
    assert [m["role"] for m in server.api().messages(session)] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ] * 3


@asynccontextmanager
async def agent_of(
    server: RunningServer, api: str, session: str | None = None
) -> AsyncIterator[Agent[Any]]:
    from agents import Agent, ModelSettings, function_tool, set_tracing_disabled
    from agents.models.openai_provider import OpenAIProvider
    from openai import AsyncOpenAI

    set_tracing_disabled(True)  # traces are sent to OpenAI

    @function_tool
    def look() -> str:
        """Look somewhere."""
        return "seen"

    headers = {"X-Mochi-Session": session} if session else {}
    url = f"{server.url}/v1"
    async with AsyncOpenAI(
        base_url=url, api_key="any", max_retries=0, default_headers=headers
    ) as client:
        provider = OpenAIProvider(openai_client=client, use_responses=api == "responses")
        model, settings = provider.get_model("mochi"), ModelSettings(include_usage=True)
        yield Agent(
            "helper", instructions="Be brief.", model=model, model_settings=settings, tools=[look]
        )


async def run(agent: Agent[Any], text: Any, *, stream: bool, **asks: Any) -> Any:
    from agents import Runner

    if not stream:
        return await Runner.run(agent, text, **asks)
    result = Runner.run_streamed(agent, text, **asks)
    async for _ in result.stream_events():
        pass
    return result
