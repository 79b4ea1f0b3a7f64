"""Servers for tests of programs that use mochi-server, and a pytest plugin that provides one."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mochi_server.testing.server import ThreadedServer

__all__ = ["ThreadedServer"]


def __getattr__(name: str) -> Any:
    """Import ``ThreadedServer`` on first use, because pytest loads this package in every test run."""
    if name == "ThreadedServer":
        from mochi_server.testing.server import ThreadedServer  # noqa: PLC0415

        return ThreadedServer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
