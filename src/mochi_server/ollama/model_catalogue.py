"""Parsers for Ollama's model lists: ``/api/tags``, ``/api/show`` and ``/api/ps``."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import AwareDatetime, TypeAdapter, ValidationError

from mochi_server.errors import OllamaError
from mochi_server.ollama.payloads import qualified_name
from mochi_server.ollama.types import ModelDetails, ModelInfo

_MEBIBYTE = 1024 * 1024
_TIME = TypeAdapter(AwareDatetime)

ModelKey = tuple[str, str]
"""Name and digest of a model. Some servers send the same digest for all models, or none."""


class ModelCatalogue:
    """Models of one ``/api/tags`` response, in the same order. ``known`` contains model details by name and digest."""

    def __init__(self, tags: object, known: Mapping[ModelKey, ModelDetails]) -> None:
        entries = _mapping(tags).get("models")
        if not isinstance(entries, list):
            raise OllamaError("Ollama returned a model list that is not a JSON array.")
        self._models = {
            (_name(entry), str(entry.get("digest"))): _read_tag(entry)
            for entry in entries
            if isinstance(entry, Mapping)
        }
        self._by_name = {qualified_name(key[0]): key for key in reversed(self._models)}
        self._known = known

    def without_details(self) -> list[ModelKey]:
        """Return the key of each model whose details must be requested from ``/api/show``.

        ``/api/tags`` lists incomplete capabilities for some models, and no capabilities in older versions of Ollama.
        """
        return [
            key
            for key, info in self._models.items()
            if key not in self._known and not (set(info.capabilities) > {"completion"} and info.context_length)
        ]

    def models(self) -> list[ModelInfo]:
        """Return all models."""
        return [self._with_details(key) for key in self._models]

    def find(self, name: str) -> tuple[ModelInfo, ModelKey] | None:
        """Return a model and its key, or None if it is not installed. The default tag is ``latest``."""
        if (key := self._by_name.get(qualified_name(name))) is None:
            return None
        return self._with_details(key), key

    def _with_details(self, key: ModelKey) -> ModelInfo:
        info = self._models[key]
        if (details := self._known.get(key)) is None:
            return info
        return replace(
            info,
            capabilities=details.capabilities or info.capabilities,
            context_length=details.context_length or info.context_length,
            num_ctx=details.num_ctx,
        )


def read_show(body: object) -> ModelDetails:
    """Parse a response of ``/api/show``. If Ollama is too old to list capabilities, assume that the model can chat."""
    if not isinstance(body, Mapping):
        raise OllamaError("Ollama returned model details that are not a JSON object.")
    info = _mapping(body.get("model_info"))
    lengths = [info.get(f"{info.get('general.architecture')}.context_length")]
    lengths += [value for key, value in info.items() if key.endswith(".context_length")]
    window = re.search(r"^num_ctx +(\d+)\s*$", str(body.get("parameters") or ""), re.MULTILINE)
    return ModelDetails(
        capabilities=_strings(body.get("capabilities", ["completion"])),
        context_length=next(filter(None, map(_positive, lengths)), None),
        num_ctx=int(window[1]) if window else None,
        raw=dict(body),
    )


def read_loaded(body: object) -> dict[str, int]:
    """Return the context lengths in a response of ``/api/ps``, keyed by model name with tag. Unknown lengths are 0."""
    entries = _mapping(body).get("models")
    return {
        qualified_name(_name(entry)): _positive(entry.get("context_length")) or 0
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, Mapping)
    }


def _read_tag(entry: Mapping[str, Any]) -> ModelInfo:
    details, size = _mapping(entry.get("details")), entry.get("size")
    return ModelInfo(
        name=_name(entry),
        size_mb=round(size / _MEBIBYTE, 1) if isinstance(size, int | float) else 0,
        format=str(details.get("format") or ""),
        family=str(details.get("family") or ""),
        parameter_size=str(details.get("parameter_size") or ""),
        quantization_level=str(details.get("quantization_level") or ""),
        capabilities=_strings(entry.get("capabilities")),
        context_length=_positive(details.get("context_length")),
        remote_host=entry.get("remote_host") or None,
        modified=_timestamp(entry.get("modified_at")),
    )


def _timestamp(value: object) -> int:
    """Return a time in seconds since 1970, or 0 if it is invalid. Ollama sends RFC 3339 with nanoseconds."""
    try:
        return int(_TIME.validate_python(value).timestamp())
    except ValidationError:
        return 0


def _name(entry: Mapping[str, Any]) -> str:
    return str(entry.get("name") or entry.get("model") or "")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _strings(value: object) -> list[str]:
    return list(map(str, value)) if isinstance(value, list) else []


def _positive(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and value > 0 else None
