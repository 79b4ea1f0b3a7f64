"""IDs and timestamps in the format of stored sessions."""

import os
import re
from datetime import datetime, timezone
from hashlib import blake2b
from itertools import count

_KEY = os.urandom(32)
_NUMBERS = count()
_FRACTION = re.compile(r"\.(\d+)")
_EARLIEST, _LATEST = -62_000_000_000, 250_000_000_000  # Unix times in the years 5 and 9892


def new_id(digits: int = 10) -> str:
    """Return an unpredictable ID of ``digits`` hex digits, at most 64."""
    # Unlike `secrets`, this makes no system call that releases the interpreter lock, which would
    # cost more time.
    return blake2b(b"%d %d" % (os.getpid(), next(_NUMBERS)), key=_KEY, digest_size=32).hexdigest()[
        :digits
    ]


def now() -> str:
    """Return the current UTC time in ISO 8601 with offset and microseconds."""
    return as_text(datetime.now(timezone.utc))


def as_text(moment: datetime) -> str:
    """Return a time with a time zone in the format of stored sessions, which is ISO 8601 in UTC
    with offset and microseconds.
    """
    return moment.astimezone(timezone.utc).isoformat(timespec="microseconds")


def as_datetime(seconds: float) -> datetime:
    """Return the UTC time of Unix seconds, limited to the years that ``datetime`` supports in every
    time zone.
    """
    return datetime.fromtimestamp(min(max(seconds, _EARLIEST), _LATEST), timezone.utc)


def timestamp(value: object) -> float:
    """Convert an ISO 8601 time to Unix seconds.

    A time without an offset is UTC. Return 0 for an invalid time.
    """
    try:
        return _parsed(str(value)).timestamp()
    except ValueError:
        return 0.0


def as_utc(time: str) -> str:
    """Convert an ISO 8601 time to UTC. Return an invalid time unchanged."""
    if time.endswith("+00:00"):
        return time
    try:
        return as_text(_parsed(time))
    except (ValueError, OverflowError):  # not a time, or none in UTC
        return time


def _parsed(time: str) -> datetime:
    """Parse an ISO 8601 time. Raises ``ValueError``."""
    readable = time.replace("Z", "+00:00")  # Python 3.10 does not read "Z"
    try:
        parsed = datetime.fromisoformat(readable)
    except ValueError:  # Python 3.10 reads only fractions with three or six digits
        parsed = datetime.fromisoformat(_FRACTION.sub(_microseconds, readable))
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)


def _microseconds(fraction: re.Match[str]) -> str:
    digits = fraction[1][:6]
    return f".{digits:0<6}"
