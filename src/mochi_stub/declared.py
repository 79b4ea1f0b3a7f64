"""What a configuration declares of a model (`_model`), as a model of the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from mochi_stub.catalogue import Model
from mochi_stub.document import Item
from mochi_stub.loading import MIN_CONTEXT
from mochi_stub.reading import MANNER

CAPABILITIES = ("completion", "tools", "thinking", "vision", "insert", "embedding", "audio", "image")
EVERYTHING = ("completion", "tools", "thinking", "vision", "insert", "embedding")
MIN_EMBEDDING_LENGTH = 256
EMBEDDING_LENGTH = 768
NEWEST = datetime(2026, 1, 15, tzinfo=timezone.utc)


def _capabilities(item: Item) -> tuple[str, ...]:
    return tuple(one.choice(*CAPABILITIES) for one in item.items("a list of capabilities"))


def _moment(item: Item) -> str:
    text = item.string("a moment like 2026-01-15T09:00:00Z")
    try:
        datetime.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")
    except ValueError:
        raise item.error(f"a moment like 2026-01-15T09:00:00Z, found {text!r}") from None
    return text


def _parameter_size(item: Item) -> str:
    text = item.string("a size like 8.0B")
    try:
        float(text.rstrip("KMB") or "x")
    except ValueError:
        raise item.error(f"a size like 8.0B, found {text!r}") from None
    return text


def _parameters(item: Item) -> dict[str, Any]:
    """Options as a Modelfile sets them: numbers, true or false, texts, lists of texts."""
    return {name: _parameter(name, value) for name, value in item.mapping("a mapping of options").items()}


def _parameter(name: str, item: Item) -> Any:
    if name == "stop":
        return list(item.strings("a list of texts")) if isinstance(item.value, list) else item.string()
    if name in ("num_ctx", "num_predict", "seed", "top_k"):
        return item.whole(-(2**31))
    if isinstance(item.value, (dict, list)) or item.value is None:
        raise item.error("a number, a text, true or false")
    return item.value


_READERS: Mapping[str, Callable[[Item], Any]] = {
    "capabilities": _capabilities,
    "context_length": lambda item: item.whole(4),
    "embedding_length": lambda item: item.whole(MIN_EMBEDDING_LENGTH, 65536),
    "chars_per_token": lambda item: item.number(0, 1000, above=True),
    "habit": lambda item: item.choice("native", "template", "builtin"),
    "family": lambda item: item.string(),
    "parameter_size": _parameter_size,
    "quantization": lambda item: item.string(),
    "size": lambda item: item.whole(0),
    "modified_at": _moment,
    "parameters": _parameters,
    "system": lambda item: item.string(),
    "template": lambda item: item.string(),
    "license": lambda item: item.string(),
    "load_time": lambda item: item.number(0, 3600),
    "out_of_memory_above": lambda item: item.whole(1),
}


def properties(item: Item) -> dict[str, Any]:
    """The fields of `Model` that are declared. Raises ConfigError."""
    entries = item.known((*_READERS, *MANNER), "_model")
    return {name: _READERS[name](value) for name, value in entries.items() if name in _READERS}


def declared(name: str, given: Mapping[str, Any], position: int) -> Model:
    """The model; one that declares nothing can do everything, and has any context. Those declared first are the newest.

    That it can see as well is nobody's wish then, so that it does not get the large context of models that see.
    """
    moment = NEWEST - timedelta(minutes=position)
    default: dict[str, Any] = {
        "capabilities": EVERYTHING,
        "context_length": 131072,
        "embedding_length": EMBEDDING_LENGTH,
        "modified_at": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    if "capabilities" not in given:
        default["least_context"] = MIN_CONTEXT
    return Model(name, **{**default, **given})
