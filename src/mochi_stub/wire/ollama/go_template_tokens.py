"""Tokens of Go templates, with the error messages of Go's lexer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from mochi_stub.wire.ollama.go_json import quoted

KEYWORDS = ("block", "break", "continue", "define", "else", "end", "if", "range", "template", "with")
_KINDS = {**{word: word for word in (*KEYWORDS, "nil")}, "true": "bool", "false": "bool", ".": "dot"}
_SPACES = " \t\r\n"
_SPACE = re.compile(r"[ \t\r\n]*")
_WORD = re.compile(r"\w")
_OPEN = re.compile(r"\{\{(?P<trim>-[ \t\r\n])?")
_CLOSE = re.compile(r"(?P<trim>[ \t\r\n]-)?\}\}")
_WORD_END = re.compile(r"[ \t\r\n.,|:()]|\}\}|\Z")
_NUMBER = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F_]*\.?[0-9a-fA-F_]*(?:[pP][+-]?[0-9_]*)?|0[oO][0-7_]*\.?[0-7_]*|0[bB][01_]*\.?[01_]*"
    r"|[0-9_]*\.?[0-9_]*(?:[eE][+-]?[0-9_]*)?)i?"
)
_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+?(?=[ \t\r\n]-\}\})|[ \t\r\n]+)"
    r'|(?P<string>"(?:[^"\\\n]|\\[^\n])*"|`[^`]*`)'
    r"|(?P<character>'(?:[^'\\\n]|\\[^\n])*')"
    r"|(?P<declare>:=)|(?P<assign>=)|(?P<pipe>\|)|(?P<left>\()|(?P<right>\))"
    r"|(?P<number>(?=[+-]|\.?[0-9]|\.\Z))"
    r"|(?P<variable>\$\w*)|(?P<field>\.\w*)|(?P<word>\w+)"
    r"|(?P<character_error>')|(?P<string_error>\")|(?P<raw_error>`)|(?P<colon_error>:)|(?P<punctuation>[!-~])",
)
_ERRORS = {
    "character_error": "unterminated character constant",
    "string_error": "unterminated quoted string",
    "raw_error": "unterminated raw quoted string",
    "colon_error": "expected :=",
}


@dataclass(frozen=True)
class Token:
    """Token of a template and the number of its line. The text of a token of the kind "error" is an error message."""

    kind: str
    text: str
    line: int

    def __str__(self) -> str:
        """Return the token as error messages show it."""
        if self.kind in ("error", "end of file"):
            return self.text
        if self.kind in (*KEYWORDS, "dot", "nil"):
            return f"<{self.text}>"
        return f"{quoted(self.text[:10])}..." if len(self.text) > 10 else quoted(self.text)


class _LexError(Exception):
    """Error in a token. Its argument is the error message."""


def tokens(template: str) -> Iterator[Token]:
    """Yield the tokens of a template. The last token has the kind "error" or "end of file"."""
    lexer = _Lexer(template)
    try:
        yield from lexer.tokens()
    except _LexError as error:
        yield Token("error", str(error), lexer.line)


class _Lexer:
    """Position in a template. `line` is the line of the next token."""

    def __init__(self, template: str) -> None:
        self.template = template
        self.at, self.line = 0, 1

    def tokens(self) -> Iterator[Token]:
        while opened := _OPEN.search(self.template, self.at):
            text = self.template[self.at : opened.start()]
            kept = text.rstrip(_SPACES) if opened["trim"] else text
            if kept:
                yield self._take("text", self.at + len(kept))
            self._take("space", opened.start())
            if self.template.startswith("/*", opened.end()):
                self._take("open", opened.end())
                self._skip_comment()
            else:
                yield self._take("open", opened.end())
                yield from self._action()
        if self.at < len(self.template):
            yield self._take("text", len(self.template))
        yield Token("end of file", "EOF", self.line)

    def _take(self, kind: str, end: int) -> Token:
        """Return the token that ends at the offset `end`, and move to this offset."""
        token = Token(kind, self.template[self.at : end], self.line)
        self.line += token.text.count("\n")
        self.at = end
        return token

    def _skip_comment(self) -> None:
        end = self.template.find("*/", self.at)
        if end < 0:
            raise _LexError("unclosed comment")
        closed = _CLOSE.match(self.template, end + 2)
        if not closed:
            raise _LexError("comment ends before closing delimiter")
        self._close(closed)

    def _close(self, closed: re.Match[str]) -> Token:
        """Return the closing delimiter, and move to the text after it. A trimming delimiter includes spaces."""
        spaces = _SPACE.match(self.template, closed.end()) if closed["trim"] else None
        return replace(self._take("close", spaces.end() if spaces else closed.end()), text="}}")

    def _action(self) -> Iterator[Token]:
        depth = 0
        while not (closed := _CLOSE.match(self.template, self.at)):
            token = self._action_token()
            depth += (token.kind == "left") - (token.kind == "right")
            if depth < 0:
                raise _LexError("unexpected right paren")
            yield token
        if depth:
            raise _LexError("unclosed left paren")
        yield self._close(closed)

    def _action_token(self) -> Token:
        found = _TOKEN.match(self.template, self.at)
        if not found:
            rest = self.template[self.at : self.at + 1]
            raise _LexError(f"unrecognized character in action: {_code_point(rest)}" if rest else "unclosed action")
        kind, end = str(found.lastgroup), found.end()
        if kind in _ERRORS:
            raise _LexError(_ERRORS[kind])
        if kind == "number":
            return self._number()
        if kind in ("variable", "field", "word"):
            if not _WORD_END.match(self.template, end):
                raise _LexError(f"bad character {_code_point(self.template[end])}")
            kind = _KINDS.get(found[0], "identifier" if kind == "word" else kind)
        return self._take(kind, end)

    def _number(self) -> Token:
        end = _number_end(self.template, self.at)
        if self.template[end : end + 1] in ("+", "-"):  # a complex number, such as 1+2i
            end = _number_end(self.template, end)
            complete = self.template[end - 1] == "i"
        else:
            complete = True
        if _WORD.match(self.template, end):
            complete, end = False, end + 1
        if not complete:
            raise _LexError(f"bad number syntax: {quoted(self.template[self.at : end])}")
        return self._take("number", end)


def _number_end(text: str, at: int) -> int:
    found = _NUMBER.match(text, at)
    return found.end() if found else at


def _code_point(character: str) -> str:
    """Return a character as Go's `%#U` prints it."""
    return f"U+{ord(character):04X}" + (f" '{character}'" if character.isprintable() else "")
