"""Tools for the files of one directory, and for commands that run in this directory."""

import asyncio
import os
import re
import signal
from contextlib import suppress
from pathlib import Path

MAX_BYTES = 1_000_000
_LINE_END = r"(?:\r\n?|\n)"
"""Pattern of a line end. Models see every line end of a file as ``\\n``."""
_PASSED_ON = (
    "PATH",
    "HOME",
    "USER",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "SYSTEMROOT",
    "COMSPEC",
    "PATHEXT",
    "TEMP",
)
"""Environment variables that commands receive. Others may contain secrets of the server."""


class Workspace:
    """Folder with tools.

    Models read the docstrings of its methods. ``protected`` are names of forbidden folders.
    """

    def __init__(self, root: Path, *, protected: tuple[str, ...] = ()) -> None:
        self._root = root.resolve()
        self._protected = protected

    def list_dir(self, path: str = ".") -> str:
        """List the files and folders in a folder.

        Args:
            path: Path of the folder, relative to the workspace.
        """
        folder = self._inside(path)
        if not folder.is_dir():
            raise ValueError(f"{path} is not a folder of the workspace")
        entries = sorted(folder.iterdir(), key=lambda entry: (not entry.is_dir(), entry.name))
        return "\n".join(_line(entry) for entry in entries) or "The folder is empty."

    def read_file(self, path: str, first_line: int = 1, last_line: int | None = None) -> str:
        """Read a text file, or some lines of it.

        Args:
            path: Path of the file, relative to the workspace.
            first_line: Number of the first line to read. Lines are numbered from 1.
            last_line: Number of the last line to read. By default, the file is read to its end.
        """
        text = self._bytes(path).decode("utf-8", "replace")
        lines = re.sub(_LINE_END, "\n", text).splitlines(keepends=True)
        return "".join(lines[max(first_line, 1) - 1 : last_line])

    def write_file(self, path: str, content: str) -> str:
        """Write a text file. An existing file is overwritten.

        Args:
            path: Path of the file, relative to the workspace. Missing folders are created.
            content: The complete new text.
        """
        file = self._inside(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, "utf-8")
        return f"Wrote {len(content)} characters to {path}."

    def insert_replace_text(
        self, path: str, new_text: str, old_text: str = "", after_line: int = 0
    ) -> str:
        """Change one place in a text file: replace a passage, or insert text after a line.

        Args:
            path: Path of the file, relative to the workspace.
            new_text: The text to insert.
            old_text: The passage to replace. The file must contain it exactly once. Leave it empty
                to insert text.
            after_line: Number of the line after which to insert, if old_text is empty. 0 is the
                beginning of the file.
        """
        text = self._bytes(path).decode("utf-8", "surrogateescape")
        line_end = "\r\n" if "\r\n" in text else "\n"
        new_text = re.sub(r"\r?\n", line_end, new_text)
        if old_text:
            old_lines = re.split(_LINE_END, old_text)
            pieces = re.split(_LINE_END.join(map(re.escape, old_lines)), text)
            found = len(pieces) - 1
            if found != 1:
                raise ValueError(
                    f"{path} contains old_text {found} times; it must contain it exactly once"
                )
            changed = new_text.join(pieces)
        else:
            lines = text.splitlines(keepends=True)
            if not 0 <= after_line <= len(lines):
                raise ValueError(f"{path} has {len(lines)} lines")
            before, after = "".join(lines[:after_line]), "".join(lines[after_line:])
            if after:
                new_text = _ended(new_text, line_end)
            changed = _ended(before, line_end) + new_text + after
        self._inside(path).write_text(changed, "utf-8", "surrogateescape", newline="")
        return f"Changed {path}."

    def delete_rename_file(self, path: str, new_path: str = "") -> str:
        """Delete or rename a file or a folder. Only empty folders can be deleted.

        Args:
            path: Path of the file or folder, relative to the workspace.
            new_path: New path, relative to the workspace. It must not exist yet. Leave it empty to
                delete.
        """
        target, entry = self._inside(path), Path(path)
        if not target.exists() or target == self._root:
            raise ValueError(f"{path} is not a file or folder in the workspace")
        old = self._inside(str(entry.parent)) / entry.name  # the link itself, not its target
        if not new_path:
            old.rmdir() if old.is_dir() and not old.is_symlink() else old.unlink()
            return f"Deleted {path}."
        new = self._inside(new_path)
        if new.exists():
            raise ValueError(f"{new_path} exists")
        new.parent.mkdir(parents=True, exist_ok=True)
        old.rename(new)
        return f"Renamed {path} to {new_path}."

    async def run_cli_command(self, command: str, timeout_seconds: int = 50) -> str:
        """Run a shell command in the workspace. Return its exit code and its output.

        Args:
            command: The command line. The command receives no input.
            timeout_seconds: Number of seconds after which the command is killed.
        """
        self._root.mkdir(parents=True, exist_ok=True)
        process = await asyncio.create_subprocess_shell(
            command,
            cwd=self._root,
            env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            printed = await asyncio.wait_for(_printed(process), timeout_seconds)
        except asyncio.TimeoutError:
            return f"Killed after {timeout_seconds} seconds."
        finally:
            await _end(process)
        return f"Exit code {process.returncode}\n{printed}".rstrip()

    def _bytes(self, path: str) -> bytes:
        file = self._inside(path)
        if not file.is_file():
            raise ValueError(f"{path} is not a file of the workspace")
        if file.stat().st_size > MAX_BYTES:
            raise ValueError(f"{path} is larger than {MAX_BYTES} bytes")
        return file.read_bytes()

    def _inside(self, path: str) -> Path:
        """Return the resolved path.

        Raise ValueError if it is outside the workspace, also if a link leads outside.
        """
        self._root.mkdir(parents=True, exist_ok=True)
        resolved = (self._root / path).resolve()
        if not resolved.is_relative_to(self._root):
            raise ValueError(f"{path} is outside the workspace")
        if resolved.relative_to(self._root).parts[:1] in [(name,) for name in self._protected]:
            raise ValueError(f"{path} is in a protected folder")
        return resolved


def _line(entry: Path) -> str:
    return f"{entry.name}/" if entry.is_dir() else f"{entry.name} ({entry.lstat().st_size} bytes)"


def _ended(text: str, line_end: str) -> str:
    return text if not text or text.endswith(("\n", "\r")) else f"{text}{line_end}"


async def _printed(process: asyncio.subprocess.Process) -> str:
    """Wait for a process and return the first million bytes of its output."""
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    kept = bytearray()
    while data := await process.stdout.read(65536):
        kept += data[: max(MAX_BYTES - len(kept), 0)]
    await process.wait()
    return kept.decode("utf-8", "replace")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a running process and the processes that it has started."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        elif process.returncode is None:
            process.kill()
    await process.wait()
    # The pipe is closed at its end. A process that has left the group can keep it open.
    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(_printed(process), 1)
