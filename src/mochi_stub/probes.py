"""Requests that show how an Ollama server behaves, and what of an answer does not depend on the model's words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

import httpx

MISSING = "mochi-stub-probe-that-does-not-exist"
HELLO = [{"role": "user", "content": "Say hello."}]
REASONED = [{"role": "user", "content": "Say hello.\nReason: it is polite."}]
"""A model that thinks does so here, and the stub's too."""
CALLING = [
    {
        "role": "user",
        "content": "What is the weather in Oslo? Call the tool get_weather.\n"
        '<|instruction_start|>{"messages": [{"tool_call": [{"name": "get_weather", "args": {"city": "Oslo"}}]}]}'
        "<|instruction_end|>",
    }
]
"""The stub obeys the block, a real model the sentence."""
BRIEF = {"num_predict": 8, "temperature": 0, "seed": 1}
ENOUGH = {**BRIEF, "num_predict": 256}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
KEPT: Set[str] = {"done", "done_reason", "role", "error", "model", "status", "object"}
"""Fields whose values are compared, not only their kinds."""
HEADERS = ("content-type", "allow", "location")


@dataclass(frozen=True)
class Probe:
    """One request; `needs` is a capability without which it tells nothing."""

    name: str
    method: str
    path: str
    body: Any = None
    needs: str = ""


def probes(model: str) -> list[Probe]:
    """All of them, for one model. None of them changes what is on the server."""
    return [*_reading(model), *_chatting(model), *_generating(model), *_embedding(model), *_refused(model)]


def _reading(model: str) -> list[Probe]:
    return [
        Probe("root", "GET", "/"),
        Probe("root, head only", "HEAD", "/"),
        Probe("version", "GET", "/api/version"),
        Probe("list of models", "GET", "/api/tags"),
        Probe("a model", "POST", "/api/show", {"model": model}),
        Probe("a model that is not there", "POST", "/api/show", {"model": MISSING}),
        Probe("an unknown path", "GET", "/api/nothing"),
        Probe("another method", "PUT", "/api/chat"),
        Probe("a slash too many", "GET", "/api/tags/"),
    ]


def _chatting(model: str) -> list[Probe]:
    def chat(name: str, needs: str = "completion", **fields: Any) -> Probe:
        body = {"model": model, "messages": HELLO, "options": BRIEF, **fields}
        return Probe(f"chat, {name}", "POST", "/api/chat", body, needs)

    return [
        chat("streamed", think=False),
        chat("whole", think=False, stream=False),
        chat("thinking", "thinking", think=True, messages=REASONED),
        chat("thinking, whole", "thinking", think=True, stream=False, messages=REASONED),
        chat("a wrong wish to think", think="none"),
        chat("tools", "tools", tools=[TOOL], think=False, stream=False, messages=CALLING, options=ENOUGH),
        chat("tools, streamed", "tools", tools=[TOOL], think=False, messages=CALLING, options=ENOUGH),
        chat("JSON", format="json", think=False, stream=False),
        chat("a wrong format", format="xml"),
        chat("log probabilities", logprobs=True, top_logprobs=2, think=False, stream=False),
        chat("too many log probabilities", top_logprobs=99),
        chat("a wrong option", options={"num_ctx": "x"}),
        chat("a wrong keep_alive", keep_alive="abc"),
        chat("loading only", messages=[]),
        chat("content in parts", messages=[{"role": "user", "content": [{"type": "text", "text": "x"}]}]),
    ]


def _generating(model: str) -> list[Probe]:
    body = {"model": model, "prompt": "Say hello.", "options": BRIEF, "think": False}
    return [
        Probe("generate, streamed", "POST", "/api/generate", body, "completion"),
        Probe("generate, whole", "POST", "/api/generate", {**body, "stream": False}, "completion"),
        Probe("generate, raw", "POST", "/api/generate", {**body, "raw": True, "stream": False}, "completion"),
        Probe("generate, raw with a template", "POST", "/api/generate", {**body, "raw": True, "template": "x"}),
        Probe("generate, loading only", "POST", "/api/generate", {"model": model}, "completion"),
        Probe("running models", "GET", "/api/ps", None, "completion"),
        Probe("generate, unloading", "POST", "/api/generate", {"model": model, "keep_alive": 0}, "completion"),
    ]


def _embedding(model: str) -> list[Probe]:
    def embed(name: str, needs: str = "embedding", path: str = "/api/embed", **fields: Any) -> Probe:
        return Probe(f"embed, {name}", "POST", path, {"model": model, **fields}, needs)

    return [
        embed("one text", input="hello"),
        embed("two texts", input=["hello", "world"]),
        embed("the older way", path="/api/embeddings", prompt="hello"),
        embed("nothing", input=""),
        embed("no text", input=[1]),
        embed("a model that is not there", "", model=MISSING, input="hello"),
    ]


def _refused(model: str) -> list[Probe]:
    return [
        Probe("chat, a model that is not there", "POST", "/api/chat", {"model": MISSING, "messages": HELLO}),
        Probe("chat, no model", "POST", "/api/chat", {"messages": HELLO}),
        Probe("chat, no name of a model", "POST", "/api/chat", {"model": "a b", "messages": HELLO}),
        Probe("chat, no body", "POST", "/api/chat"),
        Probe("chat, no JSON", "POST", "/api/chat", b"xyz"),
        Probe("chat, half a body", "POST", "/api/chat", b'{"model":'),
        Probe("chat, a wrong type", "POST", "/api/chat", {"model": 5}),
        Probe("generate, no model", "POST", "/api/generate", {"prompt": "x"}),
        Probe("copy, a model that is not there", "POST", "/api/copy", {"source": MISSING, "destination": f"{model}-x"}),
        Probe("delete, a model that is not there", "DELETE", "/api/delete", {"model": MISSING}),
        Probe("delete, no model", "DELETE", "/api/delete", {}),
        Probe("pull, no name of a model", "POST", "/api/pull", {"model": "a b"}),
        Probe("create, of nothing", "POST", "/api/create", {"model": MISSING}),
        Probe("a blob that is no digest", "HEAD", "/api/blobs/abc"),
    ]


def answered(client: httpx.Client, probe: Probe) -> dict[str, Any]:
    """What the server answers, as far as two servers can be compared: status, headers, the kinds of its objects."""
    data = probe.body if probe.body is None or isinstance(probe.body, bytes) else json.dumps(probe.body).encode()
    response = client.request(probe.method, probe.path, content=data)
    headers = {name: response.headers.get(name) for name in HEADERS}
    return {"status": response.status_code, **headers, **_body(response.content)}


def _body(data: bytes) -> dict[str, Any]:
    """The kinds of objects in a body, each once, in order of appearance; a text as it is."""
    try:
        objects = [json.loads(line) for line in data.split(b"\n") if line]
    except ValueError:
        return {"text": data.decode(errors="replace")}
    kinds: list[str] = []
    for one in objects:
        kind = json.dumps(shape(one))
        kinds += [] if kind in kinds else [kind]
    return {f"object {number}": kind for number, kind in enumerate(kinds, 1)}


def shape(value: Any, name: str = "", kept: Set[str] = KEPT) -> Any:
    """The value without what differs from model to model: kinds of values, and the fields' order."""
    if isinstance(value, Mapping):
        if name in ("model_info", "arguments"):
            return "object"
        return {key: shape(item, key, kept) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(value[0], "", kept - {"model"})] if value else []
    if name in kept:
        return value
    return {bool: "boolean", int: "number", float: "number", str: "text"}.get(type(value), "null")
