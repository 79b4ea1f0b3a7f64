"""The pytest fixture `mochi_stub`, and a test run of another project that uses it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import mochi_stub as mochi_stub_package
from mochi_stub import Prompt, Reply, Text, ToolCall
from mochi_stub.pytest_plugin import mochi_stub
from mochi_stub.server import ScriptedStub
from tests.stub.requests import send_message, send_request
from tests.support.cases import cases

__all__ = ["mochi_stub"]

GEMINI_TEXT = {"model": "models/mochi-embed", "content": {"parts": [{"text": "a"}]}}
OTHER_PROJECT = """
import json
import sys
from urllib.request import Request, urlopen

import pytest


def send_message(stub, text):
    body = {"model": "mochi", "messages": [{"role": "user", "content": text}], "stream": False}
    with urlopen(Request(f"{stub.url}/api/chat", json.dumps(body).encode())) as response:
        return json.load(response)["message"]["content"]


def test_nothing_is_imported_until_the_fixture_is_used():
    assert {"uvicorn", "orjson", "yaml", "mochi_stub.server"}.isdisjoint(sys.modules)


@pytest.mark.parametrize("number", range(2))
def test_each_test_has_a_server_of_its_own(mochi_stub, number):
    mochi_stub.script(f"scripted {number}")
    assert send_message(mochi_stub, "hello") == f"scripted {number}"
    assert [request.path for request in mochi_stub.requests] == ["/api/chat"]
"""
USED_UP = """
from urllib.error import HTTPError

import pytest
from test_other_project import send_message


def test_more_requests_than_replies(mochi_stub):
    mochi_stub.script("once")
    assert send_message(mochi_stub, "hello") == "once"
    with pytest.raises(HTTPError):
        send_message(mochi_stub, "again")


def test_without_a_script(mochi_stub):
    assert send_message(mochi_stub, "hello").endswith("hello")
"""


def answer_to(stub: ScriptedStub, text: str) -> tuple[str, str]:
    answer = send_message(stub, text, stream=False).json
    return answer["message"]["content"], answer["done_reason"]


def test_queued_replies_are_used_before_the_defaults(mochi_stub: ScriptedStub) -> None:
    def repeated(prompt: Prompt) -> Reply:
        return Reply.of(prompt.user_text * 2)

    mochi_stub.script("Hello.", Reply.of("Cut", finish="length"))
    mochi_stub.script(repeated, lambda _: None, lambda _: None)
    assert answer_to(mochi_stub, "a") == ("Hello.", "stop")
    assert answer_to(mochi_stub, "a") == ("Cut", "length")
    assert answer_to(mochi_stub, "ab") == ("abab", "stop")
    for _ in range(2):
        assert answer_to(mochi_stub, "told")[0].endswith(" told")
    assert [request.status for request in mochi_stub.requests] == [200] * 5


def test_functions_can_return_text_and_invalid_values_fail(mochi_stub: ScriptedStub) -> None:
    mochi_stub.script(lambda prompt: prompt.user_text.upper())
    assert answer_to(mochi_stub, "abc")[0] == "ABC"
    nonsense: Any = 5
    with pytest.raises(TypeError, match="not 5"):
        mochi_stub.script(nonsense)
    mochi_stub.script(lambda _: nonsense)
    answer = send_message(mochi_stub, "abc", stream=False)
    assert (answer.status, "not 5" in answer.json["error"]) == (500, True)


def test_tool_calls_can_be_scripted(mochi_stub: ScriptedStub) -> None:
    mochi_stub.script(
        ToolCall("look", {"at": "Oslo"}), Reply.of("Wait.", tool_calls=[ToolCall("look")])
    )
    for expected in ({"at": "Oslo"}, {}):
        lines = send_message(mochi_stub, "a").lines
        (call,) = [call for line in lines for call in line["message"].get("tool_calls", ())]
        assert (call["function"]["name"], call["function"]["arguments"]) == ("look", expected)
    mochi_stub.script(ToolCall("look"))
    assert "tool_calls" in send_message(mochi_stub, "a", stream=False).json["message"]


@cases(
    ("path", "body"),
    [
        ("/v1/completions", {"model": "mochi", "prompt": ["a", "b"], "n": 2}),
        ("/v1/embeddings", {"model": "mochi-embed", "input": ["a", "b"]}),
        ("/api/embed", {"model": "mochi-embed", "input": ["a", "b"]}),
        ("/v1beta/models/mochi-embed:batchEmbedContents", {"requests": [GEMINI_TEXT] * 2}),
    ],
)
def test_request_with_several_texts_takes_one_reply(
    mochi_stub: ScriptedStub, path: str, body: dict[str, Any]
) -> None:
    reply = Reply([Text("first")], embedding=(1.0, 0.0))
    mochi_stub.script(reply, "second")
    answer = send_request(mochi_stub, "POST", path, body)
    assert answer.status == 200
    assert b"second" not in answer.body
    assert answer_to(mochi_stub, "a")[0] == "second"
    assert send_request(mochi_stub, "POST", path, body).status == 500
    assert len(mochi_stub.unscripted) == 1
    mochi_stub.unscripted.clear()


def test_scripted_function_gets_each_text_of_a_request(mochi_stub: ScriptedStub) -> None:
    mochi_stub.script(lambda prompt: prompt.user_text * 2)
    body = {"model": "mochi", "prompt": ["a", "b"]}
    answer = send_request(mochi_stub, "POST", "/v1/completions", body)
    assert [choice["text"] for choice in answer.json["choices"]] == ["aa", "bb"]


@cases(
    ("wrong", "problem"),
    [
        (Reply("Hello"), "not 'H'"),  # type: ignore[arg-type]
        (None, "not None"),
        ({"content": "x"}, "must be a text, a ToolCall or a Reply"),
    ],
)
def test_invalid_reply_fails_when_it_is_scripted(
    mochi_stub: ScriptedStub, wrong: Any, problem: str
) -> None:
    with pytest.raises(TypeError, match=problem):
        mochi_stub.script("valid", wrong)
    mochi_stub.script(lambda _: None)
    assert answer_to(mochi_stub, "echo")[0].endswith(" echo")


def test_public_names_are_listed() -> None:
    assert dir(mochi_stub_package) == sorted(mochi_stub_package.__all__)
    assert "ToolCall" in dir(mochi_stub_package)


def test_server_starts_in_less_than_a_tenth_of_a_second() -> None:
    took = []
    for _ in range(3):
        began = time.process_time()
        with ScriptedStub() as stub:
            took.append(time.process_time() - began)
            assert stub.exchanges() == []
    assert min(took) < 0.1


@pytest.mark.parametrize(
    "options", [(), pytest.param(("-p", "xdist", "-n", "2"), marks=pytest.mark.slow)]
)
def test_fixture_works_in_another_test_run(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "conftest.py").write_text("from mochi_stub.pytest_plugin import mochi_stub\n")
    (tmp_path / "test_other_project.py").write_text(OTHER_PROJECT)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        *options,
        "-W",
        "error",
        "-p",
        "no:cacheprovider",
    ]
    env = {
        **os.environ,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }  # the plugins of this project would be loaded
    ran = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.returncode, "3 passed" in ran.stdout) == (0, True), ran.stdout + ran.stderr


def test_test_that_uses_up_its_script_fails(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from mochi_stub.pytest_plugin import mochi_stub\n")
    (tmp_path / "test_other_project.py").write_text(OTHER_PROJECT)
    (tmp_path / "test_used_up.py").write_text(USED_UP)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_used_up.py"]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 1
    assert (
        "Requests without a scripted reply: 1. The first one has the message 'again'." in ran.stdout
    )
    assert "2 passed, 1 error" in ran.stdout
