"""Tools for the files of one directory, and for commands that run in this directory."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

MAX_BYTES = 1_000_000
_PASSED_ON = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "SYSTEMROOT", "COMSPEC", "PATHEXT", "TEMP")
"""What commands get of the server's environment: nothing that could be a secret of it."""


class Workspace:
    """A folder. Its methods are tools, and models read their docstrings. ``closed`` names folders to stay out of."""

    def __init__(self, root: Path, *, closed: tuple[str, ...] = ()) -> None:
        self._root = root.resolve()
        self._closed = closed

    def list_dir(self, path: str = ".") -> str:
        """List the files and folders of a folder.

        Args:
            path: The folder, relative to the workspace.
        """
        folder = self._inside(path)
        if not folder.is_dir():
            raise ValueError(f"{path} is not a folder of the workspace")
        entries = sorted(folder.iterdir(), key=lambda entry: (not entry.is_dir(), entry.name))
        return "\n".join(_line(entry) for entry in entries) or "The folder is empty."

    def read_file(self, path: str, first_line: int = 1, last_line: int | None = None) -> str:
        """Read a text file, or some lines of it.

        Args:
            path: The file, relative to the workspace.
            first_line: The first line to read; 1 is the first of the file.
            last_line: The last line to read; without it, everything from the first line on.
        """
        lines = self._text(path).splitlines(keepends=True)
        return "".join(lines[max(first_line, 1) - 1 : last_line])

    def write_file(self, path: str, content: str) -> str:
        """Write a text file; one that exists is overwritten.

        Args:
            path: The file, relative to the workspace. Folders on the way are made.
            content: The whole new text.
        """
        file = self._inside(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, "utf-8")
        return f"Wrote {len(content)} characters to {path}."

    def insert_replace_text(self, path: str, new_text: str, old_text: str = "", after_line: int = 0) -> str:
        """Change a text file in one place: replace a passage, or insert text between lines.

        Args:
            path: The file, relative to the workspace.
            new_text: The text to put there.
            old_text: The passage to replace; it must stand in the file exactly once. Empty to insert.
            after_line: Where to insert when there is no old_text; 0 is the beginning of the file.
        """
        text = self._text(path)
        if old_text:
            if (found := text.count(old_text)) != 1:
                raise ValueError(f"old_text stands in {path} {found} times; it must be exactly once")
            changed = text.replace(old_text, new_text)
        else:
            lines = text.splitlines(keepends=True)
            if not 0 <= after_line <= len(lines):
                raise ValueError(f"{path} has {len(lines)} lines")
            before, after = "".join(lines[:after_line]), "".join(lines[after_line:])
            changed = _ended(before) + (_ended(new_text) if after else new_text) + after
        self._inside(path).write_text(changed, "utf-8")
        return f"Changed {path}."

    def delete_rename_file(self, path: str, new_path: str = "") -> str:
        """Delete a file or an empty folder, or give it another name.

        Args:
            path: The file or folder, relative to the workspace.
            new_path: Its new name, relative to the workspace, where nothing may be yet. Empty to delete.
        """
        target, entry = self._inside(path), Path(path)
        if not target.exists() or target == self._root:
            raise ValueError(f"{path} is not a file or folder in the workspace")
        old = self._inside(str(entry.parent)) / entry.name  # a link, not the file to which it leads
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
        """Run a shell command in the workspace and get its exit code and what it prints.

        Args:
            command: The command line. Nobody can type into it, so it must not ask for input.
            timeout_seconds: After this many seconds it is killed.
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

    def _text(self, path: str) -> str:
        file = self._inside(path)
        if not file.is_file():
            raise ValueError(f"{path} is not a file of the workspace")
        if file.stat().st_size > MAX_BYTES:
            raise ValueError(f"{path} is larger than {MAX_BYTES} bytes")
        return file.read_text("utf-8", "replace")

    def _inside(self, path: str) -> Path:
        """A path within the root; links that lead out of it are refused like any other way out."""
        self._root.mkdir(parents=True, exist_ok=True)
        resolved = (self._root / path).resolve()
        if not resolved.is_relative_to(self._root):
            raise ValueError(f"{path} is outside the workspace")
        if resolved.relative_to(self._root).parts[:1] in [(name,) for name in self._closed]:
            raise ValueError(f"{path} is not for you")
        return resolved


def _line(entry: Path) -> str:
    return f"{entry.name}/" if entry.is_dir() else f"{entry.name} ({entry.lstat().st_size} bytes)"


def _ended(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


async def _printed(process: asyncio.subprocess.Process) -> str:
    """All that a process prints, its first million bytes kept, when it has ended."""
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    kept = bytearray()
    while data := await process.stdout.read(65536):
        kept += data[: max(MAX_BYTES - len(kept), 0)]
    await process.wait()
    return kept.decode("utf-8", "replace")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a process that still runs, and whatever it has started."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        elif process.returncode is None:
            process.kill()
    await process.wait()
