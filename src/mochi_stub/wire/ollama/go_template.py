"""Check of Go templates, with the error messages of Go's package `text/template`.

The parser has the grammar of Go's parser and reports an error at the same token, so that the messages are equal.
"""

from __future__ import annotations

import re
from math import isinf
from typing import NoReturn

from mochi_stub.wire.ollama.go_json import quoted
from mochi_stub.wire.ollama.go_template_tokens import KEYWORDS, Token, tokens

_FUNCTIONS = {
    *("and", "call", "currentDate", "eq", "ge", "gt", "html", "index", "js", "json", "le", "len", "lt", "ne", "not"),
    *("or", "print", "printf", "println", "slice", "toTypeScriptType", "urlquery", "yesterdayDate"),
}
_CONSTANTS = ("bool", "character", "dot", "nil", "number", "string")  # operands that are not executable
_OPERANDS = (*_CONSTANTS, "field", "identifier", "left", "variable")
_ESCAPE = r"\\(?:[abfnrtv\\{}]|[0-3][0-7]{{2}}|x[0-9a-fA-F]{{2}}|u[0-9a-fA-F]{{4}}|U[0-9a-fA-F]{{8}})"
_STRING = re.compile(rf"`[^`]*`|\"(?:[^\\]|{_ESCAPE.format(chr(34))})*\"")
_CHARACTER = re.compile(rf"'(?:[^\\']|{_ESCAPE.format(chr(39))})")
_DIGITS = r"(?:[0-9]+(?:_[0-9]+)*)"
_REAL = rf"[+-]?(?:{_DIGITS}\.?{_DIGITS}?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?"
_NUMBER = re.compile(
    rf"{_REAL}(?:i|[+-]{_REAL}i)?|[+-]?0(?:[xX](?:_?[0-9a-fA-F])+(?:\.[0-9a-fA-F]*)?(?:[pP][+-]?{_DIGITS})?"
    r"|[oO](?:_?[0-7])+|[bB](?:_?[01])+)"
)


def template_error(template: str) -> str | None:
    """Return the error with which Go rejects a template, or None for a valid template."""
    parser = _Parser(template)
    try:
        parser.parse()
        return None
    except _ParseError as error:
        problem = str(error)
    except RecursionError:
        problem = "max expression depth exceeded"
    return f"template: :{parser.line(parser.tokens[parser.furthest])}: {problem}"


class _ParseError(Exception):
    """Error in a template. Its argument is the error message without the line."""


class _Parser:
    def __init__(self, template: str) -> None:
        self.template = template
        self.tokens = list(tokens(template))
        self.at = 0
        self.furthest = 0  # index of the furthest token that was read; errors have the line of this token
        self.action: Token | None = None  # opening delimiter of the action that is parsed
        self.range_depth = 0
        self.variables = ["$"]
        self.defined: set[str] = set()  # names of the nested templates that are not empty

    def parse(self) -> None:
        while self._peek().kind != "end of file":
            if self._peek().kind == "open" and self._peek(1).kind == "define":
                self.at += 2
                name = self._name("define clause")
                self._expect("close", "define clause")
                self._body(name, "define clause")
            elif end := self._item():
                raise _ParseError(f"unexpected {{{{{end}}}}}")

    def line(self, token: Token) -> int:
        return self.template.count("\n", 0, token.offset) + 1

    def _unexpected(self, token: Token, context: str) -> NoReturn:
        if token.kind != "error":
            raise _ParseError(f"unexpected {token} in {context}")
        start = ""
        if self.action and self.line(self.action) != self.line(token):
            in_action = "" if token.text.endswith(" action") else " in action"
            start = f"{in_action} started at :{self.line(self.action)}"
        raise _ParseError(f"{token}{start}")

    def _next(self) -> Token:
        token = self._peek()
        self.at += 1
        return token

    def _peek(self, ahead: int = 0) -> Token:
        self.furthest = max(self.furthest, self.at + ahead)
        return self.tokens[self.at + ahead]

    def _expect(self, kind: str, context: str) -> Token:
        token = self._next()
        if token.kind != kind:
            self._unexpected(token, context)
        return token

    def _name(self, context: str) -> str:
        token = self._expect("string", context)
        self._check_constant(token)
        return token.text[1:-1]

    def _items(self) -> str:
        """Parse texts and actions up to `{{end}}` or `{{else}}`. Return "end" or "else"."""
        while self._peek().kind != "end of file":
            if end := self._item():
                return end
        raise _ParseError("unexpected EOF")

    def _item(self) -> str:
        """Parse a text or an action. Return "end", "else", or "" for a text or another action."""
        token = self._next()
        if token.kind == "text":
            return ""
        if token.kind != "open":
            self._unexpected(token, "input")
        self.action = token
        word = self._action()
        self.action = None
        return word if word in ("end", "else") else ""

    def _action(self) -> str:
        """Parse an action after its opening delimiter. Return the kind of its first token."""
        word = self._peek().kind
        if word not in KEYWORDS or word == "define":
            self._pipeline("command")
            return word
        self._next()
        if word in ("end", "else"):
            if word == "end" or self._peek().kind not in ("if", "with"):
                self._expect("close", word)
        elif word in ("break", "continue"):
            self._expect("close", f"{{{{{word}}}}}")
            if not self.range_depth:
                raise _ParseError(f"{{{{{word}}}}} outside {{{{range}}}}")
        elif word in ("if", "range", "with"):
            self._control(word)
        elif word == "block":
            name = self._name("block clause")
            self._pipeline("block clause")
            self._body(name, "block clause")
        else:
            self._name("template clause")
            if self._peek().kind == "close":
                self._next()
            else:
                self._pipeline("template clause")
        return word

    def _control(self, word: str) -> None:
        declared = len(self.variables)
        self._pipeline(word)
        self.range_depth += word == "range"
        end = self._items()
        self.range_depth -= word == "range"
        if end == "else" and word != "range" and self._peek().kind == word:
            self._next()
            self._control(word)
        elif end == "else" and self._items() != "end":
            raise _ParseError("expected end; found {{else}}")
        del self.variables[declared:]

    def _body(self, name: str, context: str) -> None:
        """Parse the body of a nested template, in which the outer variables and ranges do not exist."""
        start, clause = self.at, self.furthest
        outer = self.variables, self.range_depth, self.action
        self.variables, self.range_depth, self.action = ["$"], 0, None
        end = self._items()
        self.variables, self.range_depth, self.action = outer
        if end != "end":
            if context == "block clause":  # the line of this error is that of the clause
                self.furthest = clause
            raise _ParseError(f"unexpected {{{{{end}}}}} in {context}")
        body = self.tokens[start : self.at]
        # The `{{end}}` is the first `open`. Templates that contain only spaces can be defined several times.
        if [token.kind for token in body].count("open") > 1 or (body[0].kind == "text" and body[0].text.strip()):
            if name in self.defined:
                raise _ParseError(f"template: multiple definition of template {quoted(name)}")
            self.defined.add(name)

    def _pipeline(self, context: str, end: str = "close") -> None:
        self._declarations(context)
        commands: list[str] = []
        while (token := self._peek()).kind != end:
            if token.kind not in _OPERANDS:
                self._unexpected(token, context)
            commands.append(self._command())
        self._next()
        if not commands:
            raise _ParseError(f"missing value for {context}")
        for stage, kind in enumerate(commands[1:], 2):
            if kind in _CONSTANTS:
                raise _ParseError(f"non executable command in pipeline stage {stage}")

    def _declarations(self, context: str) -> None:
        count = 0
        while self._peek().kind == "variable":
            separator = self._peek(1)
            if separator.kind not in ("assign", "declare") and separator.text != ",":
                return
            self.variables.append(self._next().text)
            self._next()
            count += 1
            if separator.text != ",":
                return
            if context != "range" or count > 1:
                raise _ParseError(f"too many declarations in {context}")
            if self._peek().kind not in ("variable", "close", "right"):
                raise _ParseError("range can only initialize variables")

    def _command(self) -> str:
        """Parse the operands of a command and the pipe after it. Return the kind of its first operand."""
        first = self._operand()
        while (token := self._peek()).kind not in ("close", "right", "pipe"):
            if not token.spaced or token.kind not in _OPERANDS:
                self._unexpected(token, "operand")
            self._operand()
        if token.kind == "pipe":
            self._next()
        return first

    def _operand(self) -> str:
        """Parse an operand with its fields, and return its kind."""
        token = self._next()
        if token.kind == "identifier" and token.text not in _FUNCTIONS:
            raise _ParseError(f"function {quoted(token.text)} not defined")
        if token.kind == "variable" and token.text not in self.variables:
            raise _ParseError(f"undefined variable {quoted(token.text)}")
        if token.kind == "left":
            self._pipeline("parenthesized pipeline", "right")
        self._check_constant(token)
        kind = token.kind
        while (field := self._peek()).kind == "field" and not field.spaced:
            if token.kind in _CONSTANTS:
                raise _ParseError(f"unexpected . after term {quoted(token.text)}")
            self._next()
            kind = "chain"
        return kind

    def _check_constant(self, token: Token) -> None:
        if token.kind == "string" and not _STRING.fullmatch(token.text):
            raise _ParseError("invalid syntax")
        if token.kind == "number" and (problem := _number_problem(token.text)):
            raise _ParseError(f"{problem}: {quoted(token.text)}")
        if token.kind == "character" and not _CHARACTER.fullmatch(token.text[:-1]):
            if not _CHARACTER.match(token.text):
                raise _ParseError("invalid syntax")
            raise _ParseError(f"malformed character constant: {token.text}")


def _number_problem(text: str) -> str:
    if not _NUMBER.fullmatch(text):
        return "illegal number syntax"
    if re.search("[.eEpPi]", text):
        real = re.fullmatch(_REAL, text.removesuffix("i"))
        return "illegal number syntax" if real and isinf(float(real[0])) else ""
    digits = text.lstrip("+-").replace("_", "")
    try:
        number = int(digits, 8 if re.match("0[0-9]", digits) else 0)
    except ValueError:  # an octal number with the digit 8 or 9
        return "integer overflow"
    limit = {"-": 2**63, "+": 2**63 - 1}.get(text[0], 2**64 - 1)
    return "integer overflow" if number > limit else ""
