"""What only POSIX systems can do, with what the others do instead. Knows nothing of sessions or servers."""

import errno
import os
from pathlib import Path

OPEN_SAFELY = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
"""Flags for ``os.open`` that follow no symlink, wait for no fifo's other end and translate no line ends."""

_CANNOT_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}


def sync_directory(path: Path) -> None:
    """Make a directory's entries durable, where the system knows how to. Raises OSError."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(descriptor)
