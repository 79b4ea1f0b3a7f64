"""TCP load balancer for tests."""

import socket
import threading
from collections.abc import Sequence
from contextlib import suppress

from tests.support.relay import copy_bytes


class Balancer:
    """Round-robin load balancer over local ports. Use it as a context manager."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.ports = list(ports)
        """Targets of new connections; a test may change them at any time."""
        self._turn = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> "Balancer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(60)
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = self._connected()
                if server is None:
                    client.close()
                    continue
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=copy_bytes, args=(source, target), daemon=True).start()

    def _connected(self) -> socket.socket | None:
        """Return a connection to the next server that accepts it."""
        for _ in range(len(self.ports)):
            self._turn += 1
            with suppress(OSError):
                return socket.create_connection(
                    ("127.0.0.1", self.ports[self._turn % len(self.ports)]), timeout=None
                )
        return None
