"""Ollama server that answers `/api/chat` with arbitrary bytes, or not at all."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

TAGS = (
    b'{"models":[{"name":"raw:latest","model":"raw:latest","size":1048576,"digest":"d1",'
    b'"details":{"format":"gguf","family":"raw","parameter_size":"1B","quantization_level":"Q4","context_length":4096,'
    b'"embedding_length":64},"capabilities":["completion"]}]}'
)
SHOW = (
    b'{"details":{},"model_info":{"general.architecture":"raw","raw.context_length":4096},'
    b'"capabilities":["completion"]}'
)

Chat = Callable[[socket.socket], None]
"""Handler of a chat request. The connection is closed afterwards."""


class RawOllama:
    """Ollama server on a real socket.

    `chat` handles the chat route; a test that shares the server may replace it.
    """

    def __init__(self, chat: Chat, *, tags: bytes = TAGS, show: bytes = SHOW) -> None:
        self.chat = chat
        self.answers = {"/api/tags": tags, "/api/show": show}
        """Response bodies by path."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> "RawOllama":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            path = _read_request(connection)
            if path == "/api/chat":
                self.chat(connection)
            elif path in self.answers:
                connection.sendall(whole(self.answers[path]))
            else:
                connection.sendall(
                    whole(b"404 page not found", status="404 Not Found", content_type="text/plain")
                )


def whole(body: bytes, *, status: str = "200 OK", content_type: str = "application/json") -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: "
        f"{len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


def stream_head() -> bytes:
    """Return the head of a streamed response that ends with its connection."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n"


def line(content: str, done: bool = False) -> bytes:
    """Return one line of a streamed chat answer."""
    end = ',"done":true,"done_reason":"stop"}' if done else ',"done":false}'
    return b'{"model":"raw","message":{"role":"assistant","content":"%s"}%s\n' % (
        content.encode(),
        end.encode(),
    )


def _read_request(connection: socket.socket) -> str:
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := connection.recv(65536)):
            raise OSError("closed")
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        (
            int(h.split(b":")[1])
            for h in head.split(b"\r\n")
            if h.lower().startswith(b"content-length:")
        ),
        0,
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head.split(b" ")[1].decode()
