"""Protocols besides the native API. Each has a folder with its schemas, parser, encoder and routes.

A protocol has two entries: its folder, and the name of the folder in ``NAMES``. The module ``routes`` of the folder
defines ``PROTOCOL``.

A run publishes events. ``part_reader`` converts the events to parts. The encoder of a protocol converts the parts to
bytes.
"""

from collections.abc import Iterator
from importlib import import_module

from mochi_server.web.protocol import Protocol

NAMES = ("ai_sdk", "ag_ui", "openai_chat", "responses", "anthropic")
"""Folders of the protocols, in the order in which their routes are matched."""


def load_protocols() -> Iterator[Protocol]:
    """Import the protocols."""
    for name in NAMES:
        protocol: Protocol = import_module(f"{__name__}.{name}.routes").PROTOCOL
        yield protocol
