"""The processes that serve a directory: each locks a file with its name. The lock ends with the process."""

import os
import re
import threading
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from mochi_server.util.platform import is_locked, release_file, try_lock_file

_SUFFIX = ".process"
_NAME = re.compile(r"(\d{1,10})-[0-9a-f]{12}")


class ProcessRegistry:
    """This process among those that serve a directory. Blocks; for threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None
        self._joining = threading.Lock()
        self.name: str | None = None
        """What others know this process by; None until it has joined."""

    def register(self) -> None:
        """Make this process known to others, if the system can lock files. Raises OSError."""
        with self._joining:
            if self._descriptor is not None:
                return
            self._directory.mkdir(mode=0o700, exist_ok=True)
            name = f"{os.getpid()}-{uuid4().hex[:12]}"
            unfinished = self._directory / f".{name}"
            try:
                self._descriptor = try_lock_file(unfinished)
                if self._descriptor is not None:
                    unfinished.rename(self._path(name))  # others see only a file that is locked already
                    self.name = name
            except OSError:
                self.unregister()
                with suppress(OSError):
                    unfinished.unlink(missing_ok=True)
                raise

    def unregister(self) -> None:
        """Be known no longer."""
        if self.name is not None:
            with suppress(OSError):
                self._path(self.name).unlink(missing_ok=True)
        if self._descriptor is not None:
            release_file(self._descriptor)
        self._descriptor = self.name = None

    def other_processes(self) -> tuple[int, ...]:
        """Return the ids of the other living processes, and remove the files of dead ones."""
        living: list[int] = []
        for path in self._directory.glob(f"*{_SUFFIX}"):
            if self.is_running(path.stem):
                living.append(int(path.stem.partition("-")[0]))
            elif path.stem != self.name and _NAME.fullmatch(path.stem):
                with suppress(OSError):
                    path.unlink(missing_ok=True)
        return tuple(sorted(living))

    def is_running(self, name: str | None) -> bool:
        """Whether that is another process, and still there."""
        if name is None or name == self.name or not _NAME.fullmatch(name):
            return False
        return is_locked(self._path(name))

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}{_SUFFIX}"
