"""How often the tests that depend on chance are repeated."""

import os

ROUNDS = int(os.environ.get("MOCHI_FAULT_ROUNDS", "20"))
"""Kills of a writer in one test run; other counts follow it."""


def share(of_twenty: int) -> int:
    """So many rounds where there are twenty, more where there are more."""
    return max(1, ROUNDS * of_twenty // 20)
