"""The command `llm`, with a model in its file `extra-openai-models.yaml`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner, Result
from llm.cli import cli

from mochi_stub import StubServer
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer
from tests.support.stub import chats

pytestmark = pytest.mark.slow

STREAMED = pytest.mark.parametrize("options", [["--no-stream"], []], ids=["whole", "streamed"])
TOOL = """
    def look(at: str) -> str:
        "Look somewhere."
        return f"seen {at}"
"""
MODEL = """
    - model_id: {name}
      model_name: {name}
      api_base: {url}/v1
      supports_schema: true
      supports_tools: true
      reasoning: true
    - model_id: {name}-responses
      model_name: {name}
      api_base: {url}/v1
      responses: true
      supports_schema: true
      supports_tools: true
      reasoning: true
"""
MODELS = pytest.mark.parametrize("model", ["mochi", "mochi-responses"])


class Command:
    """The command, run in this process, because its start takes two seconds."""

    def __init__(self, server: RunningServer, folder: Path) -> None:
        self._environment = {"LLM_USER_PATH": str(folder)}
        models = [dedent(MODEL).format(name=name, url=server.url) for name in ("mochi", "nowhere")]
        (folder / "extra-openai-models.yaml").write_text("".join(models))

    def __call__(self, *arguments: str) -> str:
        """Run the command and return its output."""
        result = self.run(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def run(self, *arguments: str) -> Result:
        return CliRunner(env=self._environment).invoke(cli, arguments)


@pytest.fixture
def llm(server: RunningServer, tmp_path: Path) -> Command:
    return Command(server, tmp_path)


@MODELS
@STREAMED
def test_conversation_is_continued(
    llm: Command, stub: StubServer, model: str, options: list[str]
) -> None:
    assert llm("-m", model, "-s", "Be kind.", *options, "Hello!").endswith("Hello!\n")
    assert llm("--continue", *options, "Again!").endswith("Again!\n")
    sent = chats(stub)[-1].body
    assert [message["role"] for message in sent["messages"]][-3:] == ["user", "assistant", "user"]


@MODELS
@STREAMED
def test_round_trip_of_a_tool(
    llm: Command, stub: StubServer, model: str, options: list[str]
) -> None:
    text = instruct(calls("look", at="sky"), words(3))
    assert llm("-m", model, "--functions", dedent(TOOL), *options, text).strip()
    sent = chats(stub)[-1].body
    assert [(message["role"], message["content"]) for message in sent["messages"]][-1] == (
        "tool",
        "seen sky",
    )


@MODELS
@STREAMED
def test_answer_matches_the_schema(llm: Command, model: str, options: list[str]) -> None:
    answer = json.loads(llm("-m", model, "--schema", "name, people int", *options, "Name a city."))
    assert [type(answer[name]) for name in ("name", "people")] == [str, int]


def test_models_are_listed(llm: Command, server: RunningServer) -> None:
    names = llm("openai", "endpoint", f"{server.url}/v1", "--models").splitlines()
    assert {"mochi:latest", "mochi-embed:latest", "agent:helper"} <= set(names)


@MODELS
@STREAMED
def test_errors_are_printed(llm: Command, model: str, options: list[str]) -> None:
    result = llm.run("-m", model.replace("mochi", "nowhere"), *options, "Hello!")
    assert result.exit_code == 1
    assert "There is no chat model 'nowhere'" in result.stderr


@pytest.mark.parametrize(
    ("status", "options"), [(429, ["--no-stream"]), (503, [])], ids=["whole", "streamed"]
)
def test_overload_is_retried(llm: Command, status: int, options: list[str]) -> None:
    began = time.monotonic()
    text = f"Busy {status}: llm {options}"
    assert llm("-m", "mochi", *options, text).endswith(f"{text}\n")
    assert time.monotonic() - began >= 1
