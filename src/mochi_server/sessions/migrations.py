"""Old session files, brought up to date one version at a time. A new version is one more function."""

from collections.abc import Callable
from typing import Any

from mochi_server.constants import FORMAT_VERSION

Metadata = dict[str, Any]
_STEPS: dict[str, tuple[str, Callable[[Metadata], None]]] = {}


def migration(before: str, after: str) -> Callable[[Callable[[Metadata], None]], Callable[[Metadata], None]]:
    """Register a function that turns metadata of version ``before`` into version ``after``, in place."""

    def register(step: Callable[[Metadata], None]) -> Callable[[Metadata], None]:
        _STEPS[before] = (after, step)
        return step

    return register


@migration("1.0", "1.1")
def add_tool_settings(metadata: Metadata) -> None:
    metadata.setdefault("tool_settings", None)


@migration("1.1", "1.2")
def add_context_window_config(metadata: Metadata) -> None:
    metadata.setdefault("context_window_config", None)


@migration("1.2", "1.3")
def add_agent_settings(metadata: Metadata) -> None:
    metadata.setdefault("agent_settings", None)


def migrate(metadata: Metadata) -> Metadata:
    """Bring metadata to the current version; what names no known older version is taken as it is.

    Newer files than this server knows keep their version and their unknown keys.
    """
    version = str(metadata.get("format_version") or "1.0")
    while version in _STEPS:
        version, step = _STEPS[version]
        step(metadata)
    metadata["format_version"] = version if version.replace(".", "").isdigit() else FORMAT_VERSION
    return metadata
