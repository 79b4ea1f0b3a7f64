"""Ids and stored times."""

from datetime import datetime, timezone
from uuid import uuid4


def new_id() -> str:
    """A fresh id for a session or a message: ten hex digits."""
    return uuid4().hex[:10]


def now() -> str:
    """The time as it is stored: UTC, ISO 8601, with its offset."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")


def timestamp(value: object) -> float:
    """Seconds since the epoch of a stored time, for sorting; naive times are UTC, nonsense is the oldest."""
    try:
        parsed = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError:
        return 0.0
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)).timestamp()
