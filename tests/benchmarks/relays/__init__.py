"""What can be put between a client and Ollama, all driven alike: this server, and the relays it is compared with."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tests.benchmarks.processes import Server

Request = tuple[str, str]
"""Path and JSON body of a request that streams an answer."""


@dataclass(frozen=True)
class Relay:
    """Something to measure."""

    name: str
    running: Callable[[Server], AbstractContextManager[Server]]
    """Runs it in front of an Ollama."""
    requests: Callable[[Server, str, int], list[Request]]
    """So many requests for answers of a model, with whatever they need prepared."""
