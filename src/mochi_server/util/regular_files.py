"""Reading of files that users write, which may be replaced by something else at any time."""

import errno
import os
import stat
from pathlib import Path

MAX_BYTES = 1024 * 1024
_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file. Links are followed. Never waits for a FIFO.

    Raises ``OSError``, also for a path that is no regular file, and for a file of more than
    ``limit`` bytes.
    """
    with open(path, "rb", buffering=0, opener=_open_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        data = file.read(limit + 1) or b""
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit:,} bytes", str(path))
    return data


def _open_without_waiting(name: str, _flags: int) -> int:
    return os.open(name, _FLAGS)


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """Return the text of a regular file with ``\\n`` at the end of each line.

    Raises the errors of ``read_bytes``, and ``UnicodeDecodeError``.
    """
    text = read_bytes(path).decode(encoding)
    return text.replace("\r\n", "\n").replace("\r", "\n")
