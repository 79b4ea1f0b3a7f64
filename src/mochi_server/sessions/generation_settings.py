"""Types of the generation settings that requests and imported files can contain."""

import json
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic.config import JsonDict

_NUMBERS = (
    *("num_keep", "seed", "num_predict", "top_k", "top_p", "min_p", "typical_p", "repeat_last_n", "temperature"),
    *("repeat_penalty", "presence_penalty", "frequency_penalty"),
)
"""Ollama's options with a number or null as value. The only other supported option is `stop`."""
OPTION_PROPERTIES: JsonDict = {
    **{name: {"type": ["number", "null"]} for name in _NUMBERS},
    "stop": {"type": ["array", "null"], "items": {"type": "string"}},
}
"""JSON schemas of Ollama's options, by name."""

_NUMBER = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)"
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
"""Units of durations, in seconds."""
_DURATION_PART = rf"{_NUMBER}({'|'.join(_UNITS)})"
_DURATION = rf"[-+]?({_DURATION_PART})+|[-+]?0"
_MAX_SECONDS = 2**63 / 1e9
"""Longest duration of Go, which counts nanoseconds as a signed 64-bit integer."""


def _checked_values(options: dict[str, Any]) -> dict[str, Any]:
    for name in _NUMBERS:
        if isinstance(options.get(name), str | bool | list | dict):
            raise ValueError(f"{name} must be a number")
    stop = options.get("stop")
    if stop is not None and not (isinstance(stop, list) and all(isinstance(text, str) for text in stop)):
        raise ValueError("stop must be a list of strings")
    return _finite(options)


def _finite(value: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError as error:
        raise ValueError("contains a number that is not finite") from error
    return value


def _seconds(value: str | float) -> float:
    if not isinstance(value, str):
        return value
    return sum(float(number) * _UNITS[unit] for number, _, unit in re.findall(_DURATION_PART, value))


def _duration(value: str | float) -> str | float:
    if isinstance(value, str) and not re.fullmatch(_DURATION, value):
        raise ValueError('must be seconds, or a duration such as "5m" or "1h30m"')
    if _seconds(value) > _MAX_SECONDS:
        raise ValueError("must be at most 2562047h; a negative value keeps the model loaded")
    return value


StoredOptions = Annotated[
    dict[str, Any], AfterValidator(_checked_values), Field(json_schema_extra={"properties": OPTION_PROPERTIES})
]
"""Ollama's options, and any other keys. The known options have values of the right types."""
_Duration = Annotated[
    Annotated[str, Field(json_schema_extra={"pattern": f"^({_DURATION})$"})]
    | Annotated[float, Field(allow_inf_nan=False)],
    AfterValidator(_duration),
]
KeepAlive = Annotated[
    _Duration | None,
    Field(description="How long Ollama keeps the model loaded: seconds, or a duration such as `5m`."),
]
ThinkLevel = bool | Literal["low", "medium", "high", "max"]
Think = Annotated[ThinkLevel | None, Field(description="Reasoning of models that can think: on, off or a level.")]
FiniteObject = Annotated[dict[str, Any], AfterValidator(_finite)]
"""Object without NaN and infinity, which JSON does not have."""
Format = Literal["json"] | FiniteObject
