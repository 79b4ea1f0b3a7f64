"""Selection of tools by the words of a message, and arguments for a tool from a message and the
tool's schema.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mochi_stub.prompt import ToolCall
from mochi_stub.recorded_reply import listed
from mochi_stub.replies import stable_hash
from mochi_stub.replies.schema_sample import Schema, is_finite, schema_sample

_MISSING = object()
_WORD = re.compile(r"[^\W_]{3,}")
_CAMEL_CASE = re.compile(r"(?<=[a-z])(?=[A-Z])")
_COMMON_WORDS = (
    "about add all also and any are been call can could does find for from get give has have "
    "here how into its just like list make more need new not now one only optional out please "
    "return returns run search set should show some tell text than that the their them then "
    "there they this tool use user uses were what when where which will with would you your"
)
COMMON = frozenset(_COMMON_WORDS.split())
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|`([^`]+)`|(?<!\w)'([^']+)'(?!\w)")
_NUMBER = re.compile(r"(?<![\w.])-?\d{1,15}(?:\.\d{1,15})?(?!\w|\.\d)")
_PROPER_NAME = r"[A-Z][\w'/-]*(?: [A-Z][\w'/-]*)*"
# capitalized words inside a sentence
_NAME = re.compile(rf"(?<![.!?:] )(?<!^)\b{_PROPER_NAME}", re.MULTILINE)
_PREPOSITION = r"\b(?:in|of|for|at|from|about|named|called)\s+"
_NAME_AFTER_PREPOSITION = re.compile(rf"{_PREPOSITION}({_PROPER_NAME})")
_WORD_AFTER_PREPOSITION = re.compile(rf"{_PREPOSITION}(?!the\b|an?\b)([\w-]+)", re.IGNORECASE)
_PATH = re.compile(r"(?<!\S)[\w~.-]*[/\\][\w./\\-]*\w|\b[\w-]+\.[A-Za-z]\w{0,4}\b")
_TASK = re.compile(r"\bto\s+(.+)", re.DOTALL)
# `- name: description`
_LIST_ITEM = re.compile(r"^\s*[-*]\s+`?([\w.-]+)`?\s*(?::|$)", re.MULTILINE)
_CHECKED_KEYWORDS = {
    "type",
    "title",
    "description",
    "default",
    "enum",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
}
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
}
_PATH_ENDINGS = ("path", "file", "folder", "dir", "directory")
_TASK_NAMES = (
    "instruction",
    "instructions",
    "task",
    "prompt",
    "query",
    "question",
    "message",
    "text",
    "content",
    "input",
)


@dataclass(frozen=True)
class Function:
    """A function that a request offers as a tool."""

    name: str
    description: str = ""
    parameters: Schema = field(default_factory=dict)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Regular expression that finds the name in a text.

        Spaces, hyphens, dots, colons or slashes may replace the underscores.
        """
        words = filter(None, re.split(r"[_\W]+", self.name))
        escaped = map(re.escape, words)
        name = r"[\s_.:/-]+".join(escaped)
        return re.compile(rf"(?<!\w){name}(?!\w)", re.IGNORECASE)

    def relevance(self, text: str) -> tuple[int, int]:
        """Return how many words of the name, and how many of the description and the parameters,
        are in a text.
        """
        words = _words(text)
        name = _CAMEL_CASE.sub(" ", self.name)
        properties = self.parameters.get("properties", {})
        description = " ".join([self.description, *properties])
        in_name = words & _words(name)
        in_description = words & _words(description)
        return len(in_name), len(in_description)


def functions(tools: Any) -> list[Function]:
    """Return the functions in a list of tools.

    Tools that are not functions with a name are skipped.
    """
    if not isinstance(tools, (list, tuple)):
        return []
    found = []
    for tool in tools:
        function = tool
        if isinstance(tool, Mapping):
            function = tool.get("function", tool)
        if not isinstance(function, Mapping):
            continue
        name = function.get("name")
        if not isinstance(name, str):
            continue
        description = function.get("description")
        if not isinstance(description, str):
            description = ""
        schema = function.get("parameters")
        if not isinstance(schema, Mapping):
            schema = {}
        if not isinstance(schema.get("properties", {}), Mapping):
            schema = {}
        found.append(Function(name, description, schema))
    return found


def functions_to_call(
    offered: list[Function], text: str, *, by_description: bool = False
) -> list[Function]:
    """Return the functions whose names are in a text, or else the function with the most words of
    its name in the text.

    If names are equally similar, the words of descriptions and parameters count. With
    `by_description` they suffice. Return no function if the text has no such words.
    """
    named = []
    for function in offered:
        if function.name and function.pattern.search(text):
            named.append(function)
    if named or not offered:
        return named
    best = max(offered, key=lambda function: function.relevance(text))
    in_name, in_description = best.relevance(text)
    if in_name or (by_description and in_description):
        return [best]
    return []


def call_of(function: Function, text: str, *, complete: bool = False) -> ToolCall:
    """Return a call whose arguments come from a text, or from a sample of the schema if the text
    has no valid ones.

    Optional arguments are omitted unless the text assigns them (`name=value`) or contains a value
    of their `enum`. If the schema has no list `required`, those without a default can also be
    guessed. With `complete`, or `minProperties` in the schema, all arguments are required.
    """
    arguments = _Arguments(function, text, complete)
    return ToolCall(function.name, dict(arguments.items()))


def _words(text: str) -> set[str]:
    lower = text.lower().replace("_", " ")
    words = set(_WORD.findall(lower))
    return words - COMMON


@dataclass
class _Arguments:
    """Reader of arguments from a text.

    Each argument removes the number, quoted text, name or path that it uses, so that the next guess
    gets another.
    """

    function: Function
    text: str
    complete: bool

    def __post_init__(self) -> None:
        rest = self.function.pattern.sub(" ", self.text)
        self.rest = rest
        self.numbers = _NUMBER.findall(rest)
        self.quoted = ["".join(groups) for groups in _QUOTED.findall(rest)]
        self.names = _NAME_AFTER_PREPOSITION.findall(rest) or _NAME.findall(rest)
        if not self.names:
            last_words = _WORD_AFTER_PREPOSITION.findall(rest)
            self.names = last_words[-1:]
        self.paths = _PATH.findall(rest)

    def items(self) -> Iterator[tuple[str, Any]]:
        schema = self.function.parameters
        sample = {}
        if schema:
            sample = schema_sample(schema, stable_hash(self.text))
        if not isinstance(sample, Mapping):
            return
        for name, sample_value in sample.items():
            value = self._argument(name, sample_value)
            if value is not _MISSING:
                yield name, value

    def _argument(self, name: str, sample_value: Any) -> Any:
        """Return an argument, or `_MISSING` if it is omitted."""
        properties = self.function.parameters.get("properties", {})
        declared = _alternative(properties.get(name))
        found = self._assigned(name, declared)
        if found is _MISSING and self._may_guess(name, declared):
            found = self._guessed(name, declared, sample_value)
        if found is _MISSING:
            return sample_value if self._is_required(name) else _MISSING
        if name in properties and _permits(declared, found):
            return found
        return sample_value

    def _is_required(self, name: str) -> bool:
        schema = self.function.parameters
        return self.complete or "minProperties" in schema or name in listed(schema, "required")

    def _may_guess(self, name: str, declared: Schema) -> bool:
        if self._is_required(name):
            return True
        lists_required = isinstance(self.function.parameters.get("required"), list)
        return not lists_required and "default" not in declared

    def _assigned(self, name: str, declared: Schema) -> Any:
        """Return the value after `name=` or `name:`, or else the first enum value in the text.

        Return `_MISSING` if there is neither, or if the value does not have the declared type.
        """
        # A mark at the end of a word ends the sentence.
        word = r"[^\s,;)}]*[^\s,;)}.!?]|[^\s,;)}]+"
        value = rf"(?:\"([^\"]*)\"|'([^']*)'|({word}))"
        pattern = rf"\b{re.escape(name)}\b[\"']?\s*[=:]\s*{value}"
        assigned = re.search(pattern, self.text)
        if assigned:
            found = str(assigned[assigned.lastindex or 0])
            self._mark_used(found)
            return _converted(found, declared)
        options = declared.get("enum")
        if not isinstance(options, list):
            return _MISSING
        for option in options:
            if isinstance(option, str) and _contains(self.text, option):
                return option
        return _MISSING

    def _guessed(self, name: str, declared: Schema, sample: Any) -> Any:
        """Return a value of the sample's type from the text, or `_MISSING`."""
        if "enum" in declared or "const" in declared or isinstance(sample, bool):
            return _MISSING
        if isinstance(sample, (int, float)) and self.numbers:
            first = self.numbers.pop(0)
            return _converted(first, declared)
        if isinstance(sample, str):
            return self._guessed_text(name.lower()) or _MISSING
        return _MISSING

    def _guessed_text(self, name: str) -> str:
        if name in _TASK_NAMES:
            return self._guessed_task()
        for option in _LIST_ITEM.findall(self.function.description):
            if _contains(self.rest, option):
                return str(option)
        if name.endswith(_PATH_ENDINGS) and self.paths:
            return self._guessed_path()
        if self.quoted:
            return self.quoted.pop(0)
        if self.names:
            return str(self.names.pop(0))
        return ""

    def _guessed_task(self) -> str:
        if self.quoted:
            return self.quoted.pop(0)
        task = _TASK.search(self.text)
        if task is None:
            return self.text
        return task[1].strip()

    def _guessed_path(self) -> str:
        found = str(self.paths.pop(0))
        for quoted in self.quoted:
            if found in quoted:  # a quoted path can contain spaces
                found = quoted
                break
        self._mark_used(found)
        return found

    def _mark_used(self, value: str) -> None:
        for found in (self.numbers, self.quoted, self.names, self.paths):
            if value in found:
                found.remove(value)


def _contains(text: str, word: str) -> bool:
    pattern = rf"(?<!\w){re.escape(word)}(?!\w)"
    return re.search(pattern, text, re.IGNORECASE) is not None


def _alternative(schema: Any) -> Schema:
    """Return the first alternative of a schema that is not null, with one type and the `default`
    of the schema.
    """
    if not isinstance(schema, Mapping):
        return {}
    found: Schema = schema
    for option in listed(schema, "anyOf"):
        if isinstance(option, Mapping) and option.get("type") != "null":
            found = {"default": schema["default"], **option} if "default" in schema else option
            break
    kind = found.get("type")
    if not kind:
        return found
    if isinstance(kind, list):
        others = [each for each in kind if each != "null"]
        kind = others[0] if others else "null"
    return {**found, "type": kind}


def _permits(schema: Schema, value: str | float) -> bool:
    """Return whether a schema permits a value.

    If the schema has keywords that are not checked here, return False.
    """
    kind = schema.get("type")
    python_type = _TYPES.get(str(kind), object)
    if not isinstance(value, python_type) or schema.keys() - _CHECKED_KEYWORDS:
        return False
    options = schema.get("enum")
    if isinstance(options, list):
        return value in options
    if isinstance(value, str):
        return _permits_length(schema, len(value))
    if isinstance(value, bool):
        return kind == "boolean"
    return _permits_number(schema, value)


def _permits_length(schema: Schema, length: int) -> bool:
    shortest = _limit(schema, "minLength", 0)
    longest = _limit(schema, "maxLength", math.inf)
    return shortest <= length <= longest


def _permits_number(schema: Schema, number: float) -> bool:
    lowest = _limit(schema, "minimum", -math.inf)
    highest = _limit(schema, "maximum", math.inf)
    if not lowest <= number <= highest:
        return False
    above = _limit(schema, "exclusiveMinimum", -math.inf)
    below = _limit(schema, "exclusiveMaximum", math.inf)
    return above < number < below


def _limit(schema: Schema, keyword: str, default: float) -> float:
    """Return a limit, or the default if it is missing or not a number, such as a null."""
    limit = schema.get(keyword)
    if is_finite(limit):
        return limit
    return default


def _converted(value: str, declared: Schema) -> Any:
    """Return a value as its declared type, or `_MISSING` if that is impossible."""
    kind = declared.get("type")
    if kind in (None, "string"):
        return value
    if kind not in ("integer", "number", "boolean"):
        return _MISSING
    try:
        found = json.loads(value.lower())
    except (ValueError, RecursionError):
        return _MISSING
    is_boolean = isinstance(found, bool)  # which is an int in Python
    if isinstance(found, _TYPES[kind]) and is_boolean == (kind == "boolean"):
        return found
    return _MISSING
