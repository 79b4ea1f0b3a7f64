"""Relays between a client and Ollama with one interface: this server and the programs it is
compared with.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tests.benchmarks.processes import Server

Request = tuple[str, str]
"""Path and JSON body of a request that streams an answer."""


@dataclass(frozen=True)
class Relay:
    """Relay under measurement."""

    name: str
    running: Callable[[Server], AbstractContextManager[Server]]
    """Starts the relay in front of an Ollama."""
    requests: Callable[[Server, str, int], list[Request]]
    """Returns requests for answers of a model and prepares what they need."""
