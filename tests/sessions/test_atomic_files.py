"""Atomic file writes: a file has its old or its new content."""

from pathlib import Path

import pytest

from mochi_server.storage.files import atomic_files
from tests.support.full_disk import largest_file

MEBIBYTE = 1024 * 1024


@pytest.mark.parametrize("writes", [20, pytest.param(200, marks=pytest.mark.nightly)])
def test_every_write_has_a_different_signature(tmp_path: Path, writes: int) -> None:
    path = tmp_path / "file"
    seen = [atomic_files.write(path, b"same size") for _ in range(writes)]
    assert len(set(seen)) == writes
    assert atomic_files.signature(path) == seen[-1]


def test_read_returns_the_signature_of_the_write(tmp_path: Path) -> None:
    written = atomic_files.write(tmp_path / "file", b"content")
    assert atomic_files.read(tmp_path / "file") == (b"content", written)


def test_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    with pytest.raises(OSError, match="target"):
        atomic_files.write(target, b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


@pytest.mark.parametrize("before", [b"", b"zero\n"])
def test_failed_append_leaves_no_part_of_the_line(tmp_path: Path, before: bytes) -> None:
    log, line = tmp_path / "log", b"one" * MEBIBYTE
    log.write_bytes(before)
    with largest_file(2 * MEBIBYTE), pytest.raises(OSError, match="File too large"):
        atomic_files.append(str(log), line, len(before))
    assert log.read_bytes() == before


def test_other_than_regular_file_reads_as_absent(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(__file__)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for path in (tmp_path, tmp_path / "link", tmp_path / "dangling", tmp_path / "nothing"):
        assert atomic_files.read(path) is None
        assert atomic_files.signature(path) is None


def test_append_does_not_create_a_file_that_has_content(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(FileNotFoundError):
        atomic_files.append(str(log), b"second\n", size=6)
    assert not log.exists()
    atomic_files.append(str(log), b"first\n")
    assert log.read_bytes() == b"first\n"
