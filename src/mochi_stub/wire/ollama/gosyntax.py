"""JSON as Go reads it: the first value counts, what follows is ignored, and errors are told in Go's words."""

from __future__ import annotations

import json
import re
from typing import Any

import orjson

from mochi_stub.wire.ollama.gojson import quoted


class BadJSON(ValueError):
    """The text is not JSON; the message is Go's. An empty text has the message "EOF"."""


def loads(data: bytes) -> Any:
    """The first value in the text. Raises BadJSON."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return _tolerant(data[: _Scanner(data).value_end()])


def _tolerant(data: bytes) -> Any:
    """Go replaces what is not Unicode instead of refusing it."""
    try:
        value = json.loads(data.decode("utf-8", "replace"))
    except RecursionError:
        raise BadJSON("exceeded max depth") from None
    return _mended(value)


def _mended(value: Any) -> Any:
    """The value without lone surrogates."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    return [_mended(item) for item in value] if isinstance(value, list) else value


MAX_DEPTH = 10_000

_SPACE = re.compile(rb"[ \t\r\n]*")
_STRING = re.compile(rb'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*')
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LITERALS = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}


class _Scanner:
    """Walks over one value; kept for texts that the fast parser refuses."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def value_end(self) -> int:
        """Where the first value ends. Raises BadJSON."""
        self._space()
        if self.at == len(self.data):
            raise BadJSON("EOF")
        closers: list[int] = []
        while True:
            if not self._value(closers):
                continue
            while closers and self._close(closers):
                pass
            if not closers:
                return self.at

    def _value(self, closers: list[int]) -> bool:
        """Read a value; False where it is an opened object or array with something in it."""
        first = self._peek()
        if first in b"{[":
            self.at += 1
            if len(closers) == MAX_DEPTH:
                raise BadJSON("exceeded max depth")
            closers.append(ord("}") if first == ord("{") else ord("]"))
            self._space()
            if self._peek() == closers[-1]:
                return True
            if first == ord("{"):
                self._key()
            return False
        self._scalar(first)
        self._space()
        return True

    def _close(self, closers: list[int]) -> bool:
        """Behind a value: True where its container closes too, False where a comma asks for the next value."""
        here = self._peek()
        if here == closers[-1]:
            closers.pop()
            self.at += 1
            self._space()
            return True
        if here != ord(","):
            self._fail("after object key:value pair" if closers[-1] == ord("}") else "after array element")
        self.at += 1
        self._space()
        if closers[-1] == ord("}"):
            self._key()
        return False

    def _key(self) -> None:
        if self._peek() != ord('"'):
            self._fail("looking for beginning of object key string")
        self._string()
        self._space()
        if self._peek() != ord(":"):
            self._fail("after object key")
        self.at += 1
        self._space()

    def _scalar(self, first: int) -> None:
        if first == ord('"'):
            self._string()
        elif first in _LITERALS:
            self._literal(_LITERALS[first])
        elif first in b"-0123456789":
            self._number()
        else:
            self._fail("looking for beginning of value")

    def _string(self) -> None:
        self.at += len(_match(_STRING, self.data, self.at))
        if self._peek() == ord('"'):
            self.at += 1
            return
        if self._peek() != ord("\\"):
            self._fail("in string literal")
        self.at += 1
        if self._peek() != ord("u"):
            self._fail("in string escape code")
        self.at += 1
        while self._peek() in b"0123456789abcdefABCDEF":
            self.at += 1
        self._fail("in \\u hexadecimal character escape")

    def _literal(self, word: bytes) -> None:
        for index, letter in enumerate(word):
            if self._peek() != letter:
                self._fail(f"in literal {word.decode()} (expecting {_quoted(letter)})")
            self.at += 1 if index < len(word) else 0

    def _number(self) -> None:
        number = _match(_NUMBER, self.data, self.at)
        self.at += len(number) or 1
        if not number:
            self._fail("in numeric literal")
        follower = self.data[self.at : self.at + 1]
        if follower == b"." and b"." not in number and b"e" not in number.lower():
            self.at += 1
            self._fail("after decimal point in numeric literal")
        if follower in (b"e", b"E") and b"e" not in number.lower():
            self.at += 2 if self.data[self.at + 1 : self.at + 2] in (b"+", b"-") else 1
            self._fail("in exponent of numeric literal")

    def _space(self) -> None:
        self.at += len(_match(_SPACE, self.data, self.at))

    def _peek(self) -> int:
        if self.at >= len(self.data):
            raise BadJSON("unexpected EOF")
        return self.data[self.at]

    def _fail(self, where: str) -> None:
        raise BadJSON(f"invalid character {_quoted(self._peek())} {where}")


def _match(pattern: re.Pattern[bytes], data: bytes, at: int) -> bytes:
    found = pattern.match(data, at)
    return found[0] if found else b""


def _quoted(byte: int) -> str:
    if byte in b"'\"":
        return "'\\''" if byte == ord("'") else "'\"'"
    return f"'{quoted(chr(byte))[1:-1]}'"
