"""Real packages as clients of `mochi-server --test-mode`. They are too large for CI.

Run this script with the packages:

    uv run --with agent-framework-openai --with openai-agents --with instructor --with dspy \
        python -m tests.openai.real_packages
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from tests.support.ports import free_port

MODEL = "mochi-demo"


@contextmanager
def test_mode() -> Iterator[str]:
    """Run the server and return the URL of its OpenAI routes."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "mochi_server",
        "--test-mode",
        "--stub-speed",
        "0",
        "--port",
        str(port),
    ]
    with TemporaryDirectory() as folder:
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
        try:
            for _ in range(300):
                try:
                    if httpx.get(f"http://127.0.0.1:{port}/health").is_success:
                        break
                except httpx.TransportError:
                    time.sleep(0.1)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            process.wait()


def get_weather(city: str) -> str:
    """Return the weather in a city."""
    return f"It is sunny in {city}."


def agent_framework(url: str) -> str:
    """The default agent continues a conversation by the ID of the previous response."""
    from agent_framework import Agent
    from agent_framework.openai import OpenAIChatClient

    async def converse() -> str:
        agent: Any = Agent(
            OpenAIChatClient(model=MODEL, base_url=url, api_key="any"), tools=[get_weather]
        )
        session = agent.create_session()
        first = await agent.run("Use get_weather.", session=session)
        second = await agent.run("And now?", session=session)
        assert "sunny" in first.text, first.text
        assert str(session.service_session_id).startswith("resp_"), session.service_session_id
        return f"{first.text} | {second.text}"

    return asyncio.run(converse())


def openai_agents(url: str) -> str:
    """The runner sends only new items and the ID of the previous response."""
    from agents import Agent, Runner, function_tool, set_tracing_disabled
    from agents.models.openai_provider import OpenAIProvider

    async def converse() -> str:
        provider = OpenAIProvider(base_url=url, api_key="any", use_responses=True)
        agent = Agent("helper", model=provider.get_model(MODEL), tools=[function_tool(get_weather)])
        result = await Runner.run(agent, "Use get_weather.", auto_previous_response_id=True)
        assert len(result.raw_responses) == 2
        return str(result.final_output)

    set_tracing_disabled(True)  # traces are sent to OpenAI
    return asyncio.run(converse())


def instructor(url: str) -> str:
    """The default mode for Ollama puts the schema into the prompt."""
    from instructor import from_provider
    from pydantic import BaseModel

    class Person(BaseModel):
        name: str
        age: int

    client: Any = from_provider(f"ollama/{MODEL}", base_url=url)
    messages = [{"role": "user", "content": "Ada Lovelace is 36 years old."}]
    person: Any = client.create(response_model=Person, messages=messages, max_retries=0)
    assert isinstance(person, Person)
    return f"{client.mode}: {person!r}"


def dspy(url: str) -> str:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # LiteLLM downloads a price list otherwise
    import dspy as package

    model = package.LM(f"openai/{MODEL}", api_base=url, api_key="any", cache=False)
    with package.context(lm=model):
        answer = package.Predict("question -> answer: str, score: int")(
            question="Why is the sky blue?"
        )
    assert isinstance(answer.score, int)
    return repr(answer.toDict())


PACKAGES = {
    agent_framework: "agent-framework-openai",
    openai_agents: "openai-agents",
    instructor: "instructor",
    dspy: "dspy",
}


def main() -> int:
    failures = 0
    with test_mode() as url:
        for client, package in PACKAGES.items():
            name = f"{package} {version(package)}"
            try:
                print(f"ok      {name}: {client(url)}", flush=True)
            except Exception:
                failures += 1
                print(f"failed  {name}: {traceback.format_exc(limit=-2)}", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main())
