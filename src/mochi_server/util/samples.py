"""Folders of sample tools, agents and prompts, and the file that permits the server to import a directory's tools."""

from pathlib import Path

FOLDERS = ("tools", "agents", "system_prompts", "chat_sessions")
MARKER = ".mochi-server"
"""Name of the file with which `mochi-server init` marks a data directory, so that the server imports code from it."""

_PACKAGE = Path(__file__).parents[1]


def sample_folders() -> list[Path]:
    """Return the paths of the sample folders.

    An installed package has the folders in ``samples``. A clone of the repository has them in its root directory.
    """
    root = next(root for root in (_PACKAGE / "samples", _PACKAGE.parents[1]) if (root / FOLDERS[0]).is_dir())
    return [root / folder for folder in FOLDERS]
