"""``mochi-server keys``: add, list and revoke the keys of a keys file."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from secrets import token_urlsafe

from mochi_server.services.keys import (
    DEFAULT,
    NAME,
    Key,
    KeysFile,
    KeysFileInvalid,
    hash_of,
    read_keys,
)
from mochi_server.storage.files import atomic_files

NEW_DEFAULT: Key = {
    "tools": [
        "add_numbers",
        "subtract_numbers",
        "multiply_numbers",
        "divide_numbers",
        "get_current_time",
        "flip_coin",
        "roll_dice",
        "list_dir",
        "read_file",
    ],
    "agents": [],
}
"""Permissions of the keys of the scope `own` in a new file: the read-only tools of the samples."""


def run(path: Path, action: str, name: str, scope: str) -> str:
    """Add, list or revoke a key, and return the text for the user. Raises ``KeysFileInvalid``."""
    content = read_keys(path) if path.exists() else KeysFile()
    keys = list(content.keys)
    others = [key for key in keys if key["name"] != name]
    if action == "list":
        lines = []
        for caller in map(content.caller, keys):
            sessions = "all" if caller.sees_all else "own"
            lines.append(f"{caller.key:<24} {sessions}  ID {caller.owner}")
        return "\n".join(lines)
    if action == "revoke":
        if others == keys:
            raise KeysFileInvalid(
                f"{path} has no key {name!r}. `mochi-server keys list` lists the keys"
            )
        _write(path, others, content.default)
        return f"revoked {name}"
    if others != keys or not re.fullmatch(NAME, name):
        raise KeysFileInvalid(
            f"{name!r} is in use or not a name. Use 1 to 64 letters, digits and `._@-`"
        )
    default = content.default
    if default is None and not any(key.get("scope") != "all" for key in keys):
        default = NEW_DEFAULT
    secret = f"mochi_{token_urlsafe(32)}"
    new = {"name": name, "hash": hash_of(secret.encode()), "scope": scope}
    _write(path, [*keys, new], default)
    return secret


def _write(path: Path, keys: Sequence[Key], default: Key | None) -> None:
    mode = path.stat().st_mode if path.exists() else 0o600
    text = "# Written by `mochi-server keys`, without the comments of earlier versions\n"
    if default is not None:
        fields = ", ".join(f"{field}: {_yaml(value)}" for field, value in default.items())
        text += f"- {DEFAULT}: {{{fields}}}\n"
    for key in keys:
        lines = [f"{field}: {_yaml(value)}\n" for field, value in key.items()]
        text += "- " + "  ".join(lines)
    try:
        atomic_files.write(path.resolve(), text.encode())
        path.chmod(mode)
    except OSError as error:
        raise KeysFileInvalid(f"cannot write {path}: {error.strerror}") from error


def _yaml(value: str | list[str]) -> str:
    """Return a value of a field as YAML in one line."""
    if isinstance(value, str):
        return value
    return f"[{', '.join(json.dumps(name) for name in value)}]"
