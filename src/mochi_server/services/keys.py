"""API keys of a server, and the file that contains keys with names."""

import hmac
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml

from mochi_server.errors import MochiError
from mochi_server.ollama.payloads import qualified_name
from mochi_server.sessions.caller import CALLER, UNRESTRICTED, Caller
from mochi_server.sessions.permissions import Permissions, Rules
from mochi_server.sessions.types import ToolExecutionPolicy
from mochi_server.util import regular_files
from mochi_server.util.text import nearest

NAME = r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}"
_POLICIES = [policy.value for policy in ToolExecutionPolicy]
FIELDS = {
    "name": (NAME, "not a name of 1 to 64 letters, digits and `._@-`"),
    "hash": ("sha256:[0-9a-f]{64}", "a weak hash, or no hash. Use `sha256:` and 64 hex digits"),
    "scope": ("own|all", "neither `own` nor `all`"),
    "turns_at_a_time": ("[1-9][0-9]{0,8}", "not a positive number"),
    "turns_per_minute": ("[1-9][0-9]{0,8}", "not a positive number"),
    "tokens_per_day": ("[1-9][0-9]{0,14}", "not a positive number"),
    "expires": (
        r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d))?",
        "neither a date such as 2027-01-31 nor a time such as 2027-01-31T18:00Z",
    ),
    "policy": ("|".join(_POLICIES), f"none of {', '.join(_POLICIES)}"),
}
"""Fields of a key in the keys file: the pattern of the values, and the problem with other values.
"""
LISTS = ("tools", "agents", "models")
"""Fields that are lists of names and patterns."""
_ITEM = r"\S{1,200}"
_NO_LIST = "not a list of names or patterns, such as [read_*, add]"
_PERMISSIONS = (*LISTS, "policy")
_SETTINGS_PREFIX = "key-"
SETTINGS_NAME = rf"{_SETTINGS_PREFIX}\d+"
"""Pattern of the names of the keys of `MOCHI_API_KEYS`."""
UNNAMED = "settings"
"""Owner of the users of the keys of `MOCHI_API_KEYS`, in place of a key ID."""
DEFAULT = "default"
"""Only field of the first entry of the file, if that entry is no key: permissions of the keys of
the scope `own` that do not have these fields.
"""
Key = dict[str, Any]
"""Fields of a key. Only `name` and `hash` are required.

The limits hold for all servers that share the sessions. The values are texts, and lists of texts.
"""

logger = logging.getLogger(__name__)


class KeysFileInvalid(MochiError):
    """The keys file cannot be used.

    The message has the path, the problem and the line with it, if any, but no value.
    """

    code, status, cause = "KEYS_FILE_INVALID", 500, "The keys file cannot be used."


def hash_of(key: bytes) -> str:
    return f"sha256:{sha256(key).hexdigest()}"


@dataclass(frozen=True)
class KeysFile:
    """Content of a keys file."""

    keys: Sequence[Key] = ()
    default: Key | None = None
    """Permissions of the keys of the scope `own`, or None if the file has no such line."""

    def caller(self, key: Key) -> Caller:
        """Return the caller that sends a key.

        Its ID is as random as the key, so that no other key has the ID.
        """
        digest = sha256(key["hash"].encode()).hexdigest()
        return Caller(
            key["name"],
            digest[:16],
            key.get("scope") == "all",
            turns_at_a_time=_number(key.get("turns_at_a_time")),
            turns_per_minute=_number(key.get("turns_per_minute")),
            tokens_per_day=_number(key.get("tokens_per_day")),
            expires_at=expires_at(key["expires"]) if "expires" in key else None,
            permissions=self._permissions(key),
        )

    @property
    def default_permissions(self) -> Permissions:
        return _permissions(self.default or {})

    def _permissions(self, key: Key) -> Permissions:
        if key.get("scope") == "all":
            return _permissions(key)
        return _permissions({**(self.default or {}), **key})


def expires_at(text: str) -> float:
    """Return the Unix time in seconds at which a key expires: at the end of a day in UTC, or at a
    time.

    Raises ValueError for a date that does not exist.
    """
    try:
        if "T" in text:
            return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
        day = datetime.fromisoformat(f"{text}T00:00+00:00")
        # The calendar has no day after 9999-12-31.
        return day.timestamp() + timedelta(days=1).total_seconds()
    except ValueError:
        raise ValueError(f"`expires` is not a date: {text}") from None


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)


def _permissions(fields: Mapping[str, Any]) -> Permissions:
    models = None
    if "models" in fields:
        models = [_model_pattern(name) for name in fields["models"]]
    return Permissions(
        tools=_rules(fields.get("tools")),
        agents=_rules(fields.get("agents")),
        models=_rules(models),
        policy=ToolExecutionPolicy(fields.get("policy", ToolExecutionPolicy.NEVER_CONFIRM)),
    )


def _rules(patterns: Sequence[str] | None) -> Rules:
    return () if patterns is None else (tuple(patterns),)


def _model_pattern(name: str) -> str:
    """Return a pattern of qualified names. A name without a tag is `:latest`."""
    is_pattern = re.search(r"[*?\[]", name) is not None
    return name.lower() if is_pattern else qualified_name(name)


def read_keys(path: Path) -> KeysFile:
    """Return the keys in a file. Raises ``KeysFileInvalid``."""
    keys: list[Key] = []
    default: Key | None = None
    line = 1
    try:
        root = yaml.compose(_text_of(path), yaml.SafeLoader)
        for number, entry in enumerate(_parts(root, yaml.SequenceNode) if root else ()):
            line = entry.start_mark.line + 1
            fields = _parts(entry, yaml.MappingNode)
            if number == 0 and [name.value for name, _ in fields] == [DEFAULT]:
                default = _default(fields[0][1])
                continue
            key = Key()
            for name, value in fields:
                line = name.start_mark.line + 1
                key[name.value] = _checked(name.value, value, keys)
            if not {"name", "hash"} <= key.keys():
                raise ValueError("the key has no `name` or no `hash`")
            keys.append(key)
    except (ValueError, yaml.YAMLError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        problem = problem or error
        raise KeysFileInvalid(
            f"{path}, line {mark.line + 1 if mark else line}: {problem}"
        ) from None
    return KeysFile(keys, default)


def _text_of(path: Path) -> str:
    """Return the text of a keys file. Raises ``KeysFileInvalid`` and ``UnicodeDecodeError``."""
    try:
        return regular_files.read_text(path)
    except FileNotFoundError:
        hint = "`mochi-server keys add NAME` creates it"
        raise KeysFileInvalid(f"{path} does not exist. {hint}") from None
    except OSError as error:
        raise KeysFileInvalid(f"cannot read {path}: {error.strerror}") from None


def _parts(node: yaml.Node, kind: type[yaml.CollectionNode]) -> Any:
    """Return the children of a node of this kind. Raises ValueError for another kind."""
    if not isinstance(node, kind):
        raise ValueError(f"not a list of keys with the fields {', '.join((*FIELDS, *LISTS))}")
    return node.value


def _default(node: yaml.Node) -> Key:
    """Return the permissions in the first line of the file."""
    if not isinstance(node, yaml.MappingNode):
        raise ValueError(f"`{DEFAULT}` is not a mapping with the fields {', '.join(_PERMISSIONS)}")
    default = Key()
    for name, value in node.value:
        if name.value not in _PERMISSIONS:
            names = ", ".join(_PERMISSIONS)
            raise ValueError(f"`{DEFAULT}` has the field {name.value!r}. It can have {names}")
        default[name.value] = _checked(name.value, value, ())
    return default


def _checked(name: Any, value: yaml.Node, others: Sequence[Key]) -> str | list[str]:
    if name not in (*FIELDS, *LISTS):
        similar = nearest(str(name), (*FIELDS, *LISTS))
        hint = f"; did you mean {similar!r}?" if similar else ""
        raise ValueError(f"unknown field {name!r}{hint}")
    content = _content(value)
    problem = find_problem(name, content)
    if problem is not None:
        raise ValueError(problem)
    if name in ("name", "hash") and content in [other[name] for other in others]:
        raise ValueError(f"an earlier key has the same {name}")
    return content


def _content(node: yaml.Node) -> str | list[str]:
    """Return a text or a list of texts. Anything else is the empty text."""
    if isinstance(node, yaml.ScalarNode):
        return str(node.value)
    if not isinstance(node, yaml.SequenceNode):
        return ""
    return [str(item.value) if isinstance(item, yaml.ScalarNode) else "" for item in node.value]


def find_problem(field: str, value: str | Sequence[str]) -> str | None:
    """Return why a field of a key cannot have this value, or None."""
    if field in LISTS:
        is_list = not isinstance(value, str) and all(re.fullmatch(_ITEM, name) for name in value)
        return None if is_list else f"`{field}` is {_NO_LIST}"
    pattern, problem = FIELDS[field]
    text = value if isinstance(value, str) else ""
    if not re.fullmatch(pattern, text):
        return f"`{field}` is {problem}"
    if field == "expires":  # the pattern also matches dates that do not exist
        try:
            expires_at(text)
        except ValueError as error:
            return str(error)
    return None


def _source(unnamed: Sequence[str], path: Path | None) -> str:
    if path is None:
        return "in MOCHI_API_KEYS, or the key that the server printed"
    added = "in the file of MOCHI_API_KEYS_FILE, to which `mochi-server keys add NAME` adds keys"
    return f"in MOCHI_API_KEYS or {added}" if unnamed else added


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
            name = f"{_SETTINGS_PREFIX}{number}"
            self._unnamed.append((hash_of(key.encode()), Caller(name)))
        self._path = path
        self._version = path and _file_version(path)
        self._file = KeysFile()
        self._named: Sequence[tuple[str, Caller]] = ()
        self._read()

    def find(self, sent: Sequence[bytes]) -> Caller | None:
        """Return the caller with the first known one of these keys, or None if none is known.

        The key of the caller may have expired.
        A file that has become invalid is logged, and its earlier keys stay valid.
        """
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
            self._read()
        except KeysFileInvalid as error:
            logger.error("Keys file invalid; the earlier keys stay valid: %s", error)

    def _read(self) -> None:
        if self._path is None:
            return
        file = read_keys(self._path)
        names_of_settings = [caller.key for _, caller in self._unnamed]
        for key in file.keys:
            if key["name"] in names_of_settings:
                raise KeysFileInvalid(
                    f"{self._path}: {key['name']!r} is the name of a key of MOCHI_API_KEYS. Rename "
                    "the key in the file"
                )
        self._file = file
        self._named = [(key["hash"], file.caller(key)) for key in file.keys]

    def caller_inside(self, owner: str | None, sender: str = "") -> Caller:
        """Return the caller of a turn in a session of ``owner``.

        ``sender`` is the name of the key that sent a turn which continues. If it is "", the current
        caller is the sender: the client, or the server if it continues a turn of an unknown sender.

        The turn may use what both the sender's key and the owner's key may use. It counts as a turn
        of the sender's key, or of the owner's key if the sender has none. ``tokens_per_day`` is
        never that of the owner's key, because only the start of a request checks it.
        """
        self._read_changes()
        caller = self._named_caller(sender) if sender else CALLER.get()
        inside = caller.inside(owner)
        if owner is None or self._path is None:
            return inside
        owning = self._owning(owner.partition("/")[0])
        counted = caller if caller.key else owning
        return replace(
            inside,
            key=counted.key,
            turns_at_a_time=counted.turns_at_a_time,
            turns_per_minute=counted.turns_per_minute,
            permissions=caller.permissions.restricted(owning.permissions),
        )

    def _named_caller(self, name: str) -> Caller:
        """Return the caller with the key of this name.

        A key that was revoked has the permissions of the file's default, or no tools and agents.
        """
        for _, caller in (*self._named, *self._unnamed):
            if caller.key == name:
                return caller
        if self._file.default is not None:
            return Caller(name, permissions=self._file.default_permissions)
        return Caller(name, permissions=_permissions({"tools": [], "agents": []}))

    def _owning(self, key_id: str) -> Caller:
        """Return the caller with this key ID.

        A key that was revoked has the default permissions, and those of `MOCHI_API_KEYS` have all.
        """
        for _, caller in self._named:
            if caller.owner == key_id:
                return caller
        if key_id == UNNAMED:
            return UNRESTRICTED
        return Caller(permissions=self._file.default_permissions)


def _file_version(path: Path) -> tuple[int, ...]:
    """Return values that differ between versions of a file, or nothing if it is missing.

    They also differ after a change of its permissions, because the earlier ones may have prevented
    reading.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 - each request does this; Path.stat is slower
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
