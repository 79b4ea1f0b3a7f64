"""Waiting for what comes without being told of."""

import time
from collections.abc import Callable

_LOOK_SECONDS = 0.01


def until(holds: Callable[[], object], seconds: float = 10) -> None:
    """Wait for a condition. Fails when it does not come in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(_LOOK_SECONDS)
