"""YAML and JSON files: parsed data, validation with Pydantic, and error messages that contain the
line of a value.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Generic, NamedTuple, TypeAlias, TypeVar, cast

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from mochi_stub.replies import shortened

# Nanoseconds; file changes within this time can have the same modification time.
MTIME_RESOLUTION = 100_000_000
_T = TypeVar("_T")
Location: TypeAlias = "tuple[str | int, ...]"
"""Keys and indices that lead to a value of a file."""
_HEADER = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*")  # a name and a value


class ConfigError(ValueError):
    """Invalid configuration or recording. The text is one line, `file:line: expected …`."""


class Scalar(str):
    """Text of a scalar as written in the file.

    `value` is the number, the truth value or None that it stands for.
    """

    def __new__(cls, text: str, value: Any) -> Self:
        scalar = super().__new__(cls, text)
        scalar.value = value
        return scalar

    value: Any


def plain(value: Any) -> Any:
    """Return parsed data with the values of scalars instead of their texts."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, Scalar):
        return value.value
    return value


def wrong_key(key: str, expected: str) -> PydanticCustomError:
    """Return the error of a key, for a validator to raise. `Document.validate` adds the line."""
    context = {"text": f"{expected}, found {key!r}", "key": key}
    return PydanticCustomError("wrong_key", "{text}", context)


def _checked_headers(headers: dict[str, str]) -> dict[str, str]:
    checked = {}
    for name, value in headers.items():
        if not _HEADER.fullmatch(f"{name}:{value}"):
            raise wrong_key(name, "a valid header")
        checked[name.lower()] = value
    return checked


Headers: TypeAlias = Annotated["dict[str, str]", AfterValidator(_checked_headers)]
"""Mapping of HTTP headers. Their names become lower case."""


class Entry(BaseModel):
    """Base class of the mappings in a configuration.

    Unknown keys are refused. A null value in the file counts as missing.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        known = list(cls.model_fields)
        for declared in cls.model_fields.values():
            alias = declared.validation_alias
            if isinstance(alias, str):
                known.append(alias)
        given = {}
        for key, item in value.items():
            if key not in known:
                expected = _expected_key(key, known)
                raise wrong_key(key, expected)
            if not is_null(item):
                given[key] = item
        return given


def is_null(value: Any) -> bool:
    """Return whether parsed data is a null of the file."""
    return isinstance(value, Scalar) and value.value is None


def _expected_key(key: str, known: list[str]) -> str:
    close = get_close_matches(key, known, 1)
    if close:
        return f"the key {close[0]}"
    names = ", ".join(known)
    return f"one of {names}"


@lru_cache
def _adapter(schema: Any) -> TypeAdapter[Any]:
    return TypeAdapter(schema)


class _Place(NamedTuple):
    """Lines of a value and of its key in a file, and the last key of its path."""

    key_line: int
    value_line: int
    key: str


@dataclass(frozen=True)
class Document:
    """Parsed file. Paths consist of the keys and the indices that lead to a value of `data`."""

    file: str
    data: Any
    root: yaml.Node | None

    def validate(self, schema: type[_T], value: Any, *path: str | int) -> _T:
        """Validate a value, which is at `path` in the file, and return it.

        Validators get the directory of the file as their context. Raises ConfigError for the
        first error.
        """
        adapter: TypeAdapter[_T] = _adapter(cast(Any, schema))
        folder = Path(self.file).parent
        try:
            return adapter.validate_python(value, context=folder)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
        context = first.get("ctx", {})
        path = (*path, *first["loc"])
        if first["type"] == "wrong_key":
            raise self.error_at_key(first["msg"], *path, context["key"])
        cause = context.get("error")
        if isinstance(cause, ConfigError):  # of another file
            raise cause
        expected = _expected(first, self._find(*path).key)
        raise self.error_at_value(expected, *path)

    def error_at_value(self, expected: str, *path: str | int) -> ConfigError:
        """Return an error with the line of the value at a path, for the caller to raise."""
        return self._error_at(self._find(*path).value_line, expected)

    def error_at_key(self, expected: str, *path: str | int) -> ConfigError:
        """Return an error with the line of the key at a path, for the caller to raise."""
        return self._error_at(self._find(*path).key_line, expected)

    def _error_at(self, line: int, expected: str) -> ConfigError:
        return ConfigError(f"{self.file}:{line}: expected {expected}")

    def _find(self, *path: str | int) -> _Place:
        """Return the place of the value at a path. Unknown steps are skipped."""
        node = self.root
        key_line = 1
        value_line = 1
        name = ""
        for step in path:
            found = _child(node, step)
            if found is None:
                continue
            key, node = found
            key_line = _line_of(key)
            # An alias has the line of its anchor, which is above the key.
            value_line = max(_line_of(node), key_line)
            if isinstance(step, str):
                name = step
        return _Place(key_line, value_line, name)


def _child(node: yaml.Node | None, step: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """Return the nodes of the key and the value at a step of a path.

    For an item of a list, both are the item. For an unknown step, return None.
    """
    found = None
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == step:
                found = (key, value)
    elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
        for item in node.value[step : step + 1]:
            found = (item, item)
    return found


def _line_of(node: yaml.Node) -> int:
    line: int = node.start_mark.line
    return line + 1


def _expected(error: Any, key: str) -> str:
    kind = error["type"]
    if kind == "missing":
        missing = f"the key {error['loc'][-1]}"
        if key:
            missing += f" in {key}"
        return missing
    if kind == "value_error":
        cause = error["ctx"]["error"]
        return str(cause)
    kinds = {
        "model_type": "a mapping",
        "dict_type": "a mapping",
        "list_type": "a list",
        "tuple_type": "a list",
    }
    message = kinds.get(kind, error["msg"])
    text, _, _ = message.removeprefix("Input should be ").partition(", unable")
    if text.startswith(("greater", "less")):
        text = f"a number {text}"
    if key:
        text += f" as {key}"
    found = _shown(plain(error["input"]))
    return f"{text}, found {found}"


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return shortened(repr(value), 57)


@dataclass
class WatchedFile(Generic[_T]):
    """File that is parsed again after its content has changed, and at each call while it is
    invalid.

    Each call of `current` checks the file's metadata.
    """

    path: Path
    parse: Callable[[bytes], _T]
    stamp: tuple[int, int, int] | None = field(default=None, init=False)
    """Metadata of the content that was read, or None to read the file again at the next call."""
    data: bytes | None = field(default=None, init=False)
    value: _T | ConfigError = field(init=False)

    def current(self) -> _T:
        """Return the parsed content of the file.

        Raises ConfigError if the file is unreadable or invalid.
        """
        try:
            status = os.stat(self.path)  # noqa: PTH116  # every request does this; Path.stat is slower
            if self.stamp != _stamp(status):
                self._read()
        except OSError as error:
            self.stamp = None
            self.data = None
            problem = error.strerror or error
            self.value = ConfigError(f"{self.path}:1: expected a readable file ({problem})")
        if isinstance(self.value, ConfigError):
            raise self.value
        return self.value

    def _read(self) -> None:
        with self.path.open("rb") as file:
            status = os.fstat(file.fileno())
            data = file.read()
        age = time.time_ns() - status.st_mtime_ns
        self.stamp = None
        if data != self.data:
            try:
                self.value = self.parse(data)
            except ConfigError as error:  # it can be in a file that this one names and that changes
                self.value = error
                self.data = None
                return
            self.data = data
        if age > MTIME_RESOLUTION:
            self.stamp = _stamp(status)


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_mtime_ns, status.st_size, status.st_ino


def parse(data: bytes, file: str) -> Document:
    """Parse the bytes of a YAML or JSON file. The data of an empty file is None.

    `file` is its name in error messages. Raises ConfigError if it is not UTF-8 or not YAML.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}: expected UTF-8") from None
    content = None
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is not None:
            content = loader.construct_document(root)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        line = _error_line(error, text)
        own_words = " ".join(str(error).split())
        problem = _first_attribute(error, "problem", "reason") or own_words
        raise ConfigError(f"{file}:{line}: expected YAML ({problem})") from None
    return Document(file, content, root)


def _error_line(error: Exception, text: str) -> int:
    """Return the line of an error of the parser, which has marks or a position in the text."""
    mark = _first_attribute(error, "problem_mark", "context_mark")
    if mark is None:
        position = getattr(error, "position", 0)
        return text.count("\n", 0, position) + 1
    line: int = mark.line + 1
    last = text.rstrip("\n").count("\n") + 1
    return min(line, last)


def _first_attribute(error: Exception, *names: str) -> Any:
    """Return the first of the attributes that is set, or None."""
    for name in names:
        value = getattr(error, name, None)
        if value:
            return value
    return None


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Loader that returns `Scalar`s for numbers, truth values and null.

    Dates and bytes remain texts.
    """


def _construct_scalar(loader: Any, node: yaml.ScalarNode) -> str:
    construct = yaml.SafeLoader.yaml_constructors[node.tag]
    try:
        value = construct(loader, node)
    except ValueError:  # an impossible date, such as 2026-02-30
        value = node.value
    is_infinite = isinstance(value, float) and not math.isfinite(value)
    if is_infinite or not isinstance(value, (int, float, type(None))):
        return str(node.value)
    return Scalar(node.value, value)


for _name in ("int", "float", "bool", "null", "timestamp", "binary"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_name}", _construct_scalar)
