"""IDs and timestamps in the format of stored sessions."""

import os
import random
from datetime import datetime, timezone

_RANDOM = random.Random()  # noqa: S311 - the IDs must be unique, not secret. Secure random numbers need a system call
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_RANDOM.seed)


def new_id(digits: int = 10) -> str:
    """Return a random ID of hex digits. It must not serve as a secret."""
    return f"{_RANDOM.getrandbits(4 * digits):0{digits}x}"


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
