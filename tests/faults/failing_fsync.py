"""Launcher of mochi-server on a disk whose fsync fails: `python -m tests.faults.failing_fsync`.

The kernel answers each fsync of the process with EIO. With `--probe` it exits at once, with 0 if
that is possible.
"""

import ctypes
import errno
import os
import platform
import sys
import tempfile

_FSYNC = {"x86_64": (74, 75), "aarch64": (82, 83)}
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("yes", ctypes.c_ubyte),
        ("no", ctypes.c_ubyte),
        ("k", ctypes.c_uint),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("first", ctypes.POINTER(_Instruction)))


def break_fsync() -> bool:
    """Let fsync fail in this process. Return False if that is impossible."""
    if sys.platform != "linux" or platform.machine() not in _FSYNC:
        return False
    fsync, fdatasync = _FSYNC[platform.machine()]
    steps = (
        _Instruction(_LOAD, 0, 0, 0),
        _Instruction(_JUMP_IF_EQUAL, 1, 0, fsync),
        _Instruction(_JUMP_IF_EQUAL, 0, 1, fdatasync),
        _Instruction(_RETURN, 0, 0, _ERROR | errno.EIO),
        _Instruction(_RETURN, 0, 0, _ALLOW),
    )
    program = _Program(len(steps), (_Instruction * len(steps))(*steps))
    libc = ctypes.CDLL(None, use_errno=True)
    failed: int = libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.prctl(
        _SECCOMP, _FILTER, ctypes.byref(program)
    )
    return not failed


def _is_broken() -> bool:
    with tempfile.TemporaryFile() as file:
        try:
            os.fsync(file.fileno())
        except OSError as error:
            return error.errno == errno.EIO
    return False


if __name__ == "__main__":
    if not (break_fsync() and _is_broken()):
        sys.exit(77)
    if sys.argv[1:] == ["--probe"]:
        sys.exit(0)
    from mochi_server.cli.main import main

    sys.exit(main(sys.argv[1:]))
