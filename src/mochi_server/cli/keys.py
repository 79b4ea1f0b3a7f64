"""``mochi-server keys``: add, list and revoke the keys of a keys file."""

import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from secrets import token_urlsafe
from types import MappingProxyType

from mochi_server.services.keys import (
    DEFAULT,
    LISTS,
    NAME,
    SETTINGS_NAME,
    Key,
    KeysFile,
    KeysFileInvalid,
    expires_at,
    find_problem,
    hash_of,
    read_keys,
)
from mochi_server.sessions.caller import Caller
from mochi_server.storage.files import atomic_files

INITIAL_PERMISSIONS: Key = {
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
"""Permissions of the keys of the scope `own`, in a new file and in a file that had only keys of the
scope `all`: the read-only tools of the samples.
"""
NO_FIELDS: Mapping[str, str] = MappingProxyType({})


def list_keys(path: Path) -> str:
    """Return a line for each key. Raises ``KeysFileInvalid``."""
    content = read_keys(path)
    return "\n".join(_line(key, content.caller(key)) for key in content.keys)


def revoke(path: Path, name: str) -> str:
    """Remove a key, and return a text for the user. Raises ``KeysFileInvalid``."""
    content = read_keys(path)
    others = [key for key in content.keys if key["name"] != name]
    if len(others) == len(content.keys):
        raise KeysFileInvalid(
            f"{path} has no key {name!r}. `mochi-server keys list` lists the keys"
        )
    _write(path, others, content.default)
    return f"revoked {name}"


def add(path: Path, names: Sequence[str], given: Mapping[str, str] = NO_FIELDS) -> str:
    """Add a key for each name. Return the only key, or a line with name and key for each.

    ``given`` has the other fields of the keys as texts. Lists are separated by commas, and
    ``expires`` can also be a number of days such as ``90d``. Raises ``KeysFileInvalid``; then no
    key was added.
    """
    content = KeysFile() if _status(path) is None else read_keys(path)
    keys = list(content.keys)
    fields = _fields(given)
    default = content.default
    # Keys of the scope `own` without permissions can use everything. If there are such keys, the
    # line would restrict them.
    if default is None and all(key.get("scope") == "all" for key in keys):
        default = INITIAL_PERMISSIONS
    secrets = []
    for name in names:
        if names.count(name) > 1:
            raise KeysFileInvalid(f"the name {name!r} is given twice. Choose another name")
        _check_name(path, name, content.keys)
        secret = f"mochi_{token_urlsafe(32)}"
        secret_hash = hash_of(secret.encode())
        keys.append({"name": name, "hash": secret_hash, **fields})
        secrets.append(secret)
    _write(path, keys, default)
    if len(secrets) == 1:
        return secrets[0]
    lines = [f"{name} {secret}" for name, secret in zip(names, secrets, strict=True)]
    return "\n".join(lines)


def _status(path: Path) -> os.stat_result | None:
    """Return the status of a keys file, or None if it is missing. Raises ``KeysFileInvalid``."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KeysFileInvalid(f"cannot read {path}: {error.strerror}") from error


def _check_name(path: Path, name: str, keys: Sequence[Key]) -> None:
    if any(key["name"] == name for key in keys):
        raise KeysFileInvalid(
            f"{path} already has a key {name!r}. Choose another name, or remove that key with "
            f"`mochi-server keys revoke {name}`"
        )
    if not re.fullmatch(NAME, name):
        raise KeysFileInvalid(f"{name!r} is not a name. Use 1 to 64 letters, digits and `._@-`")
    if re.fullmatch(SETTINGS_NAME, name):
        raise KeysFileInvalid(
            f"{name!r} is reserved for a key of MOCHI_API_KEYS. Choose another name"
        )


def _fields(given: Mapping[str, str]) -> Key:
    """Return the fields of new keys, as the keys file has them. Raises ``KeysFileInvalid``."""
    key = Key()
    for field, text in given.items():
        key[field] = _value(field, text)
    return key


def _value(field: str, text: str) -> str | list[str]:
    """Return the value of an option. Raises ``KeysFileInvalid``."""
    if field == "expires":
        return _expiry(text)
    value: str | list[str] = text
    if field in LISTS:
        value = [name for name in text.split(",") if name]
    problem = find_problem(field, value)
    if problem is not None:
        option = field.replace("_", "-")
        raise KeysFileInvalid(f"--{option}: {problem}")
    return value


def _line(key: Key, caller: Caller) -> str:
    """Return the line of a key in the list. ``caller.key`` is the name of the key."""
    columns = [f"{caller.key:<24} {'all' if caller.sees_all else 'own'}"]
    if caller.has_expired:
        columns.append(f"expired {key['expires']}")
    elif caller.expires_at is not None:
        columns.append(f"expires {key['expires']}")
    return "  ".join([*columns, f"ID {caller.owner}"])


def _expiry(text: str) -> str:
    """Return the value of ``expires`` in the keys file: for a number of days, the last day.

    Raises ``KeysFileInvalid``, also for a time in the past.
    """
    days = re.fullmatch("([1-9][0-9]{0,4})d", text)
    if days is not None:
        last = datetime.now(timezone.utc) + timedelta(days=int(days[1]))
        return f"{last:%Y-%m-%d}"
    problem = find_problem("expires", text)
    if problem is None and expires_at(text) <= time.time():
        problem = f"{text} is in the past"
    if problem is not None:
        raise KeysFileInvalid(f"--expires: {problem}. Use a date, a time or days such as 90d")
    return text


def _write(path: Path, keys: Sequence[Key], default: Key | None) -> None:
    """Create or replace a keys file, which keeps its permissions. Raises ``KeysFileInvalid``."""
    earlier = _status(path)
    text = "# Written by `mochi-server keys`, without the comments of earlier versions\n"
    if default is not None:
        fields = ", ".join(f"{field}: {_yaml(value)}" for field, value in default.items())
        text += f"- {DEFAULT}: {{{fields}}}\n"
    for key in keys:
        lines = [f"{field}: {_yaml(value)}\n" for field, value in key.items()]
        text += "- " + "  ".join(lines)
    target = path.resolve()
    try:
        atomic_files.create_directory(target.parent)
        atomic_files.write(target, text.encode())
        if earlier is not None:
            _restore_permissions(path, earlier)
    except OSError as error:
        raise KeysFileInvalid(f"cannot write {path}: {error.strerror}") from error


def _restore_permissions(path: Path, earlier: os.stat_result) -> None:
    """Give a new file the owner, the group and the mode of an earlier one.

    Otherwise the server might be unable to read its keys.
    """
    if sys.platform != "win32":
        with suppress(PermissionError):  # only for a member of the group
            os.chown(path, -1, earlier.st_gid)
        with suppress(PermissionError):  # only for root
            os.chown(path, earlier.st_uid, -1)
    path.chmod(earlier.st_mode)


def _yaml(value: str | list[str]) -> str:
    """Return a value of a field as YAML in one line.

    Texts need no quotes: their patterns permit no special characters, and ``read_keys`` reads
    `true` and `123` as texts.
    """
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
