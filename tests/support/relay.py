"""TCP relay that cuts connections in the middle of a response."""

import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit


class CuttingRelay:
    """Relay that cuts the first responses after the given numbers of bytes.

    Use it as a context manager.

    The first number applies to the first connection, and so on. Later connections are not cut.
    """

    def __init__(self, url: str, *cuts: int) -> None:
        self.set_target(url)
        self._cuts = list(cuts)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._ends: list[socket.socket] = []
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def set_target(self, url: str) -> None:
        """Connect new clients to the server at this URL."""
        target = urlsplit(url)
        self._target = (target.hostname, target.port)

    def cut(self) -> None:
        """Close all open connections. New connections are relayed."""
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> "CuttingRelay":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(60)
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._target)
                except OSError:
                    client.close()
                    continue
                limit = self._cuts[self.connections] if self.connections < len(self._cuts) else None
                self.connections += 1
                self._ends += [client, server]
                threading.Thread(
                    target=copy_bytes, args=(client, server, None), daemon=True
                ).start()
                threading.Thread(
                    target=copy_bytes, args=(server, client, limit), daemon=True
                ).start()


def copy_bytes(source: socket.socket, target: socket.socket, limit: int | None = None) -> None:
    """Copy bytes until one side closes or the limit is reached, then close both."""
    with suppress(OSError):
        while limit != 0 and (data := source.recv(65536 if limit is None else min(limit, 65536))):
            target.sendall(data)
            limit = None if limit is None else limit - len(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
