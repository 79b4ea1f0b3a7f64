"""JSON as Go reads it: the first value counts, what follows is ignored, and errors are told in Go's words."""

from __future__ import annotations

import json
import re
from typing import Any, AnyStr, NoReturn

import orjson

from mochi_stub.wire.ollama.gojson import quoted


class BadJSON(ValueError):
    """The text is not JSON; the message is Go's. An empty text has the message "EOF"."""


def loads(data: bytes) -> Any:
    """The first value in the text. Raises BadJSON."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _tolerant(data[: _value_end(data)])


def _tolerant(data: bytes) -> Any:
    """Go replaces what is not Unicode instead of refusing it."""
    try:
        value = json.loads(data.decode("utf-8", "replace"), parse_int=_whole)
    except RecursionError:
        raise BadJSON("exceeded max depth") from None
    return _mended(value)


def _whole(digits: str) -> float:
    """More digits than Python makes an integer of are too many for Go too."""
    return int(digits) if len(digits) < 4300 else float(digits)


def _mended(value: Any) -> Any:
    """The value without lone surrogates."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    return [_mended(item) for item in value] if isinstance(value, list) else value


_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(rb'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*')
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LITERALS = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}
_PLACES = {
    "Expecting property name enclosed in double quotes": "looking for beginning of object key string",
    "Expecting ':' delimiter": "after object key",
    "Invalid control character at": "in string literal",
}
_TRAILING_COMMAS = {
    "Illegal trailing comma before end of object": "invalid character '}' looking for beginning of object key string",
    "Illegal trailing comma before end of array": "invalid character ']' looking for beginning of value",
}


def _no_constant(name: str) -> None:
    """Python reads NaN and the infinities, Go does not."""
    where = "in numeric literal" if name.startswith("-") else "looking for beginning of value"
    raise BadJSON(f"invalid character {_quoted(ord(name.lstrip('-')[0]))} {where}")


_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_int=str)


def _value_end(data: bytes) -> int:
    """Where the first value ends. Raises BadJSON.

    Python's parser finds the place, as it is quick and so bodies of any size are; what Go says of it is found there.
    """
    text = data.decode("latin-1")  # a character for each byte, since Go tells of bytes
    start = len(_match(_SPACE, text, 0))
    if start == len(text):
        raise BadJSON("EOF")
    try:
        end = _DECODER.raw_decode(text, start)[1]
    except RecursionError:
        raise BadJSON("exceeded max depth") from None
    except json.JSONDecodeError as error:
        raise BadJSON(_told(error.msg, data, error.pos)) from None
    if text[end - 1].isdigit() and text[end : end + 1] in tuple(".eE"):  # half a number
        _Scanner(data, end).behind_value()
    return end


def _told(problem: str, data: bytes, at: int) -> str:
    """What Go says of the problem that Python has found there."""
    if problem in _TRAILING_COMMAS:
        return _TRAILING_COMMAS[problem]
    scanner = _Scanner(data, at)
    try:
        if problem == "Expecting value":
            scanner.scalar()
        elif problem.startswith(("Invalid \\escape", "Invalid \\u", "Unterminated string")):
            scanner.at = data.rfind(b"\\", 0, at + 1) if problem.startswith("Invalid") else at
            scanner.string()
        elif problem == "Expecting ',' delimiter":
            scanner.behind_value()
        scanner.fail(_PLACES.get(problem, "looking for beginning of value"))
    except BadJSON as error:
        return str(error)


class _Scanner:
    """Reads on from a place where something is wrong, to say what."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def behind_value(self) -> None:
        """Neither a comma nor the end of its container stands behind a value."""
        if self._peek() in b".eE" and self.data[self.at - 1 : self.at].isdigit():
            while self.at and self.data[self.at - 1] in b"0123456789.eE+-":
                self.at -= 1
            self._number()
        self.fail("after array element" if self._in_array() else "after object key:value pair")

    def _in_array(self) -> bool:
        """Whether a bracket would close what is open here."""
        text = self.data[: self.at].decode("latin-1") + "]"
        try:
            _DECODER.raw_decode(text, len(_match(_SPACE, text, 0)))
        except json.JSONDecodeError as error:
            return error.pos > self.at
        return True

    def scalar(self) -> None:
        first = self._peek()
        if first in _LITERALS:
            self._literal(_LITERALS[first])
        elif first in b"-0123456789":
            self._number()
        self.fail("looking for beginning of value")

    def string(self) -> NoReturn:
        """From its beginning, or from the backslash that is wrong."""
        self.at += len(_match(_STRING, self.data, self.at))
        self._peek()
        self.at += 1
        if self._peek() != ord("u"):
            self.fail("in string escape code")
        self.at += 1
        while self._peek() in b"0123456789abcdefABCDEF":
            self.at += 1
        self.fail("in \\u hexadecimal character escape")

    def _literal(self, word: bytes) -> None:
        for index, letter in enumerate(word):
            if self._peek() != letter:
                self.fail(f"in literal {word.decode()} (expecting {_quoted(letter)})")
            self.at += 1 if index < len(word) else 0

    def _number(self) -> None:
        number = _match(_NUMBER, self.data, self.at)
        self.at += len(number) or 1
        if not number:
            self.fail("in numeric literal")
        follower = self.data[self.at : self.at + 1]
        if follower == b"." and b"." not in number and b"e" not in number.lower():
            self.at += 1
            self.fail("after decimal point in numeric literal")
        if follower in (b"e", b"E") and b"e" not in number.lower():
            self.at += 2 if self.data[self.at + 1 : self.at + 2] in (b"+", b"-") else 1
            self.fail("in exponent of numeric literal")

    def _peek(self) -> int:
        if self.at >= len(self.data):
            raise BadJSON("unexpected EOF")
        return self.data[self.at]

    def fail(self, where: str) -> NoReturn:
        raise BadJSON(f"invalid character {_quoted(self._peek())} {where}")


def _match(pattern: re.Pattern[AnyStr], data: AnyStr, at: int) -> AnyStr:
    found = pattern.match(data, at)
    return found[0] if found else data[:0]


def _quoted(byte: int) -> str:
    if byte in b"'\"":
        return "'\\''" if byte == ord("'") else "'\"'"
    return f"'{quoted(chr(byte))[1:-1]}'"
