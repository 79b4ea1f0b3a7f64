"""mochi-server: a headless chat backend for Ollama.

``from mochi_server import create_app`` gives the ASGI application; ``mochi_server.sessions``,
``mochi_server.ollama`` and the other packages are a library and load no web framework.
"""

from typing import Any

__version__ = "0.1.0"
__all__ = ["MochiServerSettings", "__version__", "create_app"]


def __getattr__(name: str) -> Any:
    """Import on first use, so that library users do not pay for the web framework."""
    if name == "create_app":
        from mochi_server.app import create_app  # noqa: PLC0415

        return create_app
    if name == "MochiServerSettings":
        from mochi_server.config import MochiServerSettings  # noqa: PLC0415

        return MochiServerSettings
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
