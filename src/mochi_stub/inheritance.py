"""Which models a model inherits from: `_inherit`, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from mochi_stub.document import Item


class Heir(Protocol):
    """Something with a name that may name a parent."""

    name: str
    parent: Item | None


_Heir = TypeVar("_Heir", bound=Heir)


def lineage(heir: _Heir, known: Mapping[str, _Heir]) -> tuple[_Heir, ...]:
    """The heir, its parent, and so on. Raises ConfigError for an unknown parent and where the line ends in itself."""
    line = [heir]
    while (parent := line[-1].parent) is not None:
        if parent.text not in known:
            raise parent.error(f"_inherit to name a model of this file, found {parent.text!r}")
        if known[parent.text] in line:
            names = " -> ".join([*(one.name for one in line), parent.text])
            raise parent.error(f"_inherit without a cycle, found {names}")
        line.append(known[parent.text])
    return tuple(line)
