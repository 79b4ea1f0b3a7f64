"""Modules that are imported on first use, so that collecting the tests does not import them."""

from importlib import import_module
from typing import Any


class LazyModule:
    """Module that is imported when one of its public attributes is read for the first time."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):  # pytest looks for its marks in every object of a test module
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)
