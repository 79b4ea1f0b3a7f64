"""Comparison of a real Ollama with the stub: send the same requests to both and compare the responses.

The comparison includes the structure of responses and the texts of errors, but not generated text.
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

TIMEOUT = 600.0  # seconds, including the time to load a real model
MAX_ERROR_LENGTH = 300
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
SHORT = {"num_predict": 8, "temperature": 0, "seed": 1}
LONG = {**SHORT, "num_predict": 256}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
COMPARED_FIELDS: Set[str] = {"done", "done_reason", "role", "error", "model", "status", "object"}
"""Names of fields whose values are compared. For other fields, only the types are compared."""
HEADERS = ("content-type", "allow", "location")


@dataclass(frozen=True)
class Probe:
    """Request that is sent to both servers. The request is skipped if the model lacks the capability `needs`."""

    name: str
    path: str
    body: Any = None
    needs: str = ""
    method: str = "POST"


def verify(url: str, model: str) -> int:
    """Print how a server differs from the stub. Return 0 (no differences), 1 (differences) or 2 (comparison failed)."""
    try:
        differences = list(_differences(url, model))
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        problem = " ".join(f"cannot compare {url} with the stub: {error}".split())
        sys.stderr.write(f"mochi-stub: {problem[:MAX_ERROR_LENGTH]}\n")
        return 2
    for line in [*differences, f"{len(differences)} differences between {url} and the stub, model {model}"]:
        sys.stdout.write(f"{line}\n")
    return 1 if differences else 0


def _differences(url: str, name: str) -> Iterator[str]:
    with httpx.Client(base_url=url, timeout=TIMEOUT) as real:
        model = model_of(real, name)
        with StubServer(models=[model], speed=0) as stub, httpx.Client(base_url=stub.url) as simulated:
            for probe in _probes(name):
                if probe.needs and not model.can(probe.needs):
                    continue
                real_parts, stub_parts = _send_probe(real, probe), _send_probe(simulated, probe)
                for part in real_parts | stub_parts:
                    if real_parts.get(part) != stub_parts.get(part):
                        values = f"server {real_parts.get(part, 'nothing')}, stub {stub_parts.get(part, 'nothing')}"
                        yield f"{probe.name}: {part}: {values}"


def model_of(client: httpx.Client, name: str) -> Model:
    """Return a stub model with the properties of a model on the server. Raises ValueError for invalid responses."""
    response = client.post("/api/show", json={"model": name})
    if response.status_code != 200:
        raise ValueError(f"/api/show failed for the model {name}: {response.text}")
    shown = response.json()
    if not isinstance(shown, dict):
        raise ValueError(f"/api/show returned no JSON object for the model {name}: {response.text}")
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
    """Return "native" if `/api/tags` lists fewer capabilities of the model than `/api/show`, otherwise "template"."""
    models = client.get("/api/tags").json().get("models", [])
    listed = {entry.get("name", "").removesuffix(":latest"): entry.get("capabilities") for entry in models}
    fewer = listed.get(name.removesuffix(":latest")) == ["completion"] and len(capabilities) > 1
    return "native" if fewer else "template"


def _probes(model: str) -> Iterator[Probe]:
    """Yield the requests to compare. They do not change the models on the server."""
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
    )
    chat = {"model": model, "messages": HELLO, "options": SHORT}
    tool_call = {"tools": [TOOL], "think": False, "messages": CALL_TOOL, "options": LONG}
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
        ("invalid format", {"format": "xml"}, "completion"),
        ("log probabilities", {"logprobs": True, "top_logprobs": 2, "think": False, "stream": False}, "completion"),
        ("too many log probabilities", {"top_logprobs": 99}, "completion"),
        ("invalid option", {"options": {"num_ctx": "x"}}, "completion"),
        ("invalid keep_alive", {"keep_alive": "abc"}, "completion"),
        ("load only", {"messages": []}, "completion"),
        ("content in parts", {"messages": parts}, "completion"),
    ):
        yield Probe(f"chat, {name}", "/api/chat", {**chat, **fields}, needs)
    generate = {"model": model, "prompt": "Say hello.", "options": SHORT, "think": False}
    yield from (
        Probe("generate, streamed", "/api/generate", generate, "completion"),
        Probe("generate, whole", "/api/generate", {**generate, "stream": False}, "completion"),
        Probe("generate, raw", "/api/generate", {**generate, "raw": True, "stream": False}, "completion"),
        Probe("generate, raw with a template", "/api/generate", {**generate, "raw": True, "template": "x"}),
        Probe("generate, load only", "/api/generate", {"model": model}, "completion"),
        Probe("running models", "/api/ps", None, "completion", method="GET"),
        Probe("generate, unload", "/api/generate", {"model": model, "keep_alive": 0}, "completion"),
        Probe("embed, one text", "/api/embed", {"model": model, "input": "hello"}, "embedding"),
        Probe("embed, two texts", "/api/embed", {"model": model, "input": ["hello", "world"]}, "embedding"),
        Probe("embed, legacy route", "/api/embeddings", {"model": model, "prompt": "hello"}, "embedding"),
        Probe("embed, empty text", "/api/embed", {"model": model, "input": ""}, "embedding"),
        Probe("embed, number instead of text", "/api/embed", {"model": model, "input": [1]}, "embedding"),
        Probe("embed, unknown model", "/api/embed", {"model": UNKNOWN_MODEL, "input": "hello"}),
        Probe("chat, unknown model", "/api/chat", {"model": UNKNOWN_MODEL, "messages": HELLO}),
        Probe("chat, no model", "/api/chat", {"messages": HELLO}),
        Probe("chat, invalid model name", "/api/chat", {"model": "a b", "messages": HELLO}),
        Probe("chat, no body", "/api/chat"),
        Probe("chat, invalid JSON", "/api/chat", b"xyz"),
        Probe("chat, incomplete JSON", "/api/chat", b'{"model":'),
        Probe("chat, invalid type", "/api/chat", {"model": 5}),
        Probe("generate, no model", "/api/generate", {"prompt": "x"}),
        Probe("copy, unknown model", "/api/copy", {"source": UNKNOWN_MODEL, "destination": f"{model}-x"}),
        Probe("delete, unknown model", "/api/delete", {"model": UNKNOWN_MODEL}, method="DELETE"),
        Probe("delete, no model", "/api/delete", {}, method="DELETE"),
        Probe("pull, invalid model name", "/api/pull", {"model": "a b"}),
        Probe("create, no source", "/api/create", {"model": UNKNOWN_MODEL}),
        Probe("blob, invalid digest", "/api/blobs/abc", method="HEAD"),
    )


def _send_probe(client: httpx.Client, probe: Probe) -> dict[str, Any]:
    """Send a probe. Return the response parts to compare: status, headers, and distinct structures of JSON objects."""
    data = probe.body if probe.body is None or isinstance(probe.body, bytes) else json.dumps(probe.body).encode()
    response = client.request(probe.method, probe.path, content=data)
    parts: dict[str, Any] = {"status": response.status_code}
    parts |= {name: response.headers[name] for name in HEADERS if name in response.headers}
    try:
        objects = [json.loads(line) for line in response.content.split(b"\n") if line]
    except ValueError:
        return {**parts, "text": response.content.decode(errors="replace")}
    structures = dict.fromkeys(json.dumps(_structure(value)) for value in objects)
    return {**parts, **{f"object {number}": structure for number, structure in enumerate(structures, 1)}}


def _structure(value: Any, name: str = "", compared: Set[str] = COMPARED_FIELDS) -> Any:
    """Replace all values in JSON data by type names, except for the fields in `compared`."""
    if isinstance(value, Mapping):
        if name in ("model_info", "arguments"):
            return "object"
        return {key: _structure(item, key, compared) for key, item in value.items()}
    if isinstance(value, list):
        return [_structure(value[0], "", compared - {"model"})] if value else []
    if name in compared:
        return value
    return {bool: "boolean", int: "number", float: "number", str: "text"}.get(type(value), "null")
