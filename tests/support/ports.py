"""Free TCP ports."""

import socket


def free_port() -> int:
    """Return a port on which no process listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
