"""Versions of a history: messages that were replaced and can be shown again.

A version begins at the place of a message. It is an alternative to this message and to what comes
after it. The place can also be in another version.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from mochi_server.events import TurnWarning
from mochi_server.sessions.change import VersionChange
from mochi_server.sessions.serialization import encode
from mochi_server.sessions.session import ChatSession, complete_message
from mochi_server.sessions.types import Message, blobs_in
from mochi_server.util.clock import timestamp

MAX_VERSIONS = 50
"""Maximum number of versions of a session."""
MAX_BYTES = 8 * 1024 * 1024
"""Maximum size of the encoded versions of a session."""
KEY = "versions"
"""Key of the versions in a session file, beside the messages."""


@dataclass(frozen=True)
class Version:
    """Messages that were replaced, at least one.

    ``message_id`` is the ID of the message that is shown at their place. ``inside`` is the ID of
    the version that has this message, or None for the history. ``extra`` contains unknown keys of
    the session file, which PostgreSQL does not store.
    """

    version_id: str
    message_id: str
    replaced_at: str
    messages: Sequence[Message]
    inside: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def line(self) -> bytes:
        """Encoded version for a session file."""
        return encode(self.to_dict())

    @property
    def size(self) -> int:
        """Size of the encoded version in bytes."""
        return len(self.line)

    @property
    def started_at(self) -> str:
        """Time of the first message."""
        return self.messages[0]["timestamp"]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of the version in a session file."""
        stored: dict[str, Any] = {
            "version_id": self.version_id,
            "message_id": self.message_id,
            "replaced_at": self.replaced_at,
            "messages": list(self.messages),
        }
        if self.inside is not None:
            stored["inside"] = self.inside
        return {**stored, **self.extra}


_FIELDS = (
    "version_id",
    "message_id",
    "replaced_at",
    "messages",
    "inside",
)

Versions = tuple[Version, ...]
"""Versions of a session. The one that was replaced first is the first."""


def read_versions(stored: object) -> Versions:
    """Return the versions of a session file without damaged ones.

    The messages in ``stored`` are completed in place. Of versions with the same ID, return the
    first.
    """
    items = stored if isinstance(stored, list) else []
    versions: dict[str, Version] = {}
    for item in items:
        version = _read_version(item)
        if version is not None:
            versions.setdefault(version.version_id, version)
    return tuple(versions.values())


def _read_version(item: object) -> Version | None:
    if not isinstance(item, Mapping):
        return None
    version_id = item.get("version_id")
    message_id = item.get("message_id")
    messages = item.get("messages")
    inside = item.get("inside")
    if not isinstance(version_id, str) or not isinstance(message_id, str):
        return None
    if not isinstance(messages, list) or not messages:
        return None
    if not all(isinstance(message, dict) for message in messages):
        return None
    replaced_at = str(item.get("replaced_at") or "")
    completed = [
        complete_message(message, index, replaced_at) for index, message in enumerate(messages)
    ]
    extra = dict(item)
    for name in _FIELDS:
        extra.pop(name, None)
    return Version(
        version_id=version_id,
        message_id=message_id,
        replaced_at=replaced_at,
        messages=tuple(completed),
        inside=inside if isinstance(inside, str) else None,
        extra=extra,
    )


def split_versions(extra: dict[str, Any]) -> tuple[Versions, dict[str, Any]]:
    """Return the versions in the additional keys of a session file, and the other keys.

    The versions do not include those that exceed a limit.
    """
    if KEY not in extra:
        return (), extra
    others = dict(extra)
    stored = others.pop(KEY)
    return limited(read_versions(stored)), others


def with_versions(session: ChatSession, versions: Versions) -> ChatSession:
    """Return the session as in a session file, with these versions only."""
    extra = dict(session.extra)
    extra.pop(KEY, None)
    if versions:
        extra[KEY] = [version.to_dict() for version in versions]
    return ChatSession(replace(session.metadata, versions=None), session.history, extra)


def excess_versions(extra: Mapping[str, Any]) -> int:
    """Return how many versions of a session file ``limited`` removes."""
    versions = read_versions(extra.get(KEY))
    return len(versions) - len(limited(versions))


def places_of(versions: Versions) -> list[dict[str, str]] | None:
    """Return the metadata field ``versions``: the place and the time of each version in the
    history, or None if there is no such version.
    """
    places = [
        {"message_id": version.message_id, "timestamp": version.started_at}
        for version in versions
        if version.inside is None
    ]
    return places or None


@dataclass(frozen=True)
class ChangedVersions:
    """Versions after a change. ``removed`` is the number of those that ``limited`` removed."""

    versions: Versions
    removed: int = 0


def changed_versions(
    versions: Versions,
    replaced: Sequence[Message],
    new: Sequence[Message],
    change: VersionChange,
) -> ChangedVersions:
    """Return the versions after ``new`` messages have replaced the last messages of the history.

    The ``replaced`` messages become the latest version. A change with ``deleted`` replaces no
    message: it only removes the versions at the place of this message. A change that was stored
    before changes nothing.
    """
    if any(version.version_id == change.version_id for version in versions):
        return ChangedVersions(versions)  # the change was stored before
    if change.deleted is not None:
        deleted = {
            version.version_id
            for version in versions
            if version.inside is None and version.message_id == change.deleted
        }
        return ChangedVersions(_without(versions, deleted))
    if not replaced or not new:
        return ChangedVersions(versions)
    latest = Version(
        version_id=change.version_id,
        message_id=new[0]["message_id"],
        replaced_at=change.replaced_at,
        messages=tuple(replaced),
    )
    after = [
        _moved(version, latest, change.selected)
        for version in versions
        if version.version_id != change.selected
    ]
    after.append(latest)
    left = limited(tuple(after))
    return ChangedVersions(left, len(after) - len(left))


def _moved(version: Version, latest: Version, selected: str | None) -> Version:
    """Return a version at its place after the history has lost the messages of ``latest``, and
    shows those of the version ``selected``.
    """
    if version.inside is not None:
        is_shown = version.inside == selected
        return replace(version, inside=None) if is_shown else version
    first, *later = [message["message_id"] for message in latest.messages]
    if version.message_id == first:
        return replace(version, message_id=latest.message_id)
    if version.message_id in later:
        return replace(version, inside=latest.version_id)
    return version


def limited(versions: Versions) -> Versions:
    """Return the versions without the oldest ones that exceed a limit, and those inside them."""
    excess = versions[: max(0, len(versions) - MAX_VERSIONS)]
    if excess:
        versions = _without(versions, {version.version_id for version in excess})
    while sum(version.size for version in versions) > MAX_BYTES:
        versions = _without(versions, {versions[0].version_id})
    return versions


def versions_removed(count: int) -> TurnWarning:
    """Return the warning about versions that exceeded a limit."""
    megabytes = MAX_BYTES // (1024 * 1024)
    return TurnWarning(
        "VERSIONS_REMOVED",
        f"The oldest versions of the session were removed: {count}. A session has at most "
        f"{MAX_VERSIONS} versions of together {megabytes} MB.",
    )


def within(versions: Versions, history: Iterable[Message]) -> Versions:
    """Return the versions whose places are in these messages, with the versions inside them."""
    shown = {message["message_id"] for message in history}
    outside = {
        version.version_id
        for version in versions
        if version.inside is None and version.message_id not in shown
    }
    return _without(versions, outside)


def blobs_in_versions(versions: Versions) -> set[str]:
    """Return the hashes of the images, files and texts that the versions reference."""
    names: set[str] = set()
    for version in versions:
        names |= blobs_in(version.messages)
    return names


def _without(versions: Versions, removed: Collection[str]) -> Versions:
    """Return the versions without the ``removed`` ones and those inside them."""
    inside = defaultdict(list)
    for version in versions:
        inside[version.inside].append(version.version_id)
    gone = set()
    pending = list(removed)
    while pending:
        version_id = pending.pop()
        if version_id in gone:
            continue
        gone.add(version_id)
        pending += inside[version_id]
    return tuple(version for version in versions if version.version_id not in gone)


@dataclass(frozen=True)
class Alternative:
    """One of the alternatives at a place of the history.

    ``version_id`` is None for the messages that are shown.
    """

    version_id: str | None
    messages: Sequence[Message]


def alternatives(
    versions: Versions, history: Sequence[Message], index: int
) -> Sequence[Alternative]:
    """Return the alternatives at the message with this index, the oldest first."""
    message_id = history[index]["message_id"]
    found = [
        Alternative(version.version_id, version.messages)
        for version in versions
        if version.inside is None and version.message_id == message_id
    ]
    found.append(Alternative(None, history[index:]))
    return sorted(found, key=lambda each: timestamp(each.messages[0]["timestamp"]))


@dataclass(frozen=True)
class VersionCount:
    """Number of alternatives at the place of a message, including the shown one.

    ``shown`` is the position of the shown one, by age. The oldest one has the position 1.
    """

    count: int = 1
    shown: int = 1


def count_versions(
    places: Sequence[Mapping[str, str]] | None, history: Iterable[Message]
) -> dict[str, VersionCount]:
    """Return the number of alternatives by message ID, for the messages that have versions.

    ``places`` is the metadata field ``versions``.
    """
    if not places:
        return {}
    counts: dict[str, VersionCount] = {}
    times = {message["message_id"]: message["timestamp"] for message in history}
    for place in places:
        message_id = place["message_id"]
        if message_id not in times:
            continue
        before = counts.get(message_id, VersionCount())
        is_older = timestamp(place["timestamp"]) <= timestamp(times[message_id])
        shown = before.shown + 1 if is_older else before.shown
        counts[message_id] = VersionCount(before.count + 1, shown)
    return counts
