"""YAML and JSON files whose values have line numbers, so that a mistake is reported with its place."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import yaml

MAX_VALUES = 1_000_000
MAX_DEPTH = 100
SETTLED = 100_000_000
"""Nanoseconds after a change during which a file may change again without a new modification time."""
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_HEADER = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_T = TypeVar("_T")


class ConfigError(ValueError):
    """A file cannot be used; the text is one line, `file:line: what was expected`."""


@dataclass(frozen=True)
class Item:
    """A value and its place. `value` is a mapping of names to items, a list of items, or a scalar.

    `text` is a scalar as it is written, so that the key `4` and the trigger `yes` are texts too. `named` is the line
    of the key in front of it, if it has one.
    """

    value: Any
    text: str
    file: str
    line: int
    named: int | None = None

    def error(self, expected: str) -> ConfigError:
        return ConfigError(f"{self.file}:{self.line}: expected {expected}")

    def misnamed(self, expected: str) -> ConfigError:
        """Return an error about the key in front of the value."""
        return ConfigError(f"{self.file}:{self.named or self.line}: expected {expected}")

    def mapping(self, expected: str = "a mapping") -> dict[str, Item]:
        return self._checked(dict, expected)  # type: ignore[no-any-return]  # checked there

    def items(self, expected: str) -> list[Item]:
        return self._checked(list, expected)  # type: ignore[no-any-return]  # checked there

    def fields(self, readers: Readers, what: str, **required: str) -> dict[str, Any]:
        """Read a mapping with none but these keys. `required` says for keys that must be there what is expected."""
        entries = self.mapping(f"{what} as a mapping")
        for key, item in entries.items():
            if key not in readers:
                raise item.misnamed(f"one of {', '.join(readers)} in {what}, found {key!r}")
        for key, expected in required.items():
            if key not in entries:
                raise self.error(expected)
        return {key: readers[key](item) for key, item in entries.items()}

    def string(self, expected: str = "a string") -> str:
        if self.value is None or isinstance(self.value, (dict, list)):
            raise self.error(f"{expected}, found {self.found}")
        return self.text

    def strings(self, expected: str) -> tuple[str, ...]:
        return tuple(item.string(expected) for item in self.items(expected))

    def header(self, name: str) -> str:
        """Return the value of the HTTP header of that name."""
        if not _HEADER.fullmatch(name):
            raise self.misnamed(f"the name of a header, found {name!r}")
        text = self.string("the value of a header")
        if not _HEADER_VALUE.fullmatch(text):
            raise self.error("the value of a header, on one line and in Latin-1")
        return text

    def number(self, low: float = -math.inf, high: float = math.inf, *, above: bool = False) -> float:
        """Return a finite number of at least `low`, or above it, and at most `high`."""
        return float(self._within((int, float), "a number", low, high, above))

    def whole(self, low: float, high: float = math.inf) -> int:
        return int(self._within((int,), "a whole number", low, high))

    def flag(self) -> bool:
        return bool(self._checked(bool, "true or false"))

    def choice(self, *allowed: str) -> str:
        if self.value not in allowed:
            raise self.error(f"{' or '.join(allowed)}, found {self.found}")
        return str(self.value)

    def plain(self) -> Any:
        """Return the value without places."""
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        return [item.plain() for item in self.value] if isinstance(self.value, list) else self.value

    @property
    def found(self) -> str:
        names = {dict: "a mapping", list: "a list", type(None): "nothing"}
        shown = repr(self.value)
        return names.get(type(self.value)) or (shown if len(shown) <= 60 else f"{shown[:57]}...")

    def _checked(self, kind: type, expected: str) -> Any:
        if not isinstance(self.value, kind):
            raise self.error(f"{expected}, found {self.found}")
        return self.value

    def _within(self, kinds: tuple[type, ...], what: str, low: float, high: float, above: bool = False) -> Any:
        value: Any = self.value
        fits = type(value) in kinds and abs(value) < math.inf
        if not fits or not low <= value <= high or (above and value == low):
            least = f"{'above' if above else 'of at least'} {low:g}"
            most = "" if math.isinf(high) else f" and at most {high:g}"
            raise self.error(f"{what} {least}{most}, found {self.found}")
        return value


@dataclass
class WatchedFile(Generic[_T]):
    """The value that `made` makes of a file's bytes, made again when they change. Each read looks at the file."""

    path: Path
    made: Callable[[bytes], _T]
    seen: tuple[int, int, int] | None = field(default=None, init=False)
    data: bytes | None = field(default=None, init=False)
    value: _T | ConfigError = field(init=False)

    def current(self) -> _T:
        """Return the value of the file as it is now. Raises ConfigError."""
        try:
            if self.seen != _stamp(os.stat(self.path)):  # noqa: PTH116  # at every request, and Path.stat is slower
                self._read()
        except OSError as error:
            self.seen = self.data = None
            self.value = unreadable(self.path, error)
        if isinstance(self.value, ConfigError):
            raise self.value
        return self.value

    def _read(self) -> None:
        with self.path.open("rb") as file:
            found, data = os.fstat(file.fileno()), file.read()
        self.seen = _stamp(found) if time.time_ns() - found.st_mtime_ns > SETTLED else None
        if data != self.data:
            try:
                self.value = self.made(data)
            except ConfigError as error:
                self.value = error
            self.data = data


def _stamp(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_mtime_ns, found.st_size, found.st_ino


def unreadable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"{path}:1: expected a file that can be read ({error.strerror or error})")


def parse(data: bytes, file: str) -> Item:
    """Parse the bytes of a file. Raises ConfigError."""
    try:
        text = data.decode("utf-8-sig")
        _check_depth(text, file)
        loader = _LOADER(text)
        node = loader.get_single_node()
        return Item(None, "", file, 1) if node is None else _Reader(loader, file).item(node, ())
    except ConfigError:
        raise
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}:{error.object.count(10, 0, error.start) + 1}: expected UTF-8") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(filter(None, [error.context, error.problem]))
        line = min(mark.line + 1, data.rstrip(b"\n").count(b"\n") + 1) if mark else 1
        raise ConfigError(f"{file}:{line}: expected YAML ({problem})") from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ConfigError(f"{file}:{line}: expected YAML ({error.reason})") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise ConfigError(f"{file}:1: expected YAML ({' '.join(str(error).split())})") from None


def _check_depth(text: str, file: str) -> None:
    """Refuse deep nesting, which would crash the recursive YAML composer."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise ConfigError(f"{file}:{line}: expected fewer values inside values")


@dataclass
class _Reader:
    """Conversion of YAML nodes to items. `inside` are the ids of the nodes around a node."""

    loader: Any
    file: str
    made: int = 0

    def item(self, node: Any, inside: tuple[int, ...]) -> Item:
        line = node.start_mark.line + 1
        self.made += 1
        if self.made > MAX_VALUES:
            raise ConfigError(f"{self.file}:{line}: expected fewer values inside values")
        if id(node) in inside:
            raise ConfigError(f"{self.file}:{line}: expected an anchor that does not contain itself")
        if isinstance(node, yaml.MappingNode):
            return Item(self._mapping(node, (*inside, id(node))), "", self.file, line)
        if isinstance(node, yaml.SequenceNode):
            return Item([self.item(one, (*inside, id(node))) for one in node.value], "", self.file, line)
        value = self.loader.construct_object(node)
        plain = value is None or isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value))
        return Item(value if plain else node.value, node.value, self.file, line)  # dates and bytes stay texts

    def _mapping(self, node: Any, inside: tuple[int, ...]) -> dict[str, Item]:
        written = [id(key) for key, _ in node.value]
        self.loader.flatten_mapping(node)
        found: dict[str, Item] = {}
        own: set[str] = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigError(f"{self.file}:{line}: expected a plain key, found a list or a mapping")
            if key.value in own and id(key) in written:
                raise ConfigError(f"{self.file}:{line}: expected every key once, found {key.value!r} again")
            own |= {key.value} if id(key) in written else set()
            item = self.item(value, inside)
            found[key.value] = replace(item, line=max(item.line, line), named=line)
        return found


Readers: TypeAlias = "Mapping[str, Callable[[Item], Any]]"
"""Keys of a mapping, and the readers of their values."""
