"""Pydantic AI as a client of the OpenAI-compatible API."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mochi_stub import Prompt, Reply, StubServer, ToolCall
from tests.support.server import RunningServer

if TYPE_CHECKING:  # only the worker that runs these tests imports the libraries
    from openai import AsyncOpenAI
    from pydantic_ai.messages import ModelMessage

pytestmark = pytest.mark.slow


def resolve(prompt: Prompt) -> Reply:
    """Call the tool, then report its result.

    A script is needed because the library removes the marks of instruction blocks.
    """
    last = prompt.messages[-1]
    if last.role == "tool":
        return Reply.of(f"I have {last.content}.")
    return Reply.of(tool_calls=[ToolCall("look", {"at": int(last.content)})])


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_five_streamed_turns_with_tools(tmp_path: Path, api: str) -> None:
    from openai import AsyncOpenAI

    with StubServer(resolve=resolve, speed=0) as stub, RunningServer(tmp_path, stub.url) as server:
        mochi = server.api()
        session = mochi.create_session("mochi")["session_id"]
        client = AsyncOpenAI(
            base_url=f"{server.url}/v1",
            api_key="any",
            max_retries=0,
            default_headers={"X-Mochi-Session": session},
        )
        async with client:
            outputs = await five_turns(client, api)
        messages = mochi.messages(session)
    assert outputs == [f"I have seen {turn}." for turn in range(5)]
    assert [message["role"] for message in messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ] * 5
    assert [message["content"] for message in messages[3::4]] == outputs


async def five_turns(client: AsyncOpenAI, api: str) -> list[str]:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel if api == "chat" else OpenAIResponsesModel
    agent = Agent(
        model("mochi", provider=OpenAIProvider(openai_client=client)), instructions="Be brief."
    )

    @agent.tool_plain
    def look(at: int) -> str:
        """Look somewhere."""
        return f"seen {at}"

    outputs: list[str] = []
    history: list[ModelMessage] = []
    for turn in range(5):
        async with agent.run_stream(str(turn), message_history=history) as streamed:
            outputs.append(await streamed.get_output())
            history = streamed.all_messages()
    return outputs
