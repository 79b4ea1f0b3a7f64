"""Limits of runs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RunLimits:
    """Limits of the runs of one server, in bytes and seconds."""

    log_bytes: int = 8 * 1024 * 1024
    """Maximum memory for the events of one run."""
    scan_seconds: float = 2
    """Interval of the search for suspended turns that continue without a decision."""
    retry_seconds: float = 30
    """Pause before a turn is continued again that could not, for example while Ollama is away."""


DEFAULT_LIMITS = RunLimits()
