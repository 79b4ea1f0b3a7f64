"""Text completions (`/v1/completions`) with the official client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mochi_stub import StubServer
from tests.support.cases import cases
from tests.support.instructions import instruct, words
from tests.support.server import RunningServer
from tests.support.stub import chats

if TYPE_CHECKING:
    import openai


def test_prompt_is_completed(client: openai.OpenAI, stub: StubServer) -> None:
    answer = client.completions.create(
        model="mochi", prompt="Hello!", max_tokens=2000, temperature=0.5, stop=["END"]
    )
    (choice,) = answer.choices
    assert choice.text.endswith("Hello!")
    assert (answer.object, choice.finish_reason) == ("text_completion", "stop")
    assert answer.id.startswith("cmpl-")
    assert answer.usage
    assert answer.usage.completion_tokens > 0
    body: Any = chats(stub)[-1].body
    assert body["messages"] == [{"role": "user", "content": "Hello!"}]
    assert body["options"].pop("num_ctx") >= 8192
    assert body["options"] == {"temperature": 0.5, "stop": ["END"], "num_predict": 2000}


def test_stream_has_text_then_usage(client: openai.OpenAI) -> None:
    whole = client.completions.create(model="mochi", prompt="Hello!")
    chunks = list(
        client.completions.create(
            model="mochi", prompt=["Hello!"], stream=True, stream_options={"include_usage": True}
        )
    )
    *texts, last = chunks
    assert "".join(chunk.choices[0].text for chunk in texts) == whole.choices[0].text
    assert [chunk.choices[0].finish_reason for chunk in texts] == [None] * (len(texts) - 1) + [
        "stop"
    ]
    assert (last.choices, last.usage) == ([], whole.usage)
    assert {chunk.object for chunk in chunks} == {"text_completion"}


def test_reasoning_is_left_out(client: openai.OpenAI) -> None:
    prompt = instruct(words(2), reasoning=3)
    extra: Any = {"reasoning_effort": "low"}
    text = client.completions.create(model="mochi", prompt=prompt, extra_body=extra).choices[0].text
    chunks = client.completions.create(model="mochi", prompt=prompt, extra_body=extra, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == text
    assert text.split() == ["ID", "lorem", "ipsum", "ID"]


def test_session_stores_the_prompt(client: openai.OpenAI, server: RunningServer) -> None:
    api = server.client
    session = str(api.create_session("mochi")["session_id"])
    client.completions.create(
        model="mochi", prompt="Hello!", extra_headers={"X-Mochi-Session": session}
    )
    assert [message["role"] for message in api.messages(session)] == ["user", "assistant"]


@cases(
    ("asks", "param"),
    [
        ({"suffix": "end"}, "suffix"),
        ({"echo": True}, "echo"),
        ({"n": 2}, "n"),
        ({"best_of": 2}, "best_of"),
        ({"logprobs": 0}, "logprobs"),
        ({"extra_body": {"response_format": {"type": "json_object"}}}, "response_format"),
        ({"extra_body": {"format": "json"}}, "format"),
        ({"extra_body": {"tools": [{"type": "function", "function": {"name": "f"}}]}}, "tools"),
        ({"extra_body": {"max_completion_tokens": 5}}, "max_completion_tokens"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"prompt": " ", "extra_headers": {"X-Mochi-Session": "new"}}, "prompt"),
    ],
    ids=str,
)
def test_unsupported_requests_are_refused(
    client: openai.OpenAI, server: RunningServer, asks: Any, param: str
) -> None:
    import openai

    if "extra_headers" in asks:
        asks["extra_headers"]["X-Mochi-Session"] = server.client.create_session("mochi")[
            "session_id"
        ]
    request: Any = {"model": "mochi", "prompt": "Hello!", **asks}
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(**request)
    assert caught.value.param == param


@cases("value", [0, 1, True, "yes"])
def test_error_for_log_probabilities_names_the_supported_value(
    client: openai.OpenAI, value: Any
) -> None:
    """OpenAI's API has a number here, with which 0 returns log probabilities, too."""
    import openai

    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="mochi", prompt="Hello!", logprobs=value)
    message = "logprobs: must be false, or left out: text completions have no log probabilities"
    assert caught.value.body["message"] == message
    client.completions.create(model="mochi", prompt="Hello!", extra_body={"logprobs": False})
