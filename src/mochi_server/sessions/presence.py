"""Which processes serve a directory now: each holds a lock on a file that is named after it, for as long as it lives.

The lock goes with its process, however that ends; a file that nobody holds is that of a dead one.
"""

import os
import re
import threading
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from mochi_server.posix import hold_file, is_held, let_go

_SUFFIX = ".process"
_NAME = re.compile(r"(\d{1,10})-[0-9a-f]{12}")


class Presence:
    """This process among those that serve a directory. Blocks; for threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held: int | None = None
        self._joining = threading.Lock()
        self.name: str | None = None
        """What others know this process by; None until it has joined."""

    def join(self) -> None:
        """Be known to other processes, where the system knows how to. Raises OSError."""
        with self._joining:
            if self._held is None:
                self._join()

    def _join(self) -> None:
        self._directory.mkdir(mode=0o700, exist_ok=True)
        name = f"{os.getpid()}-{uuid4().hex[:12]}"
        unfinished = self._directory / f".{name}"
        try:
            self._held = hold_file(unfinished)
            if self._held is not None:
                unfinished.rename(self._path(name))  # from here on it is seen, and held already
                self.name = name
        except OSError:
            self.leave()
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise

    def leave(self) -> None:
        """Be known no longer."""
        if self.name is not None:
            with suppress(OSError):
                self._path(self.name).unlink(missing_ok=True)
        if self._held is not None:
            let_go(self._held)
        self._held = self.name = None

    def others(self) -> tuple[int, ...]:
        """The process ids of the other ones that live. Files of dead ones are swept away."""
        living: list[int] = []
        for path in self._directory.glob(f"*{_SUFFIX}"):
            found = _NAME.fullmatch(path.stem)
            if found is None or path.stem == self.name:
                continue
            if self.lives(path.stem):
                living.append(int(found[1]))
            else:
                with suppress(OSError):
                    path.unlink(missing_ok=True)
        return tuple(sorted(living))

    def lives(self, name: str | None) -> bool:
        """Whether that is another process, and still there."""
        if name is None or name == self.name or not _NAME.fullmatch(name):
            return False
        return is_held(self._path(name))

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}{_SUFFIX}"
