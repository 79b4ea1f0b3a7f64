"""IDs and timestamps in the format of stored sessions."""

from datetime import datetime, timezone
from uuid import uuid4


def new_id() -> str:
    """Return a random ID of ten hex digits."""
    return uuid4().hex[:10]


def now() -> str:
    """Return the current UTC time in ISO 8601 with offset and microseconds."""
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")


def timestamp(value: object) -> float:
    """Convert an ISO 8601 time to Unix seconds. A time without an offset is UTC. Return 0 for an invalid time."""
    try:
        parsed = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError:
        return 0.0
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)).timestamp()
