"""A file that is read again when it has changed, also where another took its place. It is looked at when asked for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from mochi_stub.document import ConfigError

_T = TypeVar("_T")

SETTLED = 100_000_000
"""Nanoseconds. A file that was read sooner after it was written may be written again without showing it."""


class Watched(Generic[_T]):
    """What `made` makes of the bytes of a file, made again only when they are others."""

    def __init__(self, path: Path, made: Callable[[bytes], _T]) -> None:
        self.path = path
        self._made = made
        self._seen: tuple[int, int, int] | None = None
        self._data: bytes | None = None
        self._value: _T | None = None
        self._problem: ConfigError | None = None

    def current(self) -> _T:
        """The value of the file as it is now. Raises ConfigError."""
        try:
            if self._changed():
                self._read()
        except OSError as error:
            self._seen = self._data = None
            self._problem = ConfigError(f"{self.path}:1: expected a file that can be read ({error.strerror or error})")
        if self._problem is not None:
            raise self._problem
        return self._value  # type: ignore[return-value]  # without a problem it has been made

    def _changed(self) -> bool:
        found = os.stat(self.path)  # noqa: PTH116  # at every request, and Path.stat is slower
        return self._seen != (found.st_mtime_ns, found.st_size, found.st_ino)

    def _read(self) -> None:
        with self.path.open("rb") as file:
            found, data = os.fstat(file.fileno()), file.read()
        settled = time.time_ns() - found.st_mtime_ns > SETTLED
        self._seen = (found.st_mtime_ns, found.st_size, found.st_ino) if settled else None
        if data == self._data:
            return
        try:
            self._value, self._problem = self._made(data), None
        except ConfigError as error:
            self._problem = error
        self._data = data
