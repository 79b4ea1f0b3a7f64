"""API keys of a server, and the file that contains keys with names."""

import hmac
import logging
import os
import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from mochi_server.errors import MochiError
from mochi_server.sessions.caller import Caller
from mochi_server.util import regular_files
from mochi_server.util.text import nearest

NAME = r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}"
_FIELDS = {
    "name": (NAME, "not a name of 1 to 64 letters, digits and `._@-`"),
    "hash": ("sha256:[0-9a-f]{64}", "a weak hash, or no hash. Use `sha256:` and 64 hex digits"),
    "scope": ("own|all", "neither `own` nor `all`"),
    "turns_at_a_time": ("[1-9][0-9]{0,8}", "not a positive number"),
    "turns_per_minute": ("[1-9][0-9]{0,8}", "not a positive number"),
}
"""Fields of a key in the keys file: the pattern of the values, and the problem with other values.
"""
Key = dict[str, str]
"""Fields of a key. Only `name` and `hash` are required. The limits apply to each server process."""

logger = logging.getLogger(__name__)


class KeysFileInvalid(MochiError):
    """The keys file cannot be used.

    The message has the path, the line and the problem, but no value.
    """

    code, status, cause = "KEYS_FILE_INVALID", 500, "The keys file cannot be used."


def hash_of(key: bytes) -> str:
    return f"sha256:{sha256(key).hexdigest()}"


def caller_of(key: Key) -> Caller:
    """Return the caller that sends a key.

    Its ID is as random as the key, so that no other key has the ID.
    """
    digest = sha256(key["hash"].encode()).hexdigest()
    return Caller(
        key["name"],
        digest[:16],
        key.get("scope") == "all",
        _number(key.get("turns_at_a_time")),
        _number(key.get("turns_per_minute")),
    )


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def read_keys(path: Path) -> list[Key]:
    """Return the keys in a file. Raises ``KeysFileInvalid``."""
    keys: list[Key] = []
    line = 1
    try:
        root = yaml.compose(regular_files.read_text(path), yaml.SafeLoader)
        for entry in _parts(root, yaml.SequenceNode) if root else ():
            line, key = entry.start_mark.line + 1, Key()
            for name, value in _parts(entry, yaml.MappingNode):
                line = name.start_mark.line + 1
                key[name.value] = _checked(name.value, value, keys)
            if not {"name", "hash"} <= key.keys():
                raise ValueError("the key has no `name` or no `hash`")
            keys.append(key)
    except (OSError, ValueError, yaml.YAMLError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        problem = problem or getattr(error, "strerror", None) or error
        raise KeysFileInvalid(
            f"{path}, line {mark.line + 1 if mark else line}: {problem}"
        ) from None
    return keys


def _parts(node: yaml.Node, kind: type[yaml.CollectionNode]) -> Any:
    if not isinstance(node, kind):
        raise ValueError(f"not a list of keys with the fields {', '.join(_FIELDS)}")
    return node.value


def _checked(name: Any, value: yaml.Node, others: Sequence[Key]) -> str:
    if name not in _FIELDS:
        similar = nearest(str(name), _FIELDS)
        hint = f"; did you mean {similar!r}?" if similar else ""
        raise ValueError(f"unknown field {name!r}{hint}")
    pattern, problem = _FIELDS[name]
    if not isinstance(value, yaml.ScalarNode) or not re.fullmatch(pattern, value.value):
        raise ValueError(f"`{name}` is {problem}")
    if name in ("name", "hash") and value.value in [other[name] for other in others]:
        raise ValueError(f"an earlier key has the same {name}")
    return str(value.value)


class KeyRing:
    """Keys of a server: those of the settings, and those of a file, which is read again when it
    changes.
    """

    def __init__(self, unnamed: Sequence[str] = (), path: Path | None = None) -> None:
        """``unnamed`` are the keys of the settings. Raises ``KeysFileInvalid``."""
        self.is_empty = not unnamed and path is None
        self.source = _source(unnamed, path)
        """Text for an error message that says where the keys are."""
        self._unnamed = []
        for number, key in enumerate(unnamed, 1):
            self._unnamed.append((hash_of(key.encode()), Caller(f"key-{number}")))
        self._path = path
        self._version = path and _file_version(path)
        self._named = self._read()

    def find(self, sent: Sequence[bytes]) -> Caller | None:
        """Return the caller that sends these keys, or None if none of the keys is known."""
        self._read_changes()
        # All hashes are compared, so that the response time reveals neither a key's length nor
        # which key matched.
        matching = []
        for key in sent:
            sent_hash = hash_of(key)
            for known, caller in (*self._unnamed, *self._named):
                if hmac.compare_digest(sent_hash, known):
                    matching.append(caller)
        return matching[0] if matching else None

    def _read_changes(self) -> None:
        if self._path is None:
            return
        version = _file_version(self._path)
        if version == self._version:
            return
        self._version = version
        try:
            self._named = self._read()
        except KeysFileInvalid as error:
            logger.error("Keys file invalid; the earlier keys stay valid: %s", error)

    def _read(self) -> list[tuple[str, Caller]]:
        if self._path is None:
            return []
        return [(key["hash"], caller_of(key)) for key in read_keys(self._path)]


def _source(unnamed: Sequence[str], path: Path | None) -> str:
    if path is None:
        return "in MOCHI_API_KEYS, or the key that the server printed"
    added = "in the file of MOCHI_API_KEYS_FILE, to which `mochi-server keys add NAME` adds keys"
    return f"in MOCHI_API_KEYS or {added}" if unnamed else added


def _file_version(path: Path) -> tuple[int, ...]:
    """Return values that differ between versions of a file, or nothing if it is missing."""
    try:
        status = os.stat(path)  # noqa: PTH116 - each request does this; Path.stat is slower
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino
