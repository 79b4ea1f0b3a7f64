"""Sample tools, agents and prompts of the package, and the file that marks a directory for them."""

from pathlib import Path

FOLDERS = ("tools", "agents", "system_prompts", "chat_sessions")
MARKER = ".mochi-server"
"""File that `mochi-server init` writes. The server imports the tools and agents of a directory with this file."""

_PACKAGE = Path(__file__).parents[1]


def sample_folders() -> list[Path]:
    """Return the sample folders: in the installed package, or at the root of a clone of the repository."""
    root = next(root for root in (_PACKAGE / "samples", _PACKAGE.parents[1]) if (root / FOLDERS[0]).is_dir())
    return [root / folder for folder in FOLDERS]
