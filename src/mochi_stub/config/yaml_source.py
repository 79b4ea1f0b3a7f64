"""Parser of YAML and JSON files that stores the line number of each value for error messages."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import yaml

MAX_VALUES = 1_000_000
MAX_DEPTH = 100
MTIME_RESOLUTION = 100_000_000  # nanoseconds; file changes within this time can have the same modification time
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_HEADER = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_T = TypeVar("_T")


class ConfigError(ValueError):
    """Invalid configuration or recording. The text is one line, `file:line: expected …`."""


@dataclass  # not frozen: frozen instances take three times as long to create
class Item:
    """A parsed value with its file and line.

    `value` is a mapping of names to items, a list of items, or a scalar. `text` is the scalar as written in the file,
    for example `yes` for a true value. `key_line` is the line of the mapping key, None for list items.
    """

    value: Any
    text: str
    file: str
    line: int
    key_line: int | None = None

    def error(self, expected: str) -> ConfigError:
        return ConfigError(f"{self.file}:{self.line}: expected {expected}")

    def key_error(self, expected: str) -> ConfigError:
        return ConfigError(f"{self.file}:{self.key_line or self.line}: expected {expected}")

    def mapping(self, expected: str = "a mapping") -> dict[str, Item]:
        return self._checked(dict, expected)

    def items(self, expected: str) -> list[Item]:
        return self._checked(list, expected)

    def fields(self, readers: Readers, label: str, **required: str) -> dict[str, Any]:
        """Return the fields of a mapping. The function in `readers` with the same key reads the value of each field.

        Raises ConfigError for other keys and for missing keys. `required` maps each required key to an error text.
        """
        entries = self.mapping(f"{label} as a mapping")
        for key, item in entries.items():
            if key not in readers:
                raise item.key_error(f"one of {', '.join(readers)} in {label}, found {key!r}")
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

    def path(self, expected: str) -> Path:
        """Return the path in the value. It is relative to the folder of the file."""
        return Path(self.file).parent / self.string(expected)

    def header(self, name: str) -> str:
        """Return the value of the HTTP header `name`. Raises ConfigError if the name or the value is invalid."""
        if not _HEADER.fullmatch(name):
            raise self.key_error(f"a valid header name, found {name!r}")
        text = self.string("a header value")
        if not _HEADER_VALUE.fullmatch(text):
            raise self.error(f"a header value in Latin-1 on one line, found {self.found}")
        return text

    def number(self, low: float = -math.inf, high: float = math.inf, *, above: bool = False) -> float:
        """Return the value, a finite number from `low` to `high`. If `above` is true, `low` itself is invalid."""
        return float(self._within((int, float), "a number", low, high, above))

    def whole(self, low: float, high: float = math.inf) -> int:
        return int(self._within((int,), "a whole number", low, high))

    def flag(self) -> bool:
        return self._checked(bool, "true or false")

    def choice(self, *allowed: str) -> str:
        if self.value not in allowed:
            raise self.error(f"one of {', '.join(allowed)}, found {self.found}")
        return str(self.value)

    def plain(self) -> Any:
        """Return the value as plain Python data, without file names and line numbers."""
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        return [item.plain() for item in self.value] if isinstance(self.value, list) else self.value

    @property
    def found(self) -> str:
        names = {dict: "a mapping", list: "a list", type(None): "nothing"}
        shown = repr(self.value)
        return names.get(type(self.value)) or (shown if len(shown) <= 60 else f"{shown[:57]}...")

    def _checked(self, kind: type[_T], expected: str) -> _T:
        if not isinstance(self.value, kind):
            raise self.error(f"{expected}, found {self.found}")
        return self.value

    def _within(self, kinds: tuple[type, ...], label: str, low: float, high: float, above: bool = False) -> Any:
        value: Any = self.value
        fits = type(value) in kinds and abs(value) < math.inf
        if not fits or not low <= value <= high or (above and value == low):
            least = f"{'above' if above else 'of at least'} {low:g}"
            most = "" if math.isinf(high) else f" and at most {high:g}"
            raise self.error(f"{label} {least}{most}, found {self.found}")
        return value


@dataclass
class WatchedFile(Generic[_T]):
    """File that is parsed again after its content has changed. Each call of `current` checks the file's metadata."""

    path: Path
    parse: Callable[[bytes], _T]
    stamp: tuple[int, int, int] | None = field(default=None, init=False)
    data: bytes | None = field(default=None, init=False)
    value: _T | ConfigError = field(init=False)

    def current(self) -> _T:
        """Return the parsed content of the file. Raises ConfigError if the file is unreadable or invalid."""
        try:
            if self.stamp != _stamp(os.stat(self.path)):  # noqa: PTH116  # every request does this; Path.stat is slower
                self._read()
        except OSError as error:
            self.stamp = self.data = None
            self.value = ConfigError(f"{self.path}:1: expected a readable file ({error.strerror or error})")
        if isinstance(self.value, ConfigError):
            raise self.value
        return self.value

    def _read(self) -> None:
        with self.path.open("rb") as file:
            status, data = os.fstat(file.fileno()), file.read()
        self.stamp = _stamp(status) if time.time_ns() - status.st_mtime_ns > MTIME_RESOLUTION else None
        if data != self.data:
            try:
                self.value = self.parse(data)
            except ConfigError as error:
                self.value = error
            self.data = data


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_mtime_ns, status.st_size, status.st_ino


def parse(data: bytes, file: str) -> Item:
    """Parse the bytes of a YAML or JSON file. `file` is its name in error messages. Raises ConfigError."""
    try:
        text = data.decode("utf-8-sig")
        _check_depth(text, file)
        loader = _LOADER(text)
        node = loader.get_single_node()
        return Item(None, "", file, 1) if node is None else _Reader(loader, file).item(node)
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
    """Raise ConfigError for deep nesting, which would crash the recursive YAML composer."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise ConfigError(f"{file}:{line}: expected at most {MAX_DEPTH} levels of nesting")


@dataclass
class _Reader:
    """Converter of YAML nodes to items. `parents` are the `id()`s of the enclosing nodes, to detect cycles.

    `own_ids` has the `id()`s of the keys that a mapping itself contains, by the `id()` of the mapping.
    """

    loader: Any
    file: str
    count: int = 0
    own_ids: dict[int, set[int]] = field(default_factory=dict)

    def item(self, node: Any, parents: tuple[int, ...] = (), key_line: int | None = None) -> Item:
        line = max(node.start_mark.line + 1, key_line or 0)
        self.count += 1
        if self.count > MAX_VALUES:
            raise ConfigError(f"{self.file}:{line}: expected at most {MAX_VALUES} values, including those of aliases")
        if id(node) in parents:
            raise ConfigError(f"{self.file}:{line}: expected an anchor that does not contain itself")
        if isinstance(node, yaml.MappingNode):
            return Item(self._mapping(node, (*parents, id(node))), "", self.file, line, key_line)
        if isinstance(node, yaml.SequenceNode):
            items = [self.item(child, (*parents, id(node))) for child in node.value]
            return Item(items, "", self.file, line, key_line)
        try:
            value = self.loader.construct_object(node)
        except ValueError:  # an impossible date, such as 2026-02-30
            value = node.value
        plain = value is None or isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value))
        value = value if plain else node.value  # dates and bytes remain texts
        return Item(value, node.value, self.file, line, key_line)

    def _mapping(self, node: Any, parents: tuple[int, ...]) -> dict[str, Item]:
        # Without the keys that `<<` merges. An alias leads to the same node again, which contains the merged keys.
        own_ids = self.own_ids.setdefault(id(node), {id(key) for key, _ in node.value})
        self.loader.flatten_mapping(node)
        items: dict[str, Item] = {}
        own_keys: set[str] = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigError(f"{self.file}:{line}: expected a plain key, found a list or a mapping")
            if key.value in own_keys and id(key) in own_ids:
                raise ConfigError(f"{self.file}:{line}: expected unique keys, found {key.value!r} again")
            own_keys |= {key.value} if id(key) in own_ids else set()
            items[key.value] = self.item(value, parents, line)
        return items


Readers: TypeAlias = "Mapping[str, Callable[[Item], Any]]"  # functions that read values, by allowed key
