"""Tools for the files of one directory: ``MOCHI_FILES_ROOT``, or ``workspace`` in the server's
working directory. With a keys file, each owner of sessions has a folder in it.
"""

import os
from pathlib import Path

from mochi_server.tools import owner_folder

MAX_BYTES = 1_000_000


def list_dir(path: str = ".") -> str:
    """List the files and folders in a folder.

    Args:
        path: Path of the folder, relative to the workspace.
    """
    folder = _inside(path)
    if not folder.is_dir():
        raise ValueError(f"{path} is not a folder of the workspace")
    entries = sorted(folder.iterdir(), key=lambda entry: (not entry.is_dir(), entry.name))
    return "\n".join(_line(entry) for entry in entries) or "The folder is empty."


def read_file(path: str) -> str:
    """Read a text file.

    Args:
        path: Path of the file, relative to the workspace.
    """
    file = _inside(path)
    if not file.is_file():
        raise ValueError(f"{path} is not a file of the workspace")
    if file.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path} is larger than {MAX_BYTES} bytes")
    return file.read_text("utf-8", "replace")


def write_file(path: str, content: str) -> str:
    """Write a text file. An existing file is overwritten.

    Args:
        path: Path of the file, relative to the workspace. Missing folders are created.
        content: The complete new text.
    """
    file = _inside(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content, "utf-8")
    return f"Wrote {len(content)} characters to {path}."


def delete_file(path: str) -> str:
    """Delete a file.

    Args:
        path: Path of the file, relative to the workspace.
    """
    if not _inside(path).is_file():
        raise ValueError(f"{path} is not a file of the workspace")
    entry = Path(path)
    (_inside(str(entry.parent)) / entry.name).unlink()  # the link itself, not its target
    return f"Deleted {path}."


def _root() -> Path:
    root = owner_folder(Path(os.environ.get("MOCHI_FILES_ROOT", "workspace")).resolve())
    root.mkdir(parents=True, exist_ok=True)
    return root


def _inside(path: str) -> Path:
    """Return the resolved path.

    Raise ValueError if it is outside the workspace, also if a link leads outside.
    """
    root = _root()
    resolved = (root / path).resolve()
    if not resolved.is_relative_to(root):
        raise ValueError(f"{path} is outside the workspace")
    return resolved


def _line(entry: Path) -> str:
    return f"{entry.name}/" if entry.is_dir() else f"{entry.name} ({entry.lstat().st_size} bytes)"
