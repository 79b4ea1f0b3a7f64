"""File locks: one write of a session at a time across processes.

Two lock objects on one directory stand for two processes.
"""

import stat
import threading
from pathlib import Path

import pytest

from mochi_server.storage.files.locks import SLOTS, FileLocks
from mochi_server.util.platform import exclusive_lock


def test_write_lock_is_exclusive_and_times_out(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with exclusive_lock(path, 1), pytest.raises(OSError), exclusive_lock(path, 0.01):  # noqa: PT011 - the exception depends on the system
        pass
    with exclusive_lock(path, 0):
        pass


def test_waiter_gets_the_write_lock_next(tmp_path: Path) -> None:
    one, other = FileLocks(tmp_path / ".locks"), FileLocks(tmp_path / ".locks")
    inside: list[str] = []

    def enter() -> None:
        with other.exclusive("0" * 10):
            inside.append("other")

    waiting = threading.Thread(target=enter)
    with one.exclusive("0" * 10):
        waiting.start()
        with one.exclusive(f"{SLOTS - 1:010x}"):  # sessions with another lock are not affected
            inside.append("one")
    waiting.join(10)
    assert inside == ["one", "other"]


def test_lock_files_are_private_to_their_owner(tmp_path: Path) -> None:
    directory = tmp_path / ".locks"
    with FileLocks(directory).exclusive("0" * 10):
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (directory, *directory.iterdir())]
    assert modes == [0o700, 0o600]


def test_deleted_lock_directory_is_recreated(tmp_path: Path) -> None:
    locks = FileLocks(tmp_path / ".locks")
    for _ in range(2):
        with locks.exclusive("0" * 10):
            pass
        for path in (tmp_path / ".locks").iterdir():
            path.unlink()
        (tmp_path / ".locks").rmdir()


def test_lock_symlink_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError), exclusive_lock(tmp_path / "a.lock", 1):  # noqa: PT011 - the exception depends on the system
        pass
    assert not (tmp_path / "elsewhere").exists()
