"""Pydantic AI's default output, which requires a tool call, and its prompted output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, Field
from pydantic_ai import Agent, PromptedOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.ollama import OllamaProvider
from pydantic_ai.providers.openai import OpenAIProvider

from mochi_stub import StubServer

pytestmark = pytest.mark.slow
KEY = "sk-secret"
MODELS: dict[str, Callable[[str, str], Any]] = {
    "openai": lambda url, name: OpenAIChatModel(
        name, provider=OpenAIProvider(f"{url}/v1", api_key=KEY)
    ),
    "responses": lambda url, name: OpenAIResponsesModel(
        name, provider=OpenAIProvider(f"{url}/v1", api_key=KEY)
    ),
    "ollama": lambda url, name: OpenAIChatModel(
        name, provider=OllamaProvider(f"{url}/v1", api_key=KEY)
    ),
    "anthropic": lambda url, name: AnthropicModel(
        name, provider=AnthropicProvider(api_key=KEY, base_url=url)
    ),
    "gemini": lambda url, name: GoogleModel(
        name, provider=GoogleProvider(api_key=KEY, base_url=url)
    ),
}


class City(BaseModel):
    name: str = Field(pattern="^[A-Z][a-z]+$")
    inhabitants: int = Field(ge=1000)
    districts: list[str] = Field(min_length=2)


@pytest.mark.parametrize("provider", MODELS)
async def test_prompted_output(packaged_stub: StubServer, provider: str) -> None:
    agent = Agent(
        MODELS[provider](packaged_stub.url, "mochi-demo"),
        output_type=PromptedOutput(City),
        retries=0,
    )
    result = await agent.run("Describe a city.")
    assert len(result.output.districts) >= 2


class Unknown(BaseModel):
    reason: str


@pytest.mark.parametrize("name", ["mochi", "mochi-demo", "thinker"])
@pytest.mark.parametrize("provider", MODELS)
async def test_default_output(packaged_stub: StubServer, provider: str, name: str) -> None:
    agent = Agent(MODELS[provider](packaged_stub.url, name), output_type=City)
    result = await agent.run("Describe a city.")
    assert len(result.output.districts) >= 2


@pytest.mark.parametrize("provider", MODELS)
async def test_streamed_output(packaged_stub: StubServer, provider: str) -> None:
    agent = Agent(MODELS[provider](packaged_stub.url, "mochi"), output_type=City)
    async with agent.run_stream("Describe a city.") as result:
        assert (await result.get_output()).inhabitants >= 1000


@pytest.mark.parametrize("provider", MODELS)
async def test_function_tool_runs_before_the_output(
    packaged_stub: StubServer, provider: str
) -> None:
    agent = Agent(MODELS[provider](packaged_stub.url, "mochi"), output_type=City)
    seen: list[str] = []

    @agent.tool_plain
    def look_up(name: str) -> str:
        """Look up a city."""
        seen.append(name)
        return "found"

    result = await agent.run("Describe a city.")
    assert (len(seen), type(result.output)) == (1, City)


@pytest.mark.parametrize("provider", MODELS)
async def test_one_of_two_outputs(packaged_stub: StubServer, provider: str) -> None:
    model = MODELS[provider](packaged_stub.url, "mochi")
    agent: Agent[None, City | Unknown] = Agent(model, output_type=[City, Unknown])
    assert isinstance((await agent.run("Describe a city.")).output, (City, Unknown))
