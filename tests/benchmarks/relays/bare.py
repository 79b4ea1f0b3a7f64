"""What is kept here for comparison: the relays, whose paths name their models, and no relay at all."""

from contextlib import nullcontext

from tests.benchmarks.processes import Server, python, running
from tests.benchmarks.relays import Relay, Request
from tests.benchmarks.relays.listening import chat_body


def _relay(name: str, module: str) -> Relay:
    return Relay(name, lambda upstream: running(python(f"tests.benchmarks.relays.{module}", upstream.url)), _requests)


def _requests(_: Server, model: str, count: int) -> list[Request]:
    return [(f"/api/v1/chat/{model}/stream", '{"message":"Hello"}')] * count


def _direct(_: Server, model: str, count: int) -> list[Request]:
    return [("/api/chat", chat_body(model).decode())] * count


AIOHTTP = _relay("aiohttp relay", "aiohttp_relay")
RAW = _relay("raw relay", "raw_relay")
DIRECT = Relay("direct", nullcontext, _direct)
"""The load straight on the upstream. The CPU time of its process is the upstream's."""
