"""Documented module name of ``SessionManager``."""

from mochi_server.storage.files.manager import SessionManager

__all__ = ["SessionManager"]
