"""Model names: `[host/][namespace/]model[:tag]`, and the suffixes that say where a model shall run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from mochi_stub.catalogue import Model
from mochi_stub.wire.ollama.gojson import quoted

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}")
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,349}")


class BadName(ValueError):
    """The name contradicts itself; the message is what the client is told."""


@dataclass(frozen=True)
class Name:
    """A name with its defaults filled in."""

    host: str
    namespace: str
    model: str
    tag: str

    @property
    def key(self) -> str:
        """What two names of one model have in common."""
        return self.full.lower()

    @property
    def full(self) -> str:
        return f"{self.host}/{self.namespace}/{self.model}:{self.tag}"

    @property
    def short(self) -> str:
        """As lists show it: without the default host and namespace, always with the tag."""
        if self.host != "registry.ollama.ai":
            return self.full
        return (
            f"{self.model}:{self.tag}" if self.namespace == "library" else f"{self.namespace}/{self.model}:{self.tag}"
        )


@lru_cache(maxsize=4096)
def parse_name(text: str) -> Name | None:
    """The name in its parts, None where it is malformed."""
    path, colon, tag = text.rpartition(":")
    if not colon or "/" in tag:
        path, tag = text, "latest"
    *before, model = path.split("/")
    if len(before) > 2:
        return None
    host = before[0] if len(before) == 2 else "registry.ollama.ai"
    namespace = before[-1] if before else "library"
    if not _HOST.fullmatch(host):
        return None
    if not all(_PART.fullmatch(part) for part in (namespace, model, tag)):
        return None
    return Name(host, namespace, model, tag)


@lru_cache(maxsize=4096)
def routed(text: str) -> tuple[str, str]:
    """The name without its suffix, and where it wants to run: "cloud", "local" or "". Raises BadName."""
    base, _, tag = text.rpartition(":")
    if not base:
        return text, ""
    inner = base.rpartition(":")[2] if ":" in base else ""
    if {tag, inner} == {"cloud", "local"}:
        raise BadName(f"use either :local or :cloud, not both: {quoted(text)}")
    if tag in ("cloud", "local"):
        return base, tag
    if tag.endswith("-cloud"):
        return text.removesuffix("-cloud"), "cloud"
    return text, ""


def find(models: Iterable[Model], name: Name) -> Model | None:
    """The declared model of that name, upper or lower case alike."""
    for model in models:
        declared = parse_name(model.name)
        if declared is not None and declared.key == name.key:
            return model
    return None
