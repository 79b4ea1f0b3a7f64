"""The relays kept here for comparison. They have no sessions; a path names its model."""

from tests.benchmarks.processes import Server, python, running
from tests.benchmarks.relays import Relay, Request


def _relay(name: str, module: str) -> Relay:
    return Relay(name, lambda url: running(python(f"tests.benchmarks.relays.{module}", url)), _requests)


def _requests(_: Server, model: str, count: int) -> list[Request]:
    return [(f"/api/v1/chat/{model}/stream", '{"message":"Hello"}')] * count


AIOHTTP = _relay("aiohttp relay", "aiohttp_relay")
RAW = _relay("raw relay", "raw_relay")
