"""MCP servers over HTTP that answer as `hostile_mcp.py`.

A server has the paths `/<seed>/json` and `/<seed>/events`, which determine the type of its response
bodies. As a program, it takes a directory for journals and seeds, and prints its port. The tool of
each server is `random_<seed>`.
"""

import gzip
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.hostile_mcp import Hostile


@cache
def compressed() -> bytes:
    """Return 100 MB that are compressed to 100 kB."""
    return gzip.compress(b" " * 100_000_000, compresslevel=1)


class HostileHttp(BaseHTTPRequestHandler):
    """Handler of the requests to MCP servers with these seeds."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, servers: dict[str, Hostile], *arguments: Any) -> None:
        self._servers = servers
        super().__init__(*arguments)

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answers = self._server.answers(message)
        self.send_response(200 if answers else 202)
        compresses = message.get("params", {}).get("name") == "compressed"
        for encoding in message["params"]["arguments"]["encodings"] if compresses else ():
            self.send_header("Content-Encoding", encoding)
        self._send(answers, compressed() if compresses else None)

    def do_GET(self) -> None:
        messages = self._server.messages() if self._streams else []
        self.send_response(200 if messages else 405)
        self._send(messages)

    def do_DELETE(self) -> None:
        """Answer nothing, until the client closes the connection."""
        self.rfile.read()

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    @property
    def _streams(self) -> bool:
        return self.path.endswith("/events")

    @property
    def _server(self) -> Hostile:
        return self._servers[self.path.split("/")[1]]

    def _send(self, answers: list[bytes], content: bytes | None = None) -> None:
        events = b"".join(b"data: %s\n\n" % each for each in answers)
        body = content or (events if self._streams else b"".join(answers[-1:]))
        self.send_header(
            "Content-Type", "text/event-stream" if self._streams else "application/json"
        )
        self.send_header("Mcp-Session-Id", "1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: object) -> None:
        """Ignore the error: the client closed the connection."""


@contextmanager
def serving(*servers: Hostile) -> Iterator[int]:
    """Run MCP servers in threads, and yield their port."""
    seeds = {str(server.seed): server for server in servers}
    with _Server(("127.0.0.1", 0), partial(HostileHttp, seeds)) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server.server_port
        server.shutdown()


def main() -> None:
    directory, *seeds = sys.argv[1:]
    servers = [
        Hostile(str(Path(directory, f"hostile-{seed}")), int(seed), [f"random_{seed}"])
        for seed in seeds
    ]
    with serving(*servers) as port:
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
