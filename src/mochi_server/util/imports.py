"""Slow imports, outside the event loop."""

import asyncio
import threading
from importlib import import_module
from types import ModuleType

_lock = threading.Lock()


async def import_in_thread(name: str) -> ModuleType:
    """Import a module in a thread, and return it.

    Only one thread imports at a time: Python refuses to import modules that import each other, such
    as those of the MCP SDK, in two threads at once.
    """
    return await asyncio.to_thread(_import_alone, name)


def _import_alone(name: str) -> ModuleType:
    with _lock:
        return import_module(name)
