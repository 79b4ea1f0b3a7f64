"""Folders of the owners of sessions, for tools that work with files."""

from hashlib import sha256
from pathlib import Path

from mochi_server.sessions.caller import current_owner


def owner_folder(root: Path) -> Path:
    """Return the folder in ``root`` of the owner of the session whose turn calls a tool.

    A session without an owner, as on a server without a keys file, has ``root`` itself.
    """
    owner = current_owner()
    if owner is None:
        return root
    key_id, _, user = owner.partition("/")
    name = f"{key_id}-{sha256(user.encode()).hexdigest()[:16]}" if user else key_id
    return root / "owners" / name
