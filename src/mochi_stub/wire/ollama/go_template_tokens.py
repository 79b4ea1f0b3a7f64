"""Tokens of Go templates, with the error messages of Go's lexer."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass

from mochi_stub.wire.ollama.go_json import quoted

KEYWORDS = ("block", "break", "continue", "define", "else", "end", "if", "range", "template", "with")
_KINDS = {**{word: word for word in (*KEYWORDS, "nil")}, "true": "bool", "false": "bool", ".": "dot"}
_SPACES = " \t\r\n"
_OPEN = re.compile(r"\{\{(?P<trim>-[ \t\r\n])?")
_CLOSE = r"[ \t\r\n]-\}\}[ \t\r\n]*|\}\}"  # a trimming delimiter includes the spaces after it
_COMMENT_CLOSE = re.compile(_CLOSE)
_WORD_END = re.compile(r"[ \t\r\n.,|:()]|\}\}|\Z")
_NUMBER = (
    r"[+-]?(?:0[xX][0-9a-fA-F_]*\.?[0-9a-fA-F_]*(?:[pP][+-]?[0-9_]*)?|0[oO][0-7_]*\.?[0-7_]*|0[bB][01_]*\.?[01_]*"
    r"|[0-9_]*\.?[0-9_]*(?:[eE][+-]?[0-9_]*)?)i?"
)
_TOKEN = re.compile(
    r"(?:[ \t\r\n]*?(?=[ \t\r\n]-\}\})|[ \t\r\n]*)"  # spaces, but not the first character of a trimming delimiter
    rf"(?:(?P<close>{_CLOSE})"
    r'|(?P<string>"(?:[^"\\\n]|\\[^\n])*"|`[^`]*`)'
    r"|(?P<character>'(?:[^'\\\n]|\\[^\n])*')"
    r"|(?P<declare>:=)|(?P<assign>=)|(?P<pipe>\|)|(?P<left>\()|(?P<right>\))"
    rf"|(?P<number>(?=[+-]|\.?[0-9]|\.\Z){_NUMBER}(?P<imaginary>(?=[+-]){_NUMBER})?(?P<after_number>\w)?)"
    r"|(?P<variable>\$\w*)|(?P<field>\.\w*)|(?P<word>\w+)"
    r"|(?P<character_error>')|(?P<string_error>\")|(?P<raw_error>`)|(?P<colon_error>:)|(?P<punctuation>[!-~])"
    r"|(?P<end_error>\Z)|(?P<unrecognized>.))",
    re.DOTALL,
)
_ERRORS = {
    "character_error": "unterminated character constant",
    "string_error": "unterminated quoted string",
    "raw_error": "unterminated raw quoted string",
    "colon_error": "expected :=",
    "end_error": "unclosed action",
}


@dataclass(frozen=True)
class Token:
    """Token of a template. `spaced` is true if there is a space before it in an action.

    The text of a token of the kind "error" is an error message.
    """

    kind: str
    text: str
    offset: int
    spaced: bool = False

    def __str__(self) -> str:
        """Return the token as error messages show it."""
        if self.kind in ("error", "end of file"):
            return self.text
        if self.kind in (*KEYWORDS, "dot", "nil"):
            return f"<{self.text}>"
        return f"{quoted(self.text[:10])}..." if len(self.text) > 10 else quoted(self.text)


class _LexError(Exception):
    """Error in a token. Its arguments are the error message and the offset of the token."""


def tokens(template: str) -> Iterator[Token]:
    """Yield the tokens of a template. The last token has the kind "error" or "end of file"."""
    at = 0
    try:
        while opened := _OPEN.search(template, at):
            text = template[at : opened.start()]
            text = text.rstrip(_SPACES) if opened["trim"] else text
            if text:
                yield Token("text", text, at)
            if template.startswith("/*", opened.end()):
                at = _comment_end(template, opened.end())
            else:
                yield Token("open", opened[0], opened.start())
                at = yield from _action(template, opened.end())
    except _LexError as error:
        yield Token("error", *error.args)
        return
    if at < len(template):
        yield Token("text", template[at:], at)
    yield Token("end of file", "EOF", len(template))


def _comment_end(template: str, at: int) -> int:
    end = template.find("*/", at + len("/*"))
    if end < 0:
        raise _LexError("unclosed comment", at)
    closed = _COMMENT_CLOSE.match(template, end + 2)
    if not closed:
        raise _LexError("comment ends before closing delimiter", at)
    return closed.end()


def _action(template: str, at: int) -> Generator[Token, None, int]:
    """Yield the tokens of an action, including its closing delimiter. Return the offset after the action."""
    depth = 0
    for found in _TOKEN.finditer(template, at):
        token = _token(found)
        depth += (token.kind == "left") - (token.kind == "right")
        if depth < 0:
            raise _LexError("unexpected right paren", token.offset)
        if token.kind == "close" and depth:
            raise _LexError("unclosed left paren", token.offset)
        yield token
        if token.kind == "close":
            break
    return found.end()


def _token(found: re.Match[str]) -> Token:
    """Return the token of a match. Raises _LexError if the token is invalid."""
    kind = str(found.lastgroup)
    text, offset = found[kind], found.start(kind)
    problem = _ERRORS.get(kind)
    if kind == "unrecognized":
        problem = f"unrecognized character in action: {_code_point(text)}"
    elif kind == "number" and (found["after_number"] or not (found["imaginary"] or "i").endswith("i")):
        problem = f"bad number syntax: {quoted(text)}"
    elif kind in ("variable", "field", "word"):
        if not _WORD_END.match(found.string, found.end()):
            problem = f"bad character {_code_point(found.string[found.end()])}"
        kind = _KINDS.get(text, "identifier" if kind == "word" else kind)
    if problem:
        raise _LexError(problem, offset)
    return Token(kind, "}}" if kind == "close" else text, offset, spaced=offset > found.start())


def _code_point(character: str) -> str:
    """Return a character as Go's `%#U` prints it."""
    return f"U+{ord(character):04X}" + (f" '{character}'" if character.isprintable() else "")
