"""Is the stub true to Ollama? The same probes for a real server and for a stub with the same model, and what differs.

What the models say is not compared, only the form in which they say it; the words of errors are.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import httpx

from mochi_stub.catalogue import Habit, Model
from mochi_stub.probes import Probe, answered, probes
from mochi_stub.server import StubServer

PATIENCE = 600.0
"""Seconds for one answer; a real server loads its models first."""
MAX_SHOWN = 300
"""How many characters are told of what is not there to be compared with."""


class Unverifiable(Exception):
    """There is nothing to compare with; the text says why."""


def verify(url: str, model: str) -> int:
    """Print every difference. 0: there is none; 1: there are; 2: there was nothing to compare with."""
    try:
        found = list(differences(url, model))
    except Unverifiable as problem:
        sys.stderr.write(f"mochi-stub: {' '.join(str(problem).split())[:MAX_SHOWN]}\n")
        return 2
    for line in found:
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"{len(found)} differences between {url} and the stub, model {model}\n")
    return 1 if found else 0


def differences(url: str, name: str) -> Iterator[str]:
    """One line for each place in which the answers differ. Raises Unverifiable."""
    try:
        with httpx.Client(base_url=url, timeout=PATIENCE) as real:
            model = model_of(real, name)
            with StubServer(models=[model], speed=0) as stub, httpx.Client(base_url=stub.url) as copy:
                for probe in probes(name):
                    if not probe.needs or model.can(probe.needs):
                        yield from _compared(probe, _settled(answered(real, probe)), _settled(answered(copy, probe)))
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise Unverifiable(f"{url} cannot be probed: {error}") from None


def model_of(client: httpx.Client, name: str) -> Model:
    """A declared model like the one on the server. Raises Unverifiable."""
    response = client.post("/api/show", json={"model": name})
    if response.status_code != 200:
        raise Unverifiable(f"{client.base_url} does not show the model {name}: {response.text}")
    shown = response.json()
    if not isinstance(shown, dict):
        raise Unverifiable(f"{client.base_url} is no Ollama: it shows the model {name} as {response.text}")
    info, details = shown.get("model_info") or {}, shown.get("details") or {}
    lengths = [value for key, value in info.items() if key.endswith(".context_length") and isinstance(value, int)]
    widths = [value for key, value in info.items() if key.endswith(".embedding_length") and isinstance(value, int)]
    capabilities = tuple(shown.get("capabilities") or ("completion",))
    return Model(
        name,
        capabilities=capabilities,
        context_length=lengths[0] if lengths else 8192,
        embedding_length=widths[0] if widths else 768,
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
    """A model whose list entry knows less than its own page is run natively."""
    for entry in client.get("/api/tags").json().get("models", []):
        if entry.get("name", "").removesuffix(":latest") == name.removesuffix(":latest"):
            listed = entry.get("capabilities") or []
            return "native" if listed == ["completion"] and len(capabilities) > 1 else "template"
    return "template"


def _settled(answer: dict[str, Any]) -> dict[str, Any]:
    """Headers that no two servers have in common are left out."""
    return {place: value for place, value in answer.items() if value is not None}


def _compared(probe: Probe, real: dict[str, Any], copy: dict[str, Any]) -> Iterator[str]:
    for place in real | copy:
        if real.get(place) != copy.get(place):
            yield f"{probe.name}: {place}: {real.get(place, 'nothing')} there, {copy.get(place, 'nothing')} here"
