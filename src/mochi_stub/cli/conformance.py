"""Comparison of a real Ollama with the stub: the same requests to both, and what differs in the responses.

The text of a model is not compared, only the form of the responses; the texts of errors are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

import httpx

from mochi_stub.models.catalogue import Habit, Model
from mochi_stub.server import StubServer

PATIENCE = 600.0
"""Timeout of one response in seconds; a real server loads its models first."""
MAX_SHOWN = 300
"""Number of characters that an error shows of an unexpected response."""
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
    """One request, and a capability without which it is skipped."""

    name: str
    path: str
    body: Any = None
    needs: str = ""
    method: str = "POST"


def verify(url: str, model: str) -> int:
    """Print every difference. 0: there is none; 1: there are; 2: there was nothing to compare with."""
    try:
        found = list(_differences(url, model))
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        problem = " ".join(f"{url} cannot be probed: {error}".split())
        sys.stderr.write(f"mochi-stub: {problem[:MAX_SHOWN]}\n")
        return 2
    for line in [*found, f"{len(found)} differences between {url} and the stub, model {model}"]:
        sys.stdout.write(f"{line}\n")
    return 1 if found else 0


def _differences(url: str, name: str) -> Iterator[str]:
    """Yield one line for each place in which the responses differ."""
    with httpx.Client(base_url=url, timeout=PATIENCE) as real:
        model = model_of(real, name)
        with StubServer(models=[model], speed=0) as stub, httpx.Client(base_url=stub.url) as copy:
            for probe in _probes(name):
                if probe.needs and not model.can(probe.needs):
                    continue
                there, here = _send_probe(real, probe), _send_probe(copy, probe)
                for place in there | here:
                    if there.get(place) != here.get(place):
                        values = f"{there.get(place, 'nothing')} there, {here.get(place, 'nothing')} here"
                        yield f"{probe.name}: {place}: {values}"


def model_of(client: httpx.Client, name: str) -> Model:
    """Return a declared model like the one on the server. Raises ValueError."""
    response = client.post("/api/show", json={"model": name})
    if response.status_code != 200:
        raise ValueError(f"it does not show the model {name}: {response.text}")
    shown = response.json()
    if not isinstance(shown, dict):
        raise ValueError(f"it is no Ollama, and shows the model {name} as {response.text}")
    info, details = shown.get("model_info") or {}, shown.get("details") or {}
    sizes = {key.rpartition(".")[2]: value for key, value in reversed(info.items()) if isinstance(value, int)}
    capabilities = tuple(shown.get("capabilities") or ("completion",))
    return Model(
        name,
        capabilities=capabilities,
        context_length=sizes.get("context_length", 8192),
        embedding_length=sizes.get("embedding_length", 768),
        family=details.get("family") or "llama",
        parameter_size=details.get("parameter_size") or "8.0B",
        habit=_habit(client, name, capabilities),
        system=shown.get("system", ""),
        license=shown.get("license", ""),
        parameters={"num_keep": 4} if shown.get("parameters") else {},
        tensors=[{"name": "t", "type": "F32", "shape": [1]}] if shown.get("tensors") else (),
        info=info,
    )


def _habit(client: httpx.Client, name: str, capabilities: tuple[str, ...]) -> Habit:
    """Return "native" if the model's entry in the list has fewer capabilities than its own page."""
    models = client.get("/api/tags").json().get("models", [])
    listed = {entry.get("name", "").removesuffix(":latest"): entry.get("capabilities") for entry in models}
    less = listed.get(name.removesuffix(":latest")) == ["completion"] and len(capabilities) > 1
    return "native" if less else "template"


def _probes(model: str) -> Iterator[Probe]:
    """Yield all requests for one model. None of them changes what is on the server."""
    yield from (
        Probe("root", "/", method="GET"),
        Probe("root, head only", "/", method="HEAD"),
        Probe("version", "/api/version", method="GET"),
        Probe("list of models", "/api/tags", method="GET"),
        Probe("a model", "/api/show", {"model": model}),
        Probe("a model that is not there", "/api/show", {"model": MISSING}),
        Probe("an unknown path", "/api/nothing", method="GET"),
        Probe("another method", "/api/chat", method="PUT"),
        Probe("a slash too many", "/api/tags/", method="GET"),
    )
    chat = {"model": model, "messages": HELLO, "options": BRIEF}
    calling = {"tools": [TOOL], "think": False, "messages": CALLING, "options": ENOUGH}
    parts = [{"role": "user", "content": [{"type": "text", "text": "x"}]}]
    for name, fields, needs in (
        ("streamed", {"think": False}, "completion"),
        ("whole", {"think": False, "stream": False}, "completion"),
        ("thinking", {"think": True, "messages": REASONED}, "thinking"),
        ("thinking, whole", {"think": True, "stream": False, "messages": REASONED}, "thinking"),
        ("a wrong wish to think", {"think": "none"}, "completion"),
        ("tools", {**calling, "stream": False}, "tools"),
        ("tools, streamed", calling, "tools"),
        ("JSON", {"format": "json", "think": False, "stream": False}, "completion"),
        ("a wrong format", {"format": "xml"}, "completion"),
        ("log probabilities", {"logprobs": True, "top_logprobs": 2, "think": False, "stream": False}, "completion"),
        ("too many log probabilities", {"top_logprobs": 99}, "completion"),
        ("a wrong option", {"options": {"num_ctx": "x"}}, "completion"),
        ("a wrong keep_alive", {"keep_alive": "abc"}, "completion"),
        ("loading only", {"messages": []}, "completion"),
        ("content in parts", {"messages": parts}, "completion"),
    ):
        yield Probe(f"chat, {name}", "/api/chat", {**chat, **fields}, needs)
    generate = {"model": model, "prompt": "Say hello.", "options": BRIEF, "think": False}
    yield from (
        Probe("generate, streamed", "/api/generate", generate, "completion"),
        Probe("generate, whole", "/api/generate", {**generate, "stream": False}, "completion"),
        Probe("generate, raw", "/api/generate", {**generate, "raw": True, "stream": False}, "completion"),
        Probe("generate, raw with a template", "/api/generate", {**generate, "raw": True, "template": "x"}),
        Probe("generate, loading only", "/api/generate", {"model": model}, "completion"),
        Probe("running models", "/api/ps", None, "completion", method="GET"),
        Probe("generate, unloading", "/api/generate", {"model": model, "keep_alive": 0}, "completion"),
        Probe("embed, one text", "/api/embed", {"model": model, "input": "hello"}, "embedding"),
        Probe("embed, two texts", "/api/embed", {"model": model, "input": ["hello", "world"]}, "embedding"),
        Probe("embed, the older way", "/api/embeddings", {"model": model, "prompt": "hello"}, "embedding"),
        Probe("embed, nothing", "/api/embed", {"model": model, "input": ""}, "embedding"),
        Probe("embed, no text", "/api/embed", {"model": model, "input": [1]}, "embedding"),
        Probe("embed, a model that is not there", "/api/embed", {"model": MISSING, "input": "hello"}),
        Probe("chat, a model that is not there", "/api/chat", {"model": MISSING, "messages": HELLO}),
        Probe("chat, no model", "/api/chat", {"messages": HELLO}),
        Probe("chat, no name of a model", "/api/chat", {"model": "a b", "messages": HELLO}),
        Probe("chat, no body", "/api/chat"),
        Probe("chat, no JSON", "/api/chat", b"xyz"),
        Probe("chat, half a body", "/api/chat", b'{"model":'),
        Probe("chat, a wrong type", "/api/chat", {"model": 5}),
        Probe("generate, no model", "/api/generate", {"prompt": "x"}),
        Probe("copy, a model that is not there", "/api/copy", {"source": MISSING, "destination": f"{model}-x"}),
        Probe("delete, a model that is not there", "/api/delete", {"model": MISSING}, method="DELETE"),
        Probe("delete, no model", "/api/delete", {}, method="DELETE"),
        Probe("pull, no name of a model", "/api/pull", {"model": "a b"}),
        Probe("create, of nothing", "/api/create", {"model": MISSING}),
        Probe("a blob that is no digest", "/api/blobs/abc", method="HEAD"),
    )


def _send_probe(client: httpx.Client, probe: Probe) -> dict[str, Any]:
    """Return what can be compared of a response: status, headers, and each kind of object in order of appearance."""
    data = probe.body if probe.body is None or isinstance(probe.body, bytes) else json.dumps(probe.body).encode()
    response = client.request(probe.method, probe.path, content=data)
    found: dict[str, Any] = {"status": response.status_code}
    found |= {name: response.headers[name] for name in HEADERS if name in response.headers}
    try:
        objects = [json.loads(line) for line in response.content.split(b"\n") if line]
    except ValueError:
        return {**found, "text": response.content.decode(errors="replace")}
    kinds = dict.fromkeys(json.dumps(_shape(one)) for one in objects)
    return {**found, **{f"object {number}": kind for number, kind in enumerate(kinds, 1)}}


def _shape(value: Any, name: str = "", kept: Set[str] = KEPT) -> Any:
    """Replace what differs from model to model by its type."""
    if isinstance(value, Mapping):
        if name in ("model_info", "arguments"):
            return "object"
        return {key: _shape(item, key, kept) for key, item in value.items()}
    if isinstance(value, list):
        return [_shape(value[0], "", kept - {"model"})] if value else []
    if name in kept:
        return value
    return {bool: "boolean", int: "number", float: "number", str: "text"}.get(type(value), "null")
