"""Comparison of a real Ollama with the stub: send the same requests to both and compare the responses.

The structure of responses and the texts of errors are compared, but nothing that depends on generated text.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from mochi_stub.config.loader import packaged_config
from mochi_stub.models.catalogue import Model
from mochi_stub.models.scheduler import Machine
from mochi_stub.server import StubServer

PROBES = Path(__file__).with_name("probes.yaml")
TIMEOUT = 600.0  # seconds, including the time to load a real model
MAX_ERROR_LENGTH = 300
COMPARED_FIELDS = {"done", "role", "error", "model", "status", "object"}  # only the types of other fields are compared
HEADERS = ("content-type", "allow", "location", "access-control-allow-origin", "access-control-allow-methods", "vary")
GENERATED = {"thinking", "tool_calls", "reasoning", "reasoning_content", "logprobs"}  # only if the model generates them
OF_MODEL = {  # fields that Ollama omits in the descriptions of some models
    *("license", "parameters", "system", "messages", "tensors", "projector_info", "parent_model", "requires"),
    *("capabilities", "remote_model", "remote_host", "context_length", "embedding_length"),
}


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


def verify(url: str, model: str, stub_model: str | None = None, machine: Machine | None = None) -> int:
    """Print how a server differs from the stub. Return 0 (no differences), 1 (differences) or 2 (comparison failed).

    Args:
        url: URL of the server.
        model: Model of the server.
        stub_model: Model of the stub. By default, the stub's model that is most similar to `model`.
        machine: Limits of the scheduler that the stub simulates.
    """
    try:
        with StubServer(speed=0, machine=machine) as stub:
            differences = list(_differences(url, model, stub, stub_model))
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        problem = " ".join(f"cannot compare {url} with the stub: {error}".split())
        sys.stderr.write(f"mochi-stub: {problem[:MAX_ERROR_LENGTH]}\n")
        return 2
    for line in [*differences, f"{len(differences)} differences between {url} and the stub, model {model}"]:
        sys.stdout.write(f"{line}\n")
    return 1 if differences else 0


def _differences(url: str, name: str, stub: StubServer, stub_model: str | None) -> Iterator[str]:
    with httpx.Client(base_url=url, timeout=TIMEOUT) as real, httpx.Client(base_url=stub.url) as simulated:
        capabilities = capabilities_of(real, name)
        chosen = stub_model or nearest_model(real, name, capabilities).name
        common = capabilities & capabilities_of(simulated, chosen)
        real_model, stub_model = _full_name(name), _full_name(chosen)
        for probe, stub_probe in zip(probes(real_model), probes(stub_model), strict=True):
            if not probe.needs or probe.needs in common:
                parts = _send(real, real_model, probe), _send(simulated, stub_model, stub_probe)
                yield from (f"{probe.name}: {line}" for line in _compare(*parts, shared=probe.shared))


def probes(model: str) -> Iterator[Probe]:
    """Yield the requests of `probes.yaml` for a model."""
    text = json.dumps(yaml.safe_load(PROBES.read_bytes()))
    for placeholder, value in (("model", model), ("6000 words", "word " * 6000), ("200000 words", "word " * 200_000)):
        text = text.replace(f"<{placeholder}>", json.dumps(value)[1:-1])
    for group in json.loads(text):
        defaults = group["defaults"]
        for name, fields in group["probes"].items():
            if "body" in defaults:
                fields["body"] = defaults["body"] | fields["body"]
            yield Probe(group["prefix"] + name, **(defaults | fields))


def capabilities_of(client: httpx.Client, name: str) -> set[str]:
    """Return the capabilities of a model. Raises ValueError for invalid responses."""
    response = client.post("/api/show", json={"model": name})
    if response.status_code != 200:
        raise ValueError(f"/api/show failed for the model {name}: {response.text}")
    shown = response.json()
    if not isinstance(shown, dict):
        raise ValueError(f"/api/show returned no JSON object for the model {name}: {response.text}")
    return set(shown.get("capabilities") or ["completion"])


def nearest_model(client: httpx.Client, name: str, capabilities: set[str]) -> Model:
    """Return the packaged model that is most similar to the model `name` of the server that `client` calls.

    The capabilities are compared first, then the habit (see `catalogue.Model`). The server's model has the habit
    `native` if it has several `capabilities`, but `/api/tags` lists only `completion`.
    """
    models = client.get("/api/tags").json().get("models") or []
    listed = {_full_name(entry.get("name", "")): entry.get("capabilities") for entry in models}
    habit = "native" if listed.get(_full_name(name)) == ["completion"] and len(capabilities) > 1 else "template"
    packaged = packaged_config().models
    return min(packaged, key=lambda one: (len(capabilities ^ set(one.capabilities)), one.habit != habit))


def _full_name(model: str) -> str:
    return model if ":" in model else f"{model}:latest"


def _send(client: httpx.Client, model: str, probe: Probe) -> dict[str, Any]:
    """Send a probe. Return the response parts to compare: status, headers, text, and the first object of each kind."""
    data = probe.body if probe.body is None or isinstance(probe.body, str) else json.dumps(probe.body)
    response = client.request(probe.method, probe.path, content=data, headers=dict(probe.headers))
    parts: dict[str, Any] = {"status": response.status_code}
    parts |= {name: response.headers[name] for name in HEADERS if name in response.headers}
    lines = [line.removeprefix(b"data: ") for line in response.content.split(b"\n") if line.strip()]
    try:
        objects = [json.loads(line) for line in lines if line != b"[DONE]"]
    except ValueError:
        return {**parts, "text": _without_variables(response.content.decode(errors="replace"), model)}
    for value in objects:
        kind = f"{_kind(value)} object" if len(objects) > 1 else "body"
        parts.setdefault(kind, _structure(_of_model(value, model), model))
    return parts


def _kind(value: Any) -> str:
    """Return the kind of an object in a stream: "error", "last" (the last object) or its content, e.g. "thinking"."""
    if not isinstance(value, Mapping) or "error" in value:
        return "error"
    if value.get("done") or any(choice.get("finish_reason") for choice in value.get("choices", ())):
        return "last"
    message = value.get("message") or next((choice.get("delta") for choice in value.get("choices", ())), None) or value
    return next((field for field in ("tool_calls", "thinking", "reasoning") if message.get(field)), "content")


def _of_model(value: Any, model: str) -> Any:
    """Return `value`. If `value` contains a list of models, keep only the entry of `model` in the list."""
    for name in ("models", "data"):
        entries = value.get(name) if isinstance(value, Mapping) else None
        if isinstance(entries, list) and all(isinstance(entry, Mapping) for entry in entries):
            own = [one for one in entries if _full_name(str(one.get("name", one.get("id", model)))) == model]
            return {**value, name: own}
    return value


def _structure(value: Any, model: str, name: str = "") -> Any:
    """Replace all values in JSON data by type names, except for the fields whose values are compared."""
    if isinstance(value, Mapping):
        if name in ("model_info", "arguments"):
            return "object"
        return {key: _structure(item, model, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_structure(value[0], model)] if value else []
    if name in COMPARED_FIELDS and isinstance(value, (str, bool)):
        return _without_variables(value, model) if isinstance(value, str) else value
    return {bool: "boolean", int: "number", float: "number", str: "text"}.get(type(value), "null")


def _without_variables(text: str, model: str) -> str:
    """Replace the name of the model and all numbers in a text."""
    short = model.removesuffix(":latest")
    named = re.sub(rf"(?<![\w-]){re.escape(short)}(?::latest)?(?![\w-])", "MODEL", text)
    return re.sub(r"\d+", "N", named)


def _compare(real: Mapping[str, Any], stub: Mapping[str, Any], *, shared: bool) -> Iterator[str]:
    """Yield the differences between the parts of two responses."""
    for part in dict.fromkeys([*real, *stub]):
        is_generated = part.endswith(" object") and part not in ("last object", "error object")
        if (part not in real or part not in stub) and (is_generated or (shared and part != "status")):
            continue
        first, second = real.get(part, "nothing"), stub.get(part, "nothing")
        if shared and part in HEADERS:
            first, second = (str(value).partition(";")[0] for value in (first, second))
        if not isinstance(first, (int, str)):
            first, second = _comparable(first, second, shared), _comparable(second, first, shared)
        if first != second:
            yield f"{part}: server {_shown(first)}, stub {_shown(second)}"


def _comparable(value: Any, other: Any, shared: bool) -> Any:
    """Return `value` without the fields that only `value` has and whose presence is not compared."""
    if shared and "null" in (value, other):  # for shared responses, null matches any value
        return "null"
    if isinstance(value, list) and isinstance(other, list) and value and other:  # one item each, see `_structure`
        return [_comparable(value[0], other[0], shared)]
    if not isinstance(value, Mapping) or not isinstance(other, Mapping):
        return value
    return {
        key: _comparable(item, other.get(key, item), shared)
        for key, item in value.items()
        if key in other or not (shared or key in GENERATED | OF_MODEL)
    }


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
