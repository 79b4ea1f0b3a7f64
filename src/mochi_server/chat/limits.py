"""Limits of runs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RunLimits:
    """Limits of the runs of one server, in bytes and seconds."""

    log_bytes: int = 8 * 1024 * 1024
    """Maximum memory for the events of one run."""
    scan_seconds: float = 2
    """Interval of the search for suspended turns that continue without a decision."""


DEFAULT_LIMITS = RunLimits()
