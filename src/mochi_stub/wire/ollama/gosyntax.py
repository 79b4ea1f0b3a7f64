"""JSON as Go reads it: the first value counts, what follows it is ignored, and errors are in Go's words."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

import orjson

from mochi_stub.wire.ollama.gojson import quoted
from mochi_stub.wire.provider_pipeline import Refused

MAX_DEPTH = 10_000


def loads(data: bytes) -> Any:
    """Return the first value in the text. Raises Refused."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _tolerant(data[: _value_end(data)])


def _tolerant(data: bytes) -> Any:
    """Read valid JSON. Go replaces what is not Unicode instead of refusing it."""
    try:
        value = json.loads(data.decode("utf-8", "replace"), parse_int=_whole)
    except RecursionError:
        raise Refused(400, "exceeded max depth") from None
    return _mended(value)


def _whole(digits: str) -> float:
    """Return the number. More digits than Python accepts for an integer are too many for Go, too."""
    return int(digits) if len(digits) < 4300 else float(digits)


def _mended(value: Any) -> Any:
    """Return the value without lone surrogates."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    return [_mended(item) for item in value] if isinstance(value, list) else value


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
        raise Refused(400, "missing request body")
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
                raise Refused(400, "exceeded max depth")
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
        raise Refused(400, "unexpected EOF")
    return data[at]


def _fail(data: bytes, at: int, where: str) -> NoReturn:
    raise Refused(400, f"invalid character {_character(_byte(data, at))} {where}")


def _character(byte: int) -> str:
    if byte in b"'\"":
        return "'\\''" if byte == ord("'") else "'\"'"
    return f"'{quoted(chr(byte))[1:-1]}'"
