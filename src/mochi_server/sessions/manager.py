"""Re-export of `SessionManager` from `mochi_server.storage.files.manager`. The class is imported on first use."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mochi_server.storage.files.manager import SessionManager

__all__ = ["SessionManager"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("mochi_server.storage.files.manager"), name)
