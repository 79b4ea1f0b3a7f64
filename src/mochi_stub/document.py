"""A YAML or JSON file whose values know where they stand, so that a mistake can be told with its line.

This module knows nothing of models. Whatever is wrong is a `ConfigError`: one line, `file:line: what was expected`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

MAX_VALUES = 1_000_000
MAX_DEPTH = 100
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_HEADER = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ConfigError(ValueError):
    """A file cannot be used; the text is one line, `file:line: what was expected`."""


@dataclass(frozen=True)
class Item:
    """A value and where it stands. `value` is a mapping of names to items, a list of items, or a plain value.

    `text` is a plain value as it is written, so that the key `4` and the trigger `yes` are texts too. `named` is the
    line of the name in front of it, where it has one.
    """

    value: Any
    text: str
    file: str
    line: int
    named: int | None = None

    def error(self, expected: str) -> ConfigError:
        return ConfigError(f"{self.file}:{self.line}: expected {expected}")

    def misnamed(self, expected: str) -> ConfigError:
        """The name in front of the value is wrong."""
        return ConfigError(f"{self.file}:{self.named or self.line}: expected {expected}")

    def mapping(self, expected: str) -> Mapping[str, Item]:
        return self._checked(dict, expected)  # type: ignore[no-any-return]  # checked there

    def items(self, expected: str) -> list[Item]:
        return self._checked(list, expected)  # type: ignore[no-any-return]  # checked there

    def string(self, expected: str = "a string") -> str:
        if self.value is None or isinstance(self.value, (dict, list)):
            raise self.error(f"{expected}, found {self.found}")
        return self.text

    def strings(self, expected: str) -> tuple[str, ...]:
        return tuple(item.string(expected) for item in self.items(expected))

    def header(self, name: str) -> str:
        """The value of the HTTP header of that name."""
        if not _HEADER.fullmatch(name):
            raise self.misnamed(f"the name of a header, found {name!r}")
        text = self.string("the value of a header")
        if not _HEADER_VALUE.fullmatch(text):
            raise self.error("the value of a header, on one line and in Latin-1")
        return text

    def number(self, low: float, high: float = math.inf, *, above: bool = False) -> float:
        """A number of at least `low`, or above it, and at most `high`."""
        fits = isinstance(self.value, (int, float)) and not isinstance(self.value, bool)
        if not fits or not low <= self.value <= high or (above and self.value == low) or math.isinf(self.value):
            raise self.error(f"a number {_range(low, high, above)}, found {self.found}")
        return float(self.value)

    def whole(self, low: int, high: int | None = None) -> int:
        fits = isinstance(self.value, int) and not isinstance(self.value, bool)
        if not fits or self.value < low or (high is not None and self.value > high):
            raise self.error(f"a whole number {_range(low, math.inf if high is None else high)}, found {self.found}")
        return int(self.value)

    def flag(self) -> bool:
        return bool(self._checked(bool, "true or false"))

    def choice(self, *allowed: str) -> str:
        if self.value not in allowed:
            raise self.error(f"{' or '.join(allowed)}, found {self.found}")
        return str(self.value)

    def plain(self) -> Any:
        """The value without the places."""
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        return [item.plain() for item in self.value] if isinstance(self.value, list) else self.value

    def json_object(self, expected: str) -> dict[str, Any]:
        self.mapping(expected)
        plain: dict[str, Any] = self.plain()
        return plain

    def known(self, allowed: tuple[str, ...], what: str) -> Mapping[str, Item]:
        """A mapping with none but these keys."""
        entries = self.mapping(f"{what} as a mapping")
        for key, item in entries.items():
            if key not in allowed:
                raise item.misnamed(f"one of {', '.join(allowed)} in {what}, found {key!r}")
        return entries

    @property
    def found(self) -> str:
        names = {dict: "a mapping", list: "a list", type(None): "nothing"}
        shown = repr(self.value)
        return names.get(type(self.value)) or (shown if len(shown) <= 60 else f"{shown[:57]}...")

    def _checked(self, kind: type, expected: str) -> Any:
        if not isinstance(self.value, kind):
            raise self.error(f"{expected}, found {self.found}")
        return self.value


def read(path: Path) -> Item:
    """The file. Raises ConfigError."""
    try:
        return parse(path.read_bytes(), str(path))
    except OSError as error:
        raise ConfigError(f"{path}:1: expected a file that can be read ({error.strerror or error})") from None


def parse(data: bytes, file: str) -> Item:
    """The text of a file. Raises ConfigError."""
    with _told(file, data):
        text = data.decode("utf-8-sig")
        _check_depth(text, file)
        loader = _LOADER(text)
        try:
            node = loader.get_single_node()
            return Item(None, "", file, 1) if node is None else _Reader(loader, file).item(node, ())
        finally:
            loader.dispose()


def _check_depth(text: str, file: str) -> None:
    """YAML's own reader goes down as deep as the text does, and crashes where that is too deep."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise ConfigError(f"{file}:{line}: expected fewer values inside values")


class _Reader:
    """Nodes to items. Anchors may be used as often as one likes, as long as that ends."""

    def __init__(self, loader: Any, file: str) -> None:
        self.loader = loader
        self.file = file
        self.made = 0

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
        return Item(value if _json(value) else node.value, node.value, self.file, line)

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
            found[key.value] = Item(item.value, item.text, item.file, max(item.line, line), line)
        return found


def _json(value: Any) -> bool:
    """Dates and bytes stay the text that they are written as."""
    return value is None or isinstance(value, (str, bool, int)) or (isinstance(value, float) and math.isfinite(value))


def _range(low: float, high: float, above: bool = False) -> str:
    start = f"{'above' if above else 'of at least'} {low:g}"
    return start if math.isinf(high) else f"{start} and at most {high:g}"


@contextmanager
def _told(file: str, data: bytes) -> Iterator[None]:
    """What YAML complains of, as a ConfigError; its end of the file is the last line that there is."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}:{error.object.count(10, 0, error.start) + 1}: expected UTF-8") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(filter(None, [error.context, error.problem]))
        line = min(mark.line + 1, data.rstrip(b"\n").count(b"\n") + 1) if mark else 1
        raise ConfigError(f"{file}:{line}: expected YAML ({problem})") from None
    except yaml.reader.ReaderError as error:
        line = data.decode("utf-8-sig").count("\n", 0, error.position) + 1
        raise ConfigError(f"{file}:{line}: expected YAML ({error.reason})") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}:1: expected YAML ({' '.join(str(error).split())})") from None
    except (ValueError, OverflowError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{file}:1: expected YAML ({error})") from None
