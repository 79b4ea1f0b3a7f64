"""Upstream with Ollama's API that sends prepared bytes.

The model name sets the pace: `paced:50x250+100`, `burst:5000`.

`paced:RATExCOUNT+DELAY` sends COUNT lines at RATE per second, each at an absolute time. The first
follows after DELAY milliseconds, or at once without it. `burst:COUNT` sends all lines at once. The
text of a paced line is the time of sending: `@` and nanoseconds of the monotonic clock. Prompts are
not parsed and fit into every model.
"""

import asyncio
import json
import re
import sys
import time
from functools import lru_cache, partial
from typing import cast

import httptools

from tests.benchmarks.relays.listening import chunked, listen

STAMP = b"@%019d"
_CONTEXT = 2**24
"""Context length in tokens, large enough that no history is ever trimmed."""
_MODEL = re.compile(rb'"model":\s*"([^"]*)"')
_WINDOW = re.compile(rb'"num_ctx":\s*(\d+)')
_WHOLE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: %d\r\n\r\n%s"
_STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_LINE = (
    b'{"model":"%s","created_at":"2026-01-01T00:00:00.123456789Z",'
    b'"message":{"role":"assistant","content":"%s"},"done":false}\n'
)
_LAST = (
    b'{"model":"%s","created_at":"2026-01-01T00:00:00.123456789Z","message":{"role":"assistant","content":""},'
    b'"done":true,"done_reason":"stop","total_duration":5000000000,"load_duration":1000000,"prompt_eval_count":20,'
    b'"prompt_eval_duration":1000000,"eval_count":%d,"eval_duration":5000000000}\n'
)


class Connection(asyncio.Protocol):
    """Client connection: short requests, then at most one stream."""

    def __init__(self, models: list[str], loaded: dict[str, int]) -> None:
        """`loaded` are the windows of the loaded models, which all connections share."""
        self._models = models
        self._loaded = loaded
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, _: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def on_message_begin(self) -> None:
        self._path, self._body = b"", list[bytes]()

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._path == b"/api/chat":
            body = b"".join(self._body)
            model, window = _model(body), _WINDOW.search(body)
            self._loaded[model] = int(window[1]) if window else 4096
            return self._chat(model)
        answers = {
            b"/api/version": {"version": "0.33.3"},
            b"/api/tags": {"models": [*map(_tag, self._models)]},
            b"/api/ps": {
                "models": [{"name": name, "context_length": n} for name, n in self._loaded.items()]
            },
        }
        body = json.dumps(answers.get(self._path, _details())).encode()
        return self._transport.write(_WHOLE % (len(body), body))

    def _chat(self, model: str) -> None:
        kind, _, numbers = model.partition(":")
        if kind == "burst":
            return self._transport.write(_STREAM + _burst(model, int(numbers)))
        pace, _, delay = numbers.partition("+")
        rate, count = pace.split("x")
        loop = asyncio.get_running_loop()
        begins = loop.time() + float(delay or 0) / 1000
        begin = partial(self._begin, model, begins, 1 / float(rate), int(count))
        self._timer = loop.call_at(begins, begin)
        return None

    def _begin(self, model: str, begins: float, interval: float, count: int) -> None:
        self._transport.write(_STREAM)
        self._send(model, begins, interval, 0, count)

    def _send(self, model: str, begun: float, interval: float, number: int, count: int) -> None:
        if number == count:
            return self._transport.write(_end(model, count))
        self._transport.write(chunked(_LINE % (model.encode(), STAMP % time.monotonic_ns())))
        following = partial(self._send, model, begun, interval, number + 1, count)
        self._timer = asyncio.get_running_loop().call_at(begun + (number + 1) * interval, following)
        return None


def _model(body: bytes) -> str:
    found = _MODEL.search(body)
    assert found, "a chat without a model"
    return found[1].decode()


def _tag(model: str) -> dict[str, object]:
    details = {
        "format": "gguf",
        "family": "bytes",
        "parameter_size": "1B",
        "quantization_level": "Q4_0",
    }
    known = {"context_length": _CONTEXT, "embedding_length": 64}
    return {
        "name": model,
        "model": model,
        "size": 1,
        "digest": model,
        "details": details | known,
    } | _capable()


def _details() -> dict[str, object]:
    known = {"general.architecture": "bytes", "bytes.context_length": _CONTEXT}
    return {"details": {}, "model_info": known} | _capable()


def _capable() -> dict[str, object]:
    return {"capabilities": ["completion"]}


@lru_cache
def _burst(model: str, count: int) -> bytes:
    return chunked(_LINE % (model.encode(), STAMP % 0)) * count + _end(model, count)


def _end(model: str, count: int) -> bytes:
    return chunked(_LAST % (model.encode(), count)) + chunked(b"")


if __name__ == "__main__":
    # The plain event loop: uvloop's timers have steps of a millisecond.
    asyncio.run(listen(partial(Connection, sys.argv[1:], {}), "upstream"))
