"""Model names `[host/][namespace/]model[:tag]`, and the lookup of the requested model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from mochi_stub.handlers import Stub
from mochi_stub.json_encoding import quoted
from mochi_stub.models.catalogue import Model
from mochi_stub.reply import HttpError

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}")
_NAMESPACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,79}")
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,349}")


@dataclass(frozen=True)
class Name:
    """Parsed model name. Missing parts have their default values."""

    host: str
    namespace: str
    model: str
    tag: str

    @property
    def full(self) -> str:
        return f"{self.host}/{self.namespace}/{self.model}:{self.tag}"

    @property
    def short(self) -> str:
        """Name in model lists: without the default host and namespace, but with the tag."""
        return self.full.removeprefix("registry.ollama.ai/library/").removeprefix("registry.ollama.ai/")


@lru_cache(maxsize=4096)
def parse_name(text: str) -> Name | None:
    """Parse a model name, or return None if it is malformed."""
    name = split_name(text)
    return name if is_valid(name) else None


@lru_cache(maxsize=4096)
def split_name(text: str) -> Name:
    """Split a model name into its parts, without a check of the parts. A URL scheme before the host is dropped."""
    path, colon, tag = text.rpartition(":")
    if not colon or "/" in tag:
        path, tag = text, "latest"
    *prefixes, model = path.split("/")
    host = "/".join(prefixes[:-1]) if len(prefixes) > 1 else "registry.ollama.ai"
    host = host.partition("://")[2] or host
    namespace = prefixes[-1] if prefixes else "library"
    return Name(host, namespace, model, tag)


def is_valid(name: Name) -> bool:
    """Return whether all parts of a name have valid characters and lengths."""
    has_valid_path = _HOST.fullmatch(name.host) and _NAMESPACE.fullmatch(name.namespace)
    return bool(has_valid_path and _PART.fullmatch(name.model) and _PART.fullmatch(name.tag))


@lru_cache(maxsize=4096)
def routed(text: str) -> tuple[str, str]:
    """Remove the location suffix of a name. Return the name and "cloud", "local" or "". Raises HttpError."""
    base, _, tag = text.rpartition(":")
    if not base:
        return text, ""
    inner = base.rpartition(":")[2] if ":" in base else ""
    if {tag, inner} == {"cloud", "local"}:
        raise HttpError(400, f"use either :local or :cloud, not both: {quoted(text)}")
    if tag in ("cloud", "local"):
        return base, tag
    if tag.endswith("-cloud"):
        return text.removesuffix("-cloud"), "cloud"
    return text, ""


def find(models: Iterable[Model], name: Name) -> Model | None:
    """Return the model with this name, or None for an unknown name. Names are compared case-insensitively."""
    full_name = name.full.lower()
    return next((model for model in models if split_name(model.name).full.lower() == full_name), None)


def short_name(model: Model) -> str:
    """Return the name that model lists show, including the tag."""
    name = parse_name(model.name)
    return name.short if name else model.name


no_remote = partial(HttpError, 403, "ollama cloud is disabled: remote model is unavailable")
no_remote_details = partial(HttpError, 403, "ollama cloud is disabled: remote model details are unavailable")
invalid_name = partial(HttpError, 400, "invalid model name")
model_required = partial(HttpError, 400, "model is required")


def local_model(
    stub: Stub, name: str, *, error_if_empty: HttpError | None = None, error_if_missing: HttpError | None = None
) -> Model:
    """Return the model with this name.

    Raises `error_if_empty` (default: 400) for an empty name, `error_if_missing` (default: 404) for an unknown name, and
    other HttpErrors for an invalid name (400) and a cloud model (403).
    """
    if not name:
        raise error_if_empty or model_required()
    base_name, location = routed(name)
    if location == "cloud":
        raise no_remote()
    model = find(stub.models, valid_name(base_name))
    if model is None:
        raise error_if_missing or not_found(name)
    return model


def requested_name(body: Mapping[str, Any]) -> str:
    """Return the model name from the field `model` or the deprecated field `name`, or "" if both are missing."""
    return body.get("model") or body.get("name") or ""


def valid_name(text: str, field: str = "") -> Name:
    """Parse a model name. Raises HttpError for an invalid name. The error message begins with `field`, if set."""
    name = parse_name(text)
    if name is None:
        raise HttpError(400, f"{field} {quoted(text)} is invalid") if field else invalid_name()
    return name


def not_found(name: str) -> HttpError:
    return HttpError(404, f"model '{name}' not found")
