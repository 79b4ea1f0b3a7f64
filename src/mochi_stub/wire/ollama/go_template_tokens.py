"""Tokens of Go templates, with the error messages of Go's lexer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from mochi_stub.wire.ollama.go_json import quoted

KEYWORDS = ("block", "break", "continue", "define", "else", "end", "if", "range", "template", "with")
_KINDS = {**{word: word for word in (*KEYWORDS, "nil")}, "true": "bool", "false": "bool", ".": "dot"}
_SPACES = " \t\r\n"
_OPEN = re.compile(r"\{\{(?P<trim>-[ \t\r\n])?")
_CLOSE = r"[ \t\r\n]-\}\}[ \t\r\n]*|\}\}"  # a trimming delimiter includes the spaces after it
_COMMENT = re.compile(rf"/\*(?:.*?\*/(?:{_CLOSE}|(?P<text_after>))|(?P<unclosed>))", re.DOTALL)
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
_COMMENT_ERRORS = {"unclosed": "unclosed comment", "text_after": "comment ends before closing delimiter"}


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


def tokens(template: str) -> Iterator[Token]:
    """Yield the tokens of a template. The last token has the kind "error" or "end of file"."""
    at = 0
    while opened := _OPEN.search(template, at):
        text = template[at : opened.start()]
        text = text.rstrip(_SPACES) if opened["trim"] else text
        if text:
            yield Token("text", text, at)
        if comment := _COMMENT.match(template, opened.end()):
            if problem := _COMMENT_ERRORS.get(str(comment.lastgroup)):
                yield Token("error", problem, opened.end())
                return
            at = comment.end()
            continue
        yield Token("open", opened[0], opened.start())
        depth = 0
        for found in _TOKEN.finditer(template, opened.end()):
            token = _token(found, depth)
            yield token
            if token.kind == "error":
                return
            at = found.end()
            depth += (token.kind == "left") - (token.kind == "right")
            if token.kind == "close":
                break
    if at < len(template):
        yield Token("text", template[at:], at)
    yield Token("end of file", "EOF", len(template))


def _token(found: re.Match[str], depth: int) -> Token:
    """Return the token of a match. `depth` is the number of open parentheses."""
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
    elif kind == "right" and not depth:
        problem = "unexpected right paren"
    elif kind == "close" and depth:
        problem = "unclosed left paren"
    if problem:
        return Token("error", problem, offset)
    return Token(kind, "}}" if kind == "close" else text, offset, spaced=offset > found.start())


def _code_point(character: str) -> str:
    """Return a character as Go's `%#U` prints it."""
    return f"U+{ord(character):04X}" + (f" '{character}'" if character.isprintable() else "")
