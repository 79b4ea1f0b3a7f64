"""Baselines for comparison: minimal relays, whose paths contain the model, and direct requests."""

from contextlib import nullcontext

from tests.benchmarks.processes import Server, python, running
from tests.benchmarks.relays import Relay, Request
from tests.benchmarks.relays.listening import chat_body


def _relay(name: str, module: str) -> Relay:
    return Relay(
        name,
        lambda upstream: running(python(f"tests.benchmarks.relays.{module}", upstream.url)),
        _requests,
    )


def _requests(_: Server, model: str, count: int) -> list[Request]:
    return [(f"/api/v1/chat/{model}/stream", '{"message":"Hello"}')] * count


def _direct(_: Server, model: str, count: int) -> list[Request]:
    return [("/api/chat", chat_body(model).decode())] * count


AIOHTTP = _relay("aiohttp relay", "aiohttp_relay")
RAW = _relay("raw relay", "raw_relay")
BARE_APP = _relay("bare FastAPI", "bare_app")
DIRECT = Relay("direct", nullcontext, _direct)
"""Direct load on the upstream. The CPU time is that of the upstream's process."""
