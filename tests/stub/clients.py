"""Official clients of all providers, connected to a stub, and readers of replies in a common form.

The readers use plain HTTP, because the import of the official clients takes seconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_args

from typing_extensions import get_type_hints

from mochi_stub import Prompt, Reply, StubServer
from tests.stub.requests import send_request
from tests.support.lazy import LazyModule

if TYPE_CHECKING:
    import anthropic
    import openai
    from google import genai
    from google.genai import types
else:
    anthropic = LazyModule("anthropic")
    openai = LazyModule("openai")
    genai = LazyModule("google.genai")
    types = LazyModule("google.genai.types")


MODEL = "mochi"


@contextmanager
def stub_replying(reply: Reply | Callable[[Prompt], Reply | None]) -> Iterator[StubServer]:
    """Start a stub whose models always send this reply."""
    with StubServer(resolve=reply if callable(reply) else lambda _: reply, speed=0) as stub:
        yield stub


@contextmanager
def openai_client(stub: StubServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{stub.url}/v1", api_key="sk-secret", max_retries=0) as client:
        yield client


@contextmanager
def anthropic_client(stub: StubServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=stub.url, api_key="sk-secret", max_retries=0) as client:
        yield client


@contextmanager
def gemini_client(stub: StubServer, version: str | None = None) -> Iterator[genai.Client]:
    """Return a client with its default settings, except for the address."""
    options = types.HttpOptions(base_url=stub.url, api_version=version)
    with genai.Client(api_key="sk-secret", http_options=options) as client:
        yield client


def type_names(union: Any) -> set[str]:
    """Return the values of the field `type` of all classes in a client's union."""
    names: set[str] = set()
    for member in get_args(union):
        if not isinstance(member, type):
            continue
        hint = get_type_hints(member)["type"]
        names.update(name for name in get_args(hint) if isinstance(name, str))
    return names


@dataclass
class ClientReply:
    """Reply as a client presents it."""

    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    finish: str | None = None
    usage: tuple[int, int] | None = None


def ollama_reply(stub: StubServer, text: str, *, stream: bool, **options: Any) -> ClientReply:
    """Return the reply of Ollama's chat."""
    request: dict[str, Any] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": text}],
        "stream": stream,
    }
    tools = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}]
    answer = send_request(
        stub, "POST", "/api/chat", {**request, "tools": tools, "options": options}
    )
    assert answer.status == 200, answer.body
    received = ClientReply()
    for line in answer.lines:
        message = line["message"]
        calls = [call["function"] for call in message.get("tool_calls", ())]
        received.text += message["content"]
        received.reasoning += message.get("thinking", "")
        received.calls += [(call["name"], call["arguments"]) for call in calls]
        if line["done"]:
            received.finish = line["done_reason"]
            received.usage = (line["prompt_eval_count"], line["eval_count"])
    return received


def _send(stub: StubServer, path: str, request: Mapping[str, Any]) -> list[Any]:
    """Return the objects of a response: of the stream if there is one, else the whole body."""
    answer = send_request(stub, "POST", path, request)
    assert answer.status == 200, answer.body
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return [answer.json]
    lines = [
        line.removeprefix(b"data: ")
        for line in answer.body.splitlines()
        if line.startswith(b"data: ")
    ]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


def chat_reply(stub: StubServer, text: str, *, stream: bool, **options: Any) -> ClientReply:
    """Return the reply of OpenAI's chat completions."""
    request: dict[str, Any] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": text}],
        "stream": stream,
    }
    received = ClientReply()
    calls: dict[int, tuple[str, str]] = {}
    for chunk in _send(
        stub,
        "/v1/chat/completions",
        {**request, "stream_options": {"include_usage": True}, **options},
    ):
        if usage := chunk["usage"]:
            received.usage = (usage["prompt_tokens"], usage["completion_tokens"])
        for choice in chunk["choices"]:
            message = choice["delta" if stream else "message"]
            assert message.get("reasoning") == message.get("reasoning_content")
            received.text += message.get("content") or ""
            received.reasoning += message.get("reasoning") or ""
            received.finish = choice["finish_reason"]
            for position, call in enumerate(message.get("tool_calls", ())):
                index = call["index"] if stream else position
                name, arguments = calls.get(index, ("", ""))
                function = call["function"]
                calls[index] = (name + function.get("name", ""), arguments + function["arguments"])
    received.calls = [(name, json.loads(arguments)) for name, arguments in calls.values()]
    return received


def response_reply(stub: StubServer, text: str, *, stream: bool, **options: Any) -> ClientReply:
    """Return the reply of OpenAI's Responses API. A stream is assembled from its deltas."""
    objects = _send(
        stub, "/v1/responses", {"model": MODEL, "input": text, "stream": stream, **options}
    )
    whole = _whole_response(objects[-1]["response"] if stream else objects[0])
    if not stream:
        return whole
    received, arguments = ClientReply(finish=whole.finish, usage=whole.usage), ""
    for event in objects:
        if event["type"] == "response.output_text.delta":
            received.text += event["delta"]
        elif event["type"] == "response.reasoning_summary_text.delta":
            received.reasoning += event["delta"]
        elif event["type"] == "response.function_call_arguments.delta":
            arguments += event["delta"]
        elif (
            event["type"] == "response.output_item.done"
            and event["item"]["type"] == "function_call"
        ):
            received.calls.append((event["item"]["name"], json.loads(arguments)))
            arguments = ""
    assert received == whole
    return received


def _whole_response(answer: Any) -> ClientReply:
    received = ClientReply(
        usage=(answer["usage"]["input_tokens"], answer["usage"]["output_tokens"])
    )
    for item in answer["output"]:
        if item["type"] == "reasoning":
            received.reasoning += "".join(part["text"] for part in item["summary"])
        elif item["type"] == "function_call":
            received.calls.append((item["name"], json.loads(item["arguments"])))
        else:
            received.text += "".join(part["text"] for part in item["content"])
    details = answer["incomplete_details"]
    received.finish = details["reason"] if details else answer["status"]
    return received


def message_reply(stub: StubServer, text: str, *, stream: bool, **options: Any) -> ClientReply:
    """Return the reply of Anthropic's Messages API."""
    request: dict[str, Any] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 10_000,
    }
    objects = _send(stub, "/v1/messages", {**request, "stream": stream, **options})
    blocks: list[Any] = [] if stream else objects[0]["content"]
    ends = [event for event in objects if event["type"] == "message_delta"] if stream else objects
    for event in objects if stream else ():
        if event["type"] == "content_block_start":
            blocks.append({**event["content_block"], "json": ""})
        elif event["type"] == "content_block_delta":
            delta, block = event["delta"], blocks[event["index"]]
            for name, field_name in (
                ("text", "text"),
                ("thinking", "thinking"),
                ("partial_json", "json"),
            ):
                block[field_name] = block.get(field_name, "") + delta.get(name, "")
    (end,) = ends
    finish = (end["delta"] if stream else end)["stop_reason"]
    received = ClientReply(
        finish=finish, usage=(end["usage"]["input_tokens"], end["usage"]["output_tokens"])
    )
    for block in blocks:
        if block["type"] == "tool_use":
            received.calls.append(
                (block["name"], json.loads(block["json"]) if stream else block["input"])
            )
        received.text += block["text"] if block["type"] == "text" else ""
        received.reasoning += block["thinking"] if block["type"] == "thinking" else ""
    return received


def gemini_reply(stub: StubServer, text: str, *, stream: bool, **options: Any) -> ClientReply:
    """Return the reply of Gemini, with thoughts requested."""
    config = {"thinkingConfig": {"includeThoughts": True}, **options}
    request = {"contents": [{"parts": [{"text": text}]}], "generationConfig": config}
    verb = "streamGenerateContent?alt=sse" if stream else "generateContent"
    received = ClientReply()
    for answer in _send(stub, f"/v1beta/models/{MODEL}:{verb}", request):
        (candidate,) = answer["candidates"]
        for part in candidate["content"]["parts"]:
            if call := part.get("functionCall"):
                received.calls.append((call["name"], call["args"]))
            elif part.get("thought"):
                received.reasoning += part["text"]
            else:
                received.text += part["text"]
        received.finish = candidate.get("finishReason")
        usage = answer.get("usageMetadata")
        received.usage = (
            (usage["promptTokenCount"], usage["candidatesTokenCount"]) if usage else None
        )
    return received
