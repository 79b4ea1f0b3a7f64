"""Receiver of webhooks."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from standardwebhooks import Webhook

from tests.support.waiting import until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Receiver:
    """HTTP server that records webhooks. It answers with ``statuses`` in turn, and then with 204.

    Clear ``answering`` to receive webhooks without an answer, until it is set again.
    """

    def __init__(self) -> None:
        self.received: list[tuple[dict[str, str], bytes]] = []
        self.statuses: list[int] = []
        self.answering = threading.Event()
        self.answering.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.received.append(
                    ({name.lower(): value for name, value in self.headers.items()}, body)
                )
                receiver.answering.wait()
                self.send_response(receiver.statuses.pop(0) if receiver.statuses else 204)
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def settings(self) -> dict[str, str]:
        return {"webhook_url": self.url, "webhook_secret": SECRET}

    def wait(self, count: int, seconds: float = 60) -> list[dict[str, Any]]:
        """Wait for ``count`` webhooks, verify their signatures and return their bodies."""
        until(lambda: len(self.received) >= count, seconds)
        return [Webhook(SECRET).verify(body, headers) for headers, body in self.received]

    def close(self) -> None:
        self.answering.set()
        self._server.shutdown()
        self._server.server_close()
