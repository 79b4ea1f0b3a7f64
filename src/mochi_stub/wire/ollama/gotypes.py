"""Request bodies held against Go's struct types: names in any case, null is absent, errors in Go's words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isinf
from typing import Any

from mochi_stub.wire.ollama.gosyntax import BadJSON, loads


class BadBody(ValueError):
    """The body cannot be read; the message is what the client is told."""


@dataclass(frozen=True)
class Mismatch:
    """A value has the wrong type. Go reads on to the end and then tells of the first."""

    found: str
    path: str
    wanted: str


Read = Callable[[Any, str, list[Mismatch]], Any]
"""Value, path and collected mismatches to the value as the program wants it."""


def read_body(data: bytes, struct: str, fields: Mapping[str, Read]) -> dict[str, Any]:
    """The body as a `struct`: only its fields, under their own names, only those that are given. Raises BadBody."""
    try:
        value = loads(data)
    except BadJSON as error:
        raise BadBody("missing request body" if str(error) == "EOF" else str(error)) from None
    wrong: list[Mismatch] = []
    body: dict[str, Any] = Struct(fields, f"api.{struct}")(value, "", wrong)
    if wrong:
        first = wrong[0]
        place = f"struct field {struct}.{first.path}" if first.path else "value"
        raise BadBody(f"json: cannot unmarshal {first.found} into Go {place} of type {first.wanted}")
    return body


@dataclass(frozen=True)
class Scalar:
    """A value of one Python type."""

    type: type
    go: str

    def __call__(self, value: Any, path: str, wrong: list[Mismatch]) -> Any:
        if type(value) is self.type:
            return value
        if value is None:
            return self.type()
        wrong.append(Mismatch(_kind(value, number=value if self.type is int else None), path, self.go))
        return self.type()


@dataclass(frozen=True)
class Sequence:
    """An array whose items are all read alike."""

    item: Read
    go: str

    def __call__(self, value: Any, path: str, wrong: list[Mismatch]) -> Any:
        if isinstance(value, list):
            return [self.item(item, path, wrong) for item in value]
        wrong.append(Mismatch(_kind(value), path, self.go))
        return []


@dataclass(frozen=True)
class Struct:
    """An object with fields of its own; names are matched in any case, unknown ones are ignored."""

    fields: Mapping[str, Read]
    go: str

    def __call__(self, value: Any, path: str, wrong: list[Mismatch]) -> Any:
        if not isinstance(value, dict):
            if value is not None:
                wrong.append(Mismatch(_kind(value), path, self.go))
            return {}
        found = {}
        for key, item in value.items():
            name = key if key in self.fields else key.lower()
            if name in self.fields and item is not None:
                found[name] = self.fields[name](item, f"{path}.{name}" if path else name, wrong)
        return found


def anything(value: Any, _path: str, _wrong: list[Mismatch]) -> Any:
    return value


STRING = Scalar(str, "string")
BOOL = Scalar(bool, "bool")
INT = Scalar(int, "int")
STRINGS = Sequence(STRING, "[]string")


def mapping(value: Any, path: str, wrong: list[Mismatch]) -> Any:
    """An object with anything in it, save numbers that no 64-bit float can hold."""
    if not isinstance(value, dict):
        wrong.append(Mismatch(_kind(value), path, "map[string]interface {}"))
        return {}
    if any(isinstance(item, float) and isinf(item) for item in value.values()):
        wrong.append(Mismatch("number", path, "float64"))
    return value


def image(value: Any, path: str, wrong: list[Mismatch]) -> str:
    """Base64, which is checked as Go decodes it; the bytes themselves are of no use here."""
    if value is None:
        return ""
    if not isinstance(value, str):
        wrong.append(Mismatch(_kind(value), path, "api.ImageData"))
        return ""
    if not _BASE64.fullmatch(value.replace("\n", "").replace("\r", "")):
        raise BadBody(f"illegal base64 data at input byte {_bad_byte(value.encode())}")
    return value


_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def _bad_byte(data: bytes) -> int:
    """Where Go stops: at the first byte that cannot stand there, or at the group that is not complete."""
    inked = [at for at, byte in enumerate(data) if byte not in b"\r\n"]
    body = next((index for index, at in enumerate(inked) if data[at] not in _LETTERS), len(inked))
    rest = body % 4
    if body == len(inked):
        return len(data) - rest
    if data[inked[body]] != ord("=") or rest < 2:
        return inked[body]
    after = [*inked[body + 1 :], len(data)]
    if rest == 3 or after[0] == len(data):
        return after[0]
    return after[1] if data[after[0]] == ord("=") else after[0] - 1


def _kind(value: Any, number: Any = None) -> str:
    """What Go calls the value; it also tells which number it was where a whole one was wanted."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number" if number is None else f"number {value}"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


_DURATION = re.compile(r"(?P<number>\d+\.?\d*|\.\d+)(?P<unit>[^\d.]*)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str, quote: Callable[[str], str]) -> float:
    """Seconds, from "1h30m" and the like. Raises BadBody."""
    sign = -1.0 if text.startswith("-") else 1.0
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0.0
    if not rest:
        raise BadBody(f"time: invalid duration {quote(text)}")
    seconds = 0.0
    while rest:
        found = _DURATION.match(rest)
        if found is None:
            raise BadBody(f"time: invalid duration {quote(text)}")
        if not found["unit"]:
            raise BadBody(f"time: missing unit in duration {quote(text)}")
        if found["unit"] not in _UNITS:
            raise BadBody(f"time: unknown unit {quote(found['unit'])} in duration {quote(text)}")
        seconds += float(found["number"]) * _UNITS[found["unit"]]
        rest = rest[found.end() :]
    return sign * seconds
