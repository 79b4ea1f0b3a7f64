"""Free TCP ports."""

import socket
from contextlib import suppress
from random import SystemRandom

_PORTS = range(12_000, 32_000)
"""Ports that no system gives to a listener on port 0, or to an outgoing connection."""


def free_port() -> int:
    """Return a port on which no process listens, and which the system gives to no other process."""
    chance = (
        SystemRandom()
    )  # plugins of pytest seed the shared generator with the same number in each worker
    while True:
        port = chance.choice(_PORTS)
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
