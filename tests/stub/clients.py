"""Official clients of all providers, connected to a stub, and a common form of their replies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mochi_stub import Prompt, Reply, StubServer
from tests.support.lazy import LazyModule

if TYPE_CHECKING:
    import anthropic
    import ollama
    import openai
    from google import genai
    from google.genai import types
else:
    anthropic = LazyModule("anthropic")
    ollama = LazyModule("ollama")
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


@dataclass
class ClientReply:
    """Reply as a client presents it."""

    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    finish: str | None = None
    usage: tuple[int, int] | None = None


def ollama_reply(stub: StubServer, text: str, *, stream: bool, **options: Any) -> ClientReply:
    client = ollama.Client(stub.url)
    try:
        messages = [{"role": "user", "content": text}]
        tools = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}]
        chat: Any = client.chat
        answer = chat(MODEL, messages, stream=stream, tools=tools, options=options)
        received = ClientReply()
        for chunk in answer if stream else [answer]:
            received.text += chunk.message.content or ""
            received.reasoning += chunk.message.thinking or ""
            received.calls += [(c.function.name, c.function.arguments) for c in chunk.message.tool_calls or ()]
            received.finish = chunk.done_reason
            received.usage = (chunk.prompt_eval_count, chunk.eval_count)
        return received
    finally:
        client._client.close()


def chat_reply(stub: StubServer, text: str, *, stream: bool, **options: Any) -> ClientReply:
    """Return the reply of OpenAI's chat completions."""
    request: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": text}], **options}
    with openai_client(stub) as client:
        if not stream:
            return _whole_chat(client.chat.completions.create(**request))
        received = ClientReply()
        calls: dict[int, tuple[str, str]] = {}
        for chunk in client.chat.completions.create(**request, stream=True, stream_options={"include_usage": True}):
            if chunk.usage:
                received.usage = (chunk.usage.prompt_tokens, chunk.usage.completion_tokens)
            for choice in chunk.choices:
                received.text += choice.delta.content or ""
                received.reasoning += getattr(choice.delta, "reasoning", "")
                received.finish = choice.finish_reason
                for call in choice.delta.tool_calls or ():
                    name, arguments = calls.get(call.index, ("", ""))
                    calls[call.index] = (name + (call.function.name or ""), arguments + call.function.arguments)
        received.calls = [(name, json.loads(arguments)) for name, arguments in calls.values()]
        return received


def _whole_chat(answer: Any) -> ClientReply:
    (choice,) = answer.choices
    calls = [(c.function.name, json.loads(c.function.arguments)) for c in choice.message.tool_calls or ()]
    reasoning = getattr(choice.message, "reasoning", "")
    assert reasoning == getattr(choice.message, "reasoning_content", "")
    usage = (answer.usage.prompt_tokens, answer.usage.completion_tokens)
    return ClientReply(choice.message.content or "", reasoning, calls, choice.finish_reason, usage)


def response_reply(stub: StubServer, text: str, *, stream: bool, **options: Any) -> ClientReply:
    """Return the reply of OpenAI's Responses API. A stream is assembled from its deltas."""
    request: dict[str, Any] = {"model": MODEL, "input": text, **options}
    with openai_client(stub) as client:
        if not stream:
            return _whole_response(client.responses.create(**request))
        received, arguments = ClientReply(), ""
        for event in client.responses.create(**request, stream=True):
            if event.type == "response.output_text.delta":
                received.text += event.delta
            elif event.type == "response.reasoning_summary_text.delta":
                received.reasoning += event.delta
            elif event.type == "response.function_call_arguments.delta":
                arguments += event.delta
            elif event.type == "response.output_item.done" and event.item.type == "function_call":
                received.calls.append((event.item.name, json.loads(arguments)))
                arguments = ""
            elif event.type in ("response.completed", "response.incomplete"):
                end = _whole_response(event.response)
                assert (end.text, end.reasoning, end.calls) == (received.text, received.reasoning, received.calls)
                received.finish, received.usage = end.finish, end.usage
        return received


def _whole_response(answer: Any) -> ClientReply:
    received = ClientReply(answer.output_text, usage=(answer.usage.input_tokens, answer.usage.output_tokens))
    for item in answer.output:
        if item.type == "reasoning":
            received.reasoning += "".join(part.text for part in item.summary)
        elif item.type == "function_call":
            received.calls.append((item.name, json.loads(item.arguments)))
    received.finish = answer.incomplete_details.reason if answer.incomplete_details else answer.status
    return received


def message_reply(stub: StubServer, text: str, *, stream: bool, **options: Any) -> ClientReply:
    """Return the reply of Anthropic's Messages API."""
    request: dict[str, Any] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": 10_000,
        **options,
    }
    with anthropic_client(stub) as client:
        if stream:
            with client.messages.stream(**request) as events:
                message: Any = events.get_final_message()
        else:
            message = client.messages.create(**request)
    received = ClientReply(finish=message.stop_reason, usage=(message.usage.input_tokens, message.usage.output_tokens))
    for block in message.content:
        if block.type == "text":
            received.text += block.text
        elif block.type == "thinking":
            received.reasoning += block.thinking
        else:
            received.calls.append((block.name, block.input))
    return received


def gemini_reply(stub: StubServer, text: str, *, stream: bool, **options: Any) -> ClientReply:
    """Return the reply of Gemini, with thoughts requested."""
    config = types.GenerateContentConfig(thinking_config=types.ThinkingConfig(include_thoughts=True), **options)
    with gemini_client(stub) as client:
        if stream:
            answers = list(client.models.generate_content_stream(model=MODEL, contents=text, config=config))
        else:
            answers = [client.models.generate_content(model=MODEL, contents=text, config=config)]
    received = ClientReply()
    for answer in answers:
        (candidate,) = answer.candidates or []
        for part in (candidate.content and candidate.content.parts) or ():
            if part.function_call:
                received.calls.append((part.function_call.name or "", part.function_call.args or {}))
            elif part.thought:
                received.reasoning += part.text or ""
            else:
                received.text += part.text or ""
        received.finish = candidate.finish_reason.value if candidate.finish_reason else None
        usage = answer.usage_metadata
        received.usage = (usage.prompt_token_count or 0, usage.candidates_token_count or 0) if usage else None
    return received
