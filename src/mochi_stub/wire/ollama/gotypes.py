"""Request bodies decoded into Go's struct types: names in any case, null is absent, errors in Go's words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import inf, isinf
from typing import Any

from mochi_stub.wire.ollama.gojson import quoted
from mochi_stub.wire.ollama.gosyntax import loads
from mochi_stub.wire.provider_pipeline import Refused

Mismatches = list[tuple[str, str, str]]
"""Values of the wrong type: what was found, its path, and the Go type. Go reads on and reports the first."""
Read = Callable[[Any, str, Mismatches], Any]
"""Decoder of one value: the value, its path and the mismatches so far to the decoded value."""


def read_body(data: bytes, name: str, fields: Mapping[str, Read]) -> dict[str, Any]:
    """Return the body as the struct of that name: the given fields, under their declared names. Raises Refused."""
    wrong: Mismatches = []
    body: dict[str, Any] = struct(f"api.{name}", fields)(loads(data), "", wrong)
    if wrong:
        found, path, wanted = wrong[0]
        place = f"struct field {name}.{path}" if path else "value"
        raise Refused(400, f"json: cannot unmarshal {found} into Go {place} of type {wanted}")
    return body


def _matches(kind: type, go: str, value: Any, path: str, wrong: Mismatches) -> bool:
    """Return whether the value has the type, and record it if it has another one."""
    if type(value) is not kind and value is not None:
        names = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}
        which = f" {value}" if go == "int" and isinstance(value, float) else ""
        wrong.append((names[type(value)] + which, path, go))
    return type(value) is kind


def scalar(go: str, kind: type) -> Read:
    """Decode a value of one Python type. A mismatch decodes to the zero value."""
    return lambda value, path, wrong: value if _matches(kind, go, value, path, wrong) else kind()


def sequence(go: str, item: Read) -> Read:
    """Decode an array."""

    def read(value: Any, path: str, wrong: Mismatches) -> list[Any]:
        return [item(one, path, wrong) for one in value] if _matches(list, go, value, path, wrong) else []

    return read


def struct(go: str, fields: Mapping[str, Read]) -> Read:
    """Decode an object with declared fields. Names match in any case, unknown names are ignored."""

    def read(value: Any, path: str, wrong: Mismatches) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if _matches(dict, go, value, path, wrong):
            for key, item in value.items():
                name = key if key in fields else key.lower()
                if name in fields and item is not None:
                    found[name] = fields[name](item, f"{path}.{name}" if path else name, wrong)
        return found

    return read


def anything(value: Any, _path: str, _wrong: Mismatches) -> Any:
    return value


STRING = scalar("string", str)
BOOL = scalar("bool", bool)
INT = scalar("int", int)


def mapping(value: Any, path: str, wrong: Mismatches) -> Any:
    """Decode an object of any content, except numbers that no 64-bit float can hold."""
    if not _matches(dict, "map[string]interface {}", value, path, wrong):
        return {}
    if any(isinstance(item, float) and isinf(item) for item in value.values()):
        wrong.append(("number", path, "float64"))
    return value


def image(value: Any, path: str, wrong: Mismatches) -> str:
    """Check base64 as Go decodes it. The bytes themselves are not needed."""
    if not _matches(str, "api.ImageData", value, path, wrong):
        return ""
    text: str = value
    if not _BASE64.fullmatch(text.replace("\n", "").replace("\r", "")):
        raise Refused(400, f"illegal base64 data at input byte {_bad_byte(text.encode())}")
    return text


_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def _bad_byte(data: bytes) -> int:
    """Return where Go stops: at the first byte that is not allowed there, or at the incomplete group."""
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


_DURATION = re.compile(r"(?P<number>\d+\.?\d*|\.\d+)(?P<unit>[^\d.]*)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration(value: Any, *_: Any) -> float:
    """Decode a duration, a number of seconds or a text like "1h30m". A negative one means for ever."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        found = {bool: "bool", dict: "map[string]interface {}"}.get(type(value), "[]interface {}")
        raise Refused(400, f"Unsupported type: '{found}'")
    seconds = _parsed(value) if isinstance(value, str) else float(value)
    return inf if seconds < 0 else seconds


def _parsed(text: str) -> float:
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0.0
    seconds = 0.0
    while True:
        found = _DURATION.match(rest)
        if found is None:
            raise Refused(400, f"time: invalid duration {quoted(text)}")
        if not found["unit"]:
            raise Refused(400, f"time: missing unit in duration {quoted(text)}")
        if found["unit"] not in _UNITS:
            raise Refused(400, f"time: unknown unit {quoted(found['unit'])} in duration {quoted(text)}")
        seconds += float(found["number"]) * _UNITS[found["unit"]]
        rest = rest[found.end() :]
        if not rest:
            return -seconds if text.startswith("-") else seconds
