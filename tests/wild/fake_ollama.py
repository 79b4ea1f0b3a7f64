"""Ollama whose models misbehave: each chat request gets the next scripted reply."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

import orjson

MODEL = "wild:latest"
BLIND = "blind-model:latest"
"""A model without vision."""
_CAPABILITIES = {
    MODEL: ["completion", "tools", "thinking", "vision"],
    BLIND: ["completion", "thinking"],
}


@dataclass(frozen=True)
class Refusal:
    """A chat response with an error status."""

    status: int
    error: str


Reply = Sequence[dict[str, Any]] | Refusal
"""Lines of a streamed answer, or a refusal."""


def lines(
    *texts: str,
    thinking: str = "",
    calls: Sequence[dict[str, Any]] = (),
    reason: str = "stop",
    **counts: int,
) -> list[dict[str, Any]]:
    """Return the lines of an answer with a line for each text."""
    sent: list[dict[str, Any]] = []
    if thinking:
        sent.append(_line(content="", thinking=thinking))
    sent += [_line(content=text) for text in texts]
    if calls:
        sent.append(_line(content="", tool_calls=list(calls)))
    end = _line(content="") | {"done": True, "done_reason": reason}
    return [*sent, end | {"prompt_eval_count": 20, "eval_count": 5} | counts]


def call(name: str, arguments: object, **fields: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}, **fields}


def _line(**message: Any) -> dict[str, Any]:
    return {"model": MODEL, "message": {"role": "assistant", **message}, "done": False}


class FakeOllama:
    """Ollama on a real socket. ``replies`` are the replies to the next chat requests.

    The last reply is repeated.
    """

    def __init__(self, build: str = "first", memory: int = 1_000_000) -> None:
        """``build`` tells the digests of the models from those of other builds.

        ``memory`` is the largest context window that fits into memory, in tokens.
        """
        self.build = build
        self.replies: list[Reply] = []
        self.requests: list[dict[str, Any]] = []
        self.memory = memory
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def script(self, *replies: Reply) -> None:
        """Set the replies, and forget the requests so far."""
        self.replies = list(replies)
        self.requests.clear()

    def __enter__(self) -> "FakeOllama":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def next_reply(self, body: dict[str, Any]) -> Reply:
        self.requests.append(body)
        if body.get("options", {}).get("num_ctx", 0) > self.memory:
            return Refusal(500, "model requires more system memory (9 GiB) than is available")
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                plain = _PLAIN.get(self.path, {})
                if self.path == "/api/tags":
                    plain = {"models": [_installed(name, fake.build) for name in _CAPABILITIES]}
                self._send(200, orjson.dumps(plain))

            def do_POST(self) -> None:
                body = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path != "/api/chat":
                    plain = _PLAIN.get(self.path, {})
                    if self.path == "/api/show":
                        plain = plain | {"capabilities": _CAPABILITIES[body["model"]]}
                    self._send(200, orjson.dumps(plain))
                    return
                reply = fake.next_reply(body)
                if isinstance(reply, Refusal):
                    self._send(reply.status, orjson.dumps({"error": reply.error}))
                else:
                    self._send(200, b"".join(orjson.dumps(line) + b"\n" for line in reply))

            def _send(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


_DETAILS = {"family": "wild", "format": "gguf", "parameter_size": "1B", "quantization_level": "Q4"}


def _installed(name: str, build: str) -> dict[str, Any]:
    return {
        "name": name,
        "model": name,
        "size": 1_048_576,
        "digest": f"{build} build of {name}",
        "details": _DETAILS | {"context_length": 32_768},
        "capabilities": _CAPABILITIES[name],
    }


_PLAIN: dict[str, Any] = {
    "/api/show": {
        "details": _DETAILS,
        "model_info": {"general.architecture": "wild", "wild.context_length": 32_768},
    },
    "/api/ps": {"models": []},
    "/api/version": {"version": "0.99.0"},
}
