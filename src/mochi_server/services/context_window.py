"""Context windows, under the module name of the documented library API."""

from mochi_server.inference.window_registry import WindowRegistry

DynamicContextWindowService = WindowRegistry

__all__ = ["DynamicContextWindowService", "WindowRegistry"]
