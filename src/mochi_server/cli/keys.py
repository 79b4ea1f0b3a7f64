"""``mochi-server keys``: add, list and revoke the keys of a keys file."""

import re
from collections.abc import Sequence
from pathlib import Path
from secrets import token_urlsafe

from mochi_server.storage.files import atomic_files
from mochi_server.web.keys import NAME, Key, KeysFileInvalid, caller_of, hash_of, read_keys


def run(path: Path, action: str, name: str, scope: str) -> str:
    """Add, list or revoke a key, and return the text for the user. Raises ``KeysFileInvalid``."""
    keys = read_keys(path) if path.exists() else []
    others = [key for key in keys if key["name"] != name]
    if action == "list":
        lines = []
        for caller in map(caller_of, keys):
            sessions = "all" if caller.sees_all else "own"
            lines.append(f"{caller.key:<24} {sessions}  ID {caller.owner}")
        return "\n".join(lines)
    if action == "revoke":
        if others == keys:
            raise KeysFileInvalid(
                f"{path} has no key {name!r}. `mochi-server keys list` lists the keys"
            )
        _write(path, others)
        return f"revoked {name}"
    if others != keys or not re.fullmatch(NAME, name):
        raise KeysFileInvalid(
            f"{name!r} is in use or not a name. Use 1 to 64 letters, digits and `._@-`"
        )
    secret = f"mochi_{token_urlsafe(32)}"
    _write(path, [*keys, {"name": name, "hash": hash_of(secret.encode()), "scope": scope}])
    return secret


def _write(path: Path, keys: Sequence[Key]) -> None:
    mode = path.stat().st_mode if path.exists() else 0o600
    text = "# Written by `mochi-server keys`, without the comments of earlier versions\n"
    for key in keys:
        fields = [f"{field}: {value}\n" for field, value in key.items()]
        text += "- " + "  ".join(fields)
    try:
        atomic_files.write(path.resolve(), text.encode())
        path.chmod(mode)
    except OSError as error:
        raise KeysFileInvalid(f"cannot write {path}: {error.strerror}") from error
