"""Difficult media: a small file system that is full or read-only, one with coarse times, and
limited file sizes.
"""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class SmallDisk:
    """Separate file system with a size of one MiB."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def full(self) -> Iterator[None]:
        """Fill the file system within the context."""
        filler = self.path / "filler"
        descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT)
        try:
            _fill(descriptor)
            yield
        finally:
            os.close(descriptor)
            filler.unlink()

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Make the file system read-only within the context."""
        _run("mount", "-o", "remount,ro", str(self.path))
        try:
            yield
        finally:
            _run("mount", "-o", "remount,rw", str(self.path))


@contextmanager
def small_disk(path: Path) -> Iterator[SmallDisk]:
    """Mount a small file system. Skip the test if that is impossible."""
    with _mounted(path, "-t", "tmpfs", "-o", "size=1m", "tmpfs"):
        yield SmallDisk(path)


@contextmanager
def disk_with_coarse_times(path: Path) -> Iterator[None]:
    """Mount a file system whose files have modification times in whole seconds.

    Skip the test if that is impossible.
    """
    image = path.with_suffix(".image")
    with image.open("wb") as file:
        file.truncate(8 * 1024 * 1024)
    try:
        _run("mkfs.ext4", "-q", "-I", "128", str(image))
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs mkfs.ext4")
    with _mounted(path, "-o", "loop", str(image)):
        yield


@contextmanager
def _mounted(path: Path, *source: str) -> Iterator[None]:
    path.mkdir()
    try:
        _run("mount", *source, str(path))
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a file system")
    try:
        yield
    finally:
        _run("umount", "--lazy", str(path))


@contextmanager
def no_growth(process_id: int) -> Iterator[None]:
    """Prevent the files of a process from growing, as on a full disk."""
    if sys.platform != "linux":
        pytest.skip("needs Linux's limits of other processes")
    import resource

    before = resource.prlimit(process_id, resource.RLIMIT_FSIZE)
    resource.prlimit(process_id, resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.prlimit(process_id, resource.RLIMIT_FSIZE, before)


def _fill(descriptor: int) -> None:
    try:
        while True:
            os.write(descriptor, b"x" * 4096)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
