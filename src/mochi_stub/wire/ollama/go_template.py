"""Errors of templates with the messages of Go's package `text/template`."""

from __future__ import annotations

import re

_FUNCTIONS = {
    *("and", "break", "call", "continue", "currentDate", "else", "eq", "ge", "gt", "html", "index", "js", "json", "le"),
    *("len", "lt", "ne", "nil", "not", "or", "print", "printf", "println", "slice", "toTypeScriptType", "true"),
    *("false", "urlquery", "yesterdayDate"),
}
_BLOCKS = ("if", "range", "with", "define", "block")
_STRING = r'"(?:[^"\\\n]|\\.)*"|`[^`]*`|\'(?:[^\'\\\n]|\\.)*\''
_COMMENT = r"-?\s*/\*.*?\*/\s*-?"
_TOKENS = rf"(?:{_STRING}|(?!}}}})[^\"`'])*"
_ACTION = re.compile(rf"{{{{(?P<body>{_COMMENT}|{_TOKENS})}}}}", re.DOTALL)
_OPEN_ACTION = re.compile(rf"{{{{{_TOKENS}", re.DOTALL)
_UNTERMINATED = {
    '"': "unterminated quoted string",
    "`": "unterminated raw quoted string",
    "'": "unterminated character constant",
}
_IDENTIFIER = re.compile(rf"{_STRING}|[.$]\w+|\b(?P<name>[A-Za-z_]\w*)", re.DOTALL)


def template_error(template: str) -> str | None:
    """Return the error with which Go rejects a template, or None for a valid template.

    The check finds unclosed actions and blocks, an `end` without a block, and unknown functions.
    """
    at, open_blocks = 0, 0
    while (opened := template.find("{{", at)) >= 0:
        action = _ACTION.match(template, opened)
        if action is None:
            end = _end_of(_OPEN_ACTION, template, opened)
            return _error(template[:end].rstrip(), _UNTERMINATED.get(template[end : end + 1], "unclosed action"))
        body, before = action["body"], template[:opened]
        names = [] if "/*" in body else [found["name"] for found in _IDENTIFIER.finditer(body) if found["name"]]
        keyword = names[0] if names and body.strip("- \t\r\n").startswith(names[0]) else ""
        if keyword == "end" and not open_blocks:
            return _error(before, "unexpected {{end}}")
        open_blocks += (keyword in _BLOCKS) - (keyword == "end")
        unknown = [name for name in names if name not in {*_FUNCTIONS, *_BLOCKS, "end", "template"}]
        if unknown:
            return _error(before, f'function "{unknown[0]}" not defined')
        at = action.end()
    return _error(template, "unexpected EOF") if open_blocks else None


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _error(text_before: str, problem: str) -> str:
    line = text_before.count("\n") + 1
    return f"template: :{line}: {problem}"
