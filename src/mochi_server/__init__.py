"""mochi-server: a headless chat backend for Ollama.

``create_app`` returns the ASGI application. Packages such as ``mochi_server.sessions`` and
``mochi_server.ollama`` can also be used as libraries: they do not import the web framework.
"""

from importlib import import_module
from typing import Any

__version__ = "1.0.0"
__all__ = ["MochiServerSettings", "__version__", "create_app"]


_MODULES = {"create_app": "mochi_server.app", "MochiServerSettings": "mochi_server.config"}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Import a name on first use, so that the libraries load without the web framework."""
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
