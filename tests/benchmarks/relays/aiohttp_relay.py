"""Minimal relay with aiohttp's client: the cost of a full HTTP client without further work."""

import asyncio
import sys
from collections.abc import Callable
from functools import partial

import aiohttp
import uvloop

from tests.benchmarks.relays.listening import Requests, Sse, chat_body, listen


class Relay:
    """Relay with one pool of connections to one Ollama."""

    def __init__(self, url: str, pool: aiohttp.ClientSession) -> None:
        self._url = url
        self._pool = pool

    def answer(self, model: str, sse: Sse) -> Callable[[], object]:
        """Start an answer and return a function that cancels it."""
        return asyncio.get_running_loop().create_task(self._relay(model, sse)).cancel

    async def _relay(self, model: str, sse: Sse) -> None:
        async with self._pool.post(self._url + "/api/chat", data=chat_body(model)) as response:
            async for data in response.content.iter_any():
                sse.feed(data)
        sse.end()


async def main(url: str) -> None:
    """Serve until SIGTERM."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=600)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=timeout
    ) as pool:
        await listen(partial(Requests, Relay(url, pool).answer), "aiohttp relay")


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
