"""Polling for conditions."""

import time
from collections.abc import Callable

_POLL_SECONDS = 0.01


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Poll a condition until it is true. Fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(_POLL_SECONDS)
