"""Request bodies as Go reads them, with errors in Go's words.

Of the JSON the first value counts, and what follows it is ignored. The value is decoded into struct types: names match
in any case, null is absent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from math import inf, isinf
from typing import Any, NoReturn

import orjson

from mochi_stub.wire.ollama.go_json import quoted
from mochi_stub.wire.provider_pipeline import HttpError

MAX_DEPTH = 10_000
Mismatches = list[tuple[str, str, str]]
"""Values of the wrong type: what was found, its path, and the Go type. Go reads on and reports the first."""
Read = Callable[[Any, str, Mismatches], Any]
"""Decoder of one value: the value, its path and the mismatches so far to the decoded value."""


def loads(data: bytes) -> Any:
    """Return the first value in the text. Raises Refused."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        end = _value_end(data)
    try:  # Go replaces what is not Unicode instead of refusing it
        return _without_surrogates(json.loads(data[:end].decode("utf-8", "replace"), parse_int=_whole))
    except RecursionError:
        raise HttpError(400, "exceeded max depth") from None


def _whole(digits: str) -> float:
    """Return the number. More digits than Python accepts for an integer are too many for Go, too."""
    return int(digits) if len(digits) < 4300 else float(digits)


def _without_surrogates(value: Any) -> Any:
    """Return the value without lone surrogates."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return [_without_surrogates(item) for item in value] if isinstance(value, list) else value


_SPACE = rb"[ \t\r\n]*"
_OPEN_STRING = rb'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*'
_NUMBER = rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_SCALAR = rb"(?:%s\"|%s(?![0-9.eE])|true|false|null)" % (_OPEN_STRING, _NUMBER)
_FIELD = rb"%s\"%s:" % (_OPEN_STRING, _SPACE)
_LITERALS = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}


def _state(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"%s(?:%s)" % (_SPACE, pattern))


# What may come next. Several items of an array in one step make large arrays quick.
_VALUE = _state(rb"[\[{]|" + _SCALAR)
_FIRST_ITEM = _state(rb"[\[{\]]|" + _SCALAR)
_AFTER_ITEM = _state(rb"(?:,%s%s%s){0,999}[,\]]" % (_SPACE, _SCALAR, _SPACE))
_KEY = _state(_FIELD)
_FIRST_KEY = _state(rb"}|" + _FIELD)
_AFTER_FIELD = _state(rb"[,}]")
_FAILURES = {
    _AFTER_ITEM: "after array element",
    _KEY: "looking for beginning of object key string",
    _FIRST_KEY: "looking for beginning of object key string",
    _AFTER_FIELD: "after object key:value pair",
}


def _value_end(data: bytes) -> int:
    """Return where the first value ends. Raises Refused."""
    if not data.strip(b" \t\r\n"):
        raise HttpError(400, "missing request body")
    at, state = 0, _VALUE
    arrays: list[bool] = []  # of the open containers, the outermost first
    while True:
        found = state.match(data, at)
        at = found.end() if found else _number_end(data, at, state)
        last = data[at - 1]
        if last in b"[{":
            arrays.append(last == ord("["))
            state = _FIRST_ITEM if arrays[-1] else _FIRST_KEY
            if len(arrays) > MAX_DEPTH:
                raise HttpError(400, "exceeded max depth")
        elif last == ord(":"):
            state = _VALUE
        elif last == ord(","):
            state = _VALUE if arrays[-1] else _KEY
        else:
            if last in b"]}":
                arrays.pop()
            if not arrays:
                return at
            state = _AFTER_ITEM if arrays[-1] else _AFTER_FIELD


def _number_end(data: bytes, at: int, state: re.Pattern[bytes]) -> int:
    """Return the end of a number that something else follows. Raises Refused for everything else that is invalid."""
    at = _end(_SPACE, data, at)
    first = _byte(data, at)
    if first == ord('"') and state not in (_AFTER_ITEM, _AFTER_FIELD):
        _fail_in_string(data, _end(_OPEN_STRING, data, at))
    if state in _FAILURES:
        _fail(data, at, _FAILURES[state])
    for index, letter in enumerate(_LITERALS.get(first, b"")):
        if _byte(data, at + index) != letter:
            _fail(data, at + index, f"in literal {_LITERALS[first].decode()} (expecting {_character(letter)})")
    if first not in b"-0123456789":
        _fail(data, at, "looking for beginning of value")
    end = _end(_NUMBER, data, at)
    if end == at:
        _fail(data, at + 1, "in numeric literal")
    has_exponent = b"e" in data[at:end].lower()
    if data[end : end + 1] == b"." and not has_exponent and b"." not in data[at:end]:
        _fail(data, end + 1, "after decimal point in numeric literal")
    if data[end : end + 1] in (b"e", b"E") and not has_exponent:
        _fail(data, _end(rb"[eE][+-]?", data, end), "in exponent of numeric literal")
    return end


def _fail_in_string(data: bytes, at: int) -> NoReturn:
    if _byte(data, at) == ord('"'):
        _fail(data, _end(_SPACE, data, at + 1), "after object key")
    if data[at] != ord("\\"):
        _fail(data, at, "in string literal")
    if _byte(data, at + 1) != ord("u"):
        _fail(data, at + 1, "in string escape code")
    _fail(data, _end(rb"[0-9a-fA-F]*", data, at + 2), "in \\u hexadecimal character escape")


def _end(pattern: bytes, data: bytes, at: int) -> int:
    found = re.compile(pattern).match(data, at)
    return found.end() if found else at


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise HttpError(400, "unexpected EOF")
    return data[at]


def _fail(data: bytes, at: int, where: str) -> NoReturn:
    raise HttpError(400, f"invalid character {_character(_byte(data, at))} {where}")


def _character(byte: int) -> str:
    if byte in b"'\"":
        return "'\\''" if byte == ord("'") else "'\"'"
    return f"'{quoted(chr(byte))[1:-1]}'"


def read_body(data: bytes, name: str, fields: Mapping[str, Read]) -> dict[str, Any]:
    """Return the body as the struct of that name: the given fields, under their declared names. Raises Refused."""
    wrong: Mismatches = []
    body: dict[str, Any] = struct(f"api.{name}", fields)(loads(data), "", wrong)
    if wrong:
        found, path, wanted = wrong[0]
        place = f"struct field {name}.{path}" if path else "value"
        raise HttpError(400, f"json: cannot unmarshal {found} into Go {place} of type {wanted}")
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
        raise HttpError(400, f"illegal base64 data at input byte {_bad_byte(text.encode())}")
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
        raise HttpError(400, f"Unsupported type: '{found}'")
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
            raise HttpError(400, f"time: invalid duration {quoted(text)}")
        if not found["unit"]:
            raise HttpError(400, f"time: missing unit in duration {quoted(text)}")
        if found["unit"] not in _UNITS:
            raise HttpError(400, f"time: unknown unit {quoted(found['unit'])} in duration {quoted(text)}")
        seconds += float(found["number"]) * _UNITS[found["unit"]]
        rest = rest[found.end() :]
        if not rest:
            return -seconds if text.startswith("-") else seconds
