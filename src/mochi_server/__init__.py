"""mochi-server: a headless chat backend for Ollama.

``create_app`` returns the ASGI application. Packages such as ``mochi_server.sessions`` and ``mochi_server.ollama`` can
also be used as libraries: they do not import the web framework.
"""

from typing import Any

__version__ = "1.0.0"
__all__ = ["MochiServerSettings", "__version__", "create_app"]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import a name on first use, so that the libraries load without the web framework."""
    if name == "create_app":
        from mochi_server.app import create_app  # noqa: PLC0415

        return create_app
    if name == "MochiServerSettings":
        from mochi_server.config import MochiServerSettings  # noqa: PLC0415

        return MochiServerSettings
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
