"""Program: a supervisor whose workers only wait, and which gets a signal while it starts them."""

import os
import signal
import socket
import sys
import threading
import time

from mochi_server.cli.server import supervise


def wait(_listener: socket.socket, _prints_banner: bool) -> int:
    """Serve nothing until a signal arrives."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    time.sleep(60)
    return 1


def interrupt(first_handler: object) -> None:
    """Send a signal to this process as soon as it handles signals."""
    while signal.getsignal(signal.SIGTERM) == first_handler:
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    handler = signal.getsignal(signal.SIGTERM)  # with coverage, this is not the default one
    threading.Thread(target=interrupt, args=(handler,)).start()
    sys.exit(supervise(3, wait, socket.socket()))
