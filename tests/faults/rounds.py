"""Number of repetitions of the tests that depend on chance. See README.md."""

import os

import pytest

ROUNDS = int(os.environ.get("MOCHI_FAULT_ROUNDS", "20"))
"""Kills of a writer in the second tier; other counts are proportional to it."""


def share(of_twenty: int) -> int:
    """Return the number of repetitions if there are `of_twenty` of them at 20 rounds; at
    least 1.
    """
    return max(1, ROUNDS * of_twenty // 20)


def repeated(of_twenty: int, *, once: int = 1) -> pytest.MarkDecorator:
    """Parametrize a test with its `rounds`: `once` in the first tier, `share(of_twenty)` in the
    second.
    """
    slow = pytest.param(share(of_twenty), id="repeated", marks=pytest.mark.slow)
    return pytest.mark.parametrize("rounds", [pytest.param(once, id="once"), slow])
