"""Requests that `mochi-stub verify` sends to a real Ollama and to the stub."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

UNKNOWN_MODEL = "mochi-stub-probe-that-does-not-exist"
HELLO = [{"role": "user", "content": "Say hello."}]
REASON = [{"role": "user", "content": "Say hello.\nReason: it is polite."}]
CALL_TOOL = [  # a sentence for a real model, an instruction block for the stub
    {
        "role": "user",
        "content": "What is the weather in Oslo? Call the tool get_weather.\n"
        '<|instruction_start|>{"messages": [{"tool_call": [{"name": "get_weather", "args": {"city": "Oslo"}}]}]}'
        "<|instruction_end|>",
    }
]
TOO_LONG = [{"role": "user", "content": "word " * 6000}]  # more tokens than the context, for each way to count
TEXT_CALL = {"function": {"name": "get_weather", "arguments": "Oslo"}}
SHORT = {"num_predict": 8, "temperature": 0, "seed": 1}
LONG = {**SHORT, "num_predict": 256}
SMALL = {**SHORT, "num_ctx": 2048}
LOCAL, FOREIGN = "http://localhost:3000", "https://example.com"


def _tool(**parameters: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], **parameters}
    return {
        "type": "function",
        "function": {"name": "get_weather", "description": "The weather in a city.", "parameters": schema},
    }


MALFORMED_TOOLS: Mapping[str, Any] = {
    "tools as a text": "get_weather",
    "tool as a text": ["get_weather"],
    "name as a number": [{"type": "function", "function": {"name": 5}}],
    "description as a number": [{"type": "function", "function": {"name": "f", "description": 5}}],
    "parameters as a text": [{"type": "function", "function": {"name": "f", "parameters": "none"}}],
    "parameters as a list": [{"type": "function", "function": {"name": "f", "parameters": []}}],
    "properties as a list": [_tool(properties=[])],
    "property as a text": [_tool(properties={"city": "string"})],
    "property as a boolean": [_tool(properties={"city": True})],
    "boolean in anyOf": [_tool(properties={"city": {"anyOf": [True]}})],
    "type as a number": [_tool(type=5)],
    "type as a list": [_tool(type=["object"])],
    "type of a property as a list of numbers": [_tool(properties={"city": {"type": [5]}})],
    "required as a text": [_tool(required="city")],
    "required as a boolean": [_tool(required=True)],
    "enum as a text": [_tool(properties={"city": {"type": "string", "enum": "Oslo"}})],
    "description of a property as a list": [_tool(properties={"city": {"type": "string", "description": []}})],
    "boolean in nested properties": [_tool(properties={"city": {"type": "object", "properties": {"name": True}}})],
}
MALFORMED_TEMPLATES = (
    *("{{ .Prompt", "{{ if .Prompt }}", "{{ end }}", "{{ else }}", "{{ shout .Prompt }}", "{{ .Prompt! }}", '{{ "x }}'),
    *("{{ }}", "{{ if }}{{ end }}", "{{ $x }}", "{{ 3x }}", "{{ (.Prompt }}", "{{ break }}", "{{/* x }}"),
    *("{{ template .Prompt }}", '{{ define "x" }}{{ $x }}{{ end }}', '{{ 1 | "x" }}', "{{ .Prompt\n\n"),
)


@dataclass(frozen=True)
class Probe:
    """Request to send to both servers. If the model of a server lacks the capability `needs`, the request is skipped.

    If `shared` is true, only the status and the fields that both responses contain are compared. `shared` is true for
    the paths below `/v1`, because the stub imitates OpenAI there, not Ollama's version of OpenAI's API.
    """

    name: str
    path: str
    body: Any = None
    needs: str = ""
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=dict)
    shared: bool = False


def probes(model: str) -> Iterator[Probe]:
    """Yield all requests to send. They load `model` with several context lengths, but change no stored model."""
    for group in (_server_probes, _chat_probes, _generate_probes, _invalid_probes, _openai_probes):
        yield from group(model)


def _server_probes(model: str) -> Iterator[Probe]:
    preflight = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    yield from (
        Probe("root", "/", method="GET"),
        Probe("root, HEAD", "/", method="HEAD"),
        Probe("version", "/api/version", method="GET"),
        Probe("list of models", "/api/tags", method="GET"),
        Probe("show", "/api/show", {"model": model}),
        Probe("show, unknown model", "/api/show", {"model": UNKNOWN_MODEL}),
        Probe("unknown path", "/api/nothing", method="GET"),
        Probe("wrong method", "/api/chat", method="PUT"),
        Probe("trailing slash", "/api/tags/", method="GET"),
        Probe("two slashes", "//api/tags", method="GET"),
        Probe("trailing slash, POST", "/api/chat/", {}),
        Probe("wrong method, HEAD", "/api/ps", method="HEAD"),
        Probe("wrong method, blob", f"/api/blobs/sha256:{'0' * 64}", method="GET"),
        Probe("origin, local", "/api/version", method="GET", headers={"origin": LOCAL}),
        Probe("origin, foreign", "/api/version", method="GET", headers={"origin": FOREIGN}),
        Probe("preflight, local", "/api/chat", method="OPTIONS", headers={"origin": LOCAL, **preflight}),
        Probe("preflight, foreign", "/api/chat", method="OPTIONS", headers={"origin": FOREIGN, **preflight}),
        Probe("foreign host", "/api/version", method="GET", headers={"host": "example.com"}),
    )


def _chat_probes(model: str) -> Iterator[Probe]:
    chat = {"model": model, "messages": HELLO, "options": SHORT}
    tool_call = {"tools": [_tool()], "think": False, "messages": CALL_TOOL, "options": LONG}
    too_long = {"messages": TOO_LONG, "options": SMALL, "think": False}
    parts = [{"role": "user", "content": [{"type": "text", "text": "x"}]}]
    for name, fields, needs in (
        ("streamed", {"think": False}, "completion"),
        ("whole", {"think": False, "stream": False}, "completion"),
        ("thinking", {"think": True, "messages": REASON}, "thinking"),
        ("thinking, whole", {"think": True, "stream": False, "messages": REASON}, "thinking"),
        ("invalid think", {"think": "none"}, "completion"),
        ("tools", {**tool_call, "stream": False}, "tools"),
        ("tools, streamed", tool_call, "tools"),
        ("JSON", {"format": "json", "think": False, "stream": False}, "completion"),
        ("invalid format", {"format": "xml", "think": False}, "completion"),
        ("invalid format, whole", {"format": 5, "think": False, "stream": False}, "completion"),
        ("content is null", {"messages": [{"role": "user", "content": None}], "think": False}, "completion"),
        ("message as a number", {"messages": [5]}, "completion"),
        ("arguments as a text", {"messages": [{"role": "assistant", "tool_calls": [TEXT_CALL]}]}, "completion"),
        ("log probabilities", {"logprobs": True, "top_logprobs": 2, "think": False, "stream": False}, "completion"),
        ("too many log probabilities", {"top_logprobs": 99}, "completion"),
        ("invalid option", {"options": {"num_ctx": "x"}}, "completion"),
        ("invalid keep_alive", {"keep_alive": "abc"}, "completion"),
        ("load only", {"messages": []}, "completion"),
        ("content in parts", {"messages": parts}, "completion"),
        ("too long", {**too_long, "stream": False}, "completion"),
        ("too long, without truncation", {**too_long, "truncate": False}, "completion"),
    ):
        yield Probe(f"chat, {name}", "/api/chat", {**chat, **fields}, needs)
    for name, tools in MALFORMED_TOOLS.items():
        yield Probe(f"chat, {name}", "/api/chat", {**chat, "tools": tools, "stream": False}, "tools")


def _generate_probes(model: str) -> Iterator[Probe]:
    generate = {"model": model, "prompt": "Say hello.", "options": SHORT, "think": False}
    too_long = {**generate, "prompt": "word " * 6000, "options": SMALL}
    embed_too_long = {"model": model, "input": "word " * 200_000, "truncate": False}
    for template in MALFORMED_TEMPLATES:
        body = {**generate, "template": template, "stream": False}
        yield Probe(f"generate, template {template!r}", "/api/generate", body, "completion")
    yield from (
        Probe("generate, streamed", "/api/generate", generate, "completion"),
        Probe("generate, whole", "/api/generate", {**generate, "stream": False}, "completion"),
        Probe("generate, raw", "/api/generate", {**generate, "raw": True, "stream": False}, "completion"),
        Probe("generate, raw with a template", "/api/generate", {**generate, "raw": True, "template": "x"}),
        Probe("generate, load only", "/api/generate", {"model": model}, "completion"),
        Probe("generate, too long", "/api/generate", {**too_long, "stream": False}, "completion"),
        Probe("generate, too long, without truncation", "/api/generate", {**too_long, "truncate": False}, "completion"),
        Probe("running models", "/api/ps", None, "completion", method="GET"),
        Probe("generate, unload", "/api/generate", {"model": model, "keep_alive": 0}, "completion"),
        Probe("embed, one text", "/api/embed", {"model": model, "input": "hello"}, "embedding"),
        Probe("embed, two texts", "/api/embed", {"model": model, "input": ["hello", "world"]}, "embedding"),
        Probe("embed, legacy route", "/api/embeddings", {"model": model, "prompt": "hello"}, "embedding"),
        Probe("embed, empty text", "/api/embed", {"model": model, "input": ""}, "embedding"),
        Probe("embed, number instead of text", "/api/embed", {"model": model, "input": [1]}, "embedding"),
        Probe("embed, too long, without truncation", "/api/embed", embed_too_long, "embedding"),
    )


def _invalid_probes(model: str) -> Iterator[Probe]:
    yield from (
        Probe("embed, unknown model", "/api/embed", {"model": UNKNOWN_MODEL, "input": "hello"}),
        Probe("chat, unknown model", "/api/chat", {"model": UNKNOWN_MODEL, "messages": HELLO}),
        Probe("chat, no model", "/api/chat", {"messages": HELLO}),
        Probe("chat, invalid model name", "/api/chat", {"model": "a b", "messages": HELLO}),
        Probe("chat, messages as a text", "/api/chat", {"model": model, "messages": "hello"}),
        Probe("chat, no body", "/api/chat"),
        Probe("chat, invalid JSON", "/api/chat", b"xyz"),
        Probe("chat, incomplete JSON", "/api/chat", b'{"model":'),
        Probe("chat, invalid type", "/api/chat", {"model": 5}),
        Probe("generate, no model", "/api/generate", {"prompt": "x"}),
        Probe("generate, invalid model name", "/api/generate", {"model": "a b", "prompt": "x"}),
        Probe("embed, invalid model name", "/api/embed", {"model": "a b", "input": "x"}),
        Probe("copy, unknown model", "/api/copy", {"source": UNKNOWN_MODEL, "destination": f"{model}-x"}),
        Probe("delete, unknown model", "/api/delete", {"model": UNKNOWN_MODEL}, method="DELETE"),
        Probe("delete, no model", "/api/delete", {}, method="DELETE"),
        Probe("pull, invalid model name", "/api/pull", {"model": "a b"}),
        Probe("push, invalid model name", "/api/push", {"model": "a b"}),
        Probe("create, no source", "/api/create", {"model": UNKNOWN_MODEL}),
        Probe("blob, invalid digest", "/api/blobs/abc", method="HEAD"),
    )
    for name, fields in (
        ("files as a list", {"files": []}),
        ("path of a file outside", {"files": {"../x.gguf": f"sha256:{'0' * 64}"}}),
        ("unknown quantization", {"from": model, "quantize": "zzz"}),
        ("license as a number", {"from": model, "license": [5]}),
        ("messages as a text", {"from": model, "messages": "x"}),
        ("invalid template", {"from": model, "template": "{{ .Prompt"}),
    ):
        yield Probe(f"create, {name}", "/api/create", {"model": UNKNOWN_MODEL, "stream": False, **fields})


def _openai_probes(model: str) -> Iterator[Probe]:
    chat = {"model": model, "messages": HELLO, "max_tokens": 8, "temperature": 0}
    tools = {**chat, "messages": CALL_TOOL, "max_tokens": 256, "tools": [_tool()]}
    for name, path, body, needs in (
        ("chat, whole", "chat/completions", chat, "completion"),
        ("chat, streamed", "chat/completions", {**chat, "stream": True}, "completion"),
        ("chat, tools", "chat/completions", tools, "tools"),
        ("chat, unknown model", "chat/completions", {**chat, "model": UNKNOWN_MODEL}, ""),
        ("chat, no messages", "chat/completions", {"model": model, "messages": []}, ""),
        ("chat, invalid JSON", "chat/completions", b"xyz", ""),
        ("completion", "completions", {"model": model, "prompt": "Say hello.", "max_tokens": 8}, "completion"),
        ("embeddings", "embeddings", {"model": model, "input": "hello"}, "embedding"),
    ):
        yield Probe(f"/v1, {name}", f"/v1/{path}", body, needs, shared=True)
    yield Probe("/v1, list of models", "/v1/models", method="GET", shared=True)
    yield Probe("/v1, unknown model", f"/v1/models/{UNKNOWN_MODEL}", method="GET", shared=True)
