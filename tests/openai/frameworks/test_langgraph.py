"""Agents of LangChain and LangGraph, over each of the three routes for conversations."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import create_react_agent

from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer

pytestmark = pytest.mark.slow

ROUTES = ["chat completions", "responses", "messages"]


def chat_model(server: RunningServer, route: str) -> BaseChatModel:
    if route == "messages":
        return ChatAnthropic(model_name="mochi", base_url=server.url, api_key="any")
    responses = route == "responses"
    return ChatOpenAI(
        model="mochi", base_url=f"{server.url}/v1", api_key="any", use_responses_api=responses
    )


class TestMessages(ChatModelIntegrationTests):
    @pytest.fixture(autouse=True)
    def _server(self, server: RunningServer) -> None:
        self.url = server.url

    @property
    def chat_model_class(self) -> type[ChatAnthropic]:
        return ChatAnthropic

    @property
    def chat_model_params(self) -> dict[str, Any]:
        return {"model": "mochi-demo", "base_url": self.url, "api_key": "any"}

    @property
    def model_override_value(self) -> str:
        return "mochi"


@pytest.mark.parametrize("create", [create_agent, create_react_agent])
@pytest.mark.parametrize("route", ROUTES)
def test_agent_writes_a_file_and_continues(
    server: RunningServer, tmp_path: Path, route: str, create: Any
) -> None:
    file = tmp_path / "notes.txt"

    def write_file(path: str, content: str) -> str:
        """Write a file."""
        Path(path).write_text(content)
        return "Written."

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LangGraph deprecates `create_react_agent`
        agent = create(chat_model(server, route), [write_file], checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "1"}}
    text = instruct(calls("write_file", path=str(file), content="periwinkle"), words(2))
    first = agent.invoke({"messages": [("user", text)]}, thread)["messages"]
    assert file.read_text() == "periwinkle"
    assert [message.type for message in first] == ["human", "ai", "tool", "ai"]
    assert first[-1].text
    question = {"messages": [("user", "And now?")]}
    chunks = [chunk for chunk, _ in agent.stream(question, thread, stream_mode="messages")]
    assert "And now?" in "".join(chunk.text for chunk in chunks)
    later = agent.get_state(thread).values["messages"]
    assert [message.type for message in later] == ["human", "ai", "tool", "ai", "human", "ai"]
