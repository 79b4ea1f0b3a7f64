"""The OpenAPI document with path parameters restricted to some existing and some unknown names.

With random names, fuzzing would see little but 404.
"""

from typing import Any

from mochi_server import create_app
from tests.fuzz.world import AGENTS, MODELS, PROMPT, SESSIONS, TOOLS
from tests.support.images import PNG, sha256_of

_NAMES: dict[str, list[Any]] = {
    "session_id": [*SESSIONS, "0123456789", "..", "\u2028"],
    "message_index": [-1, 0, 1, 2, 3, 10**30],
    "model_name": [*MODELS, "nowhere/none:1b"],
    "tool_name": [*TOOLS, "none"],
    "agent_name": [*AGENTS, "none"],
    "sha256": [sha256_of(PNG), "0" * 64, ".."],
    "filename": [PROMPT, "none.md", ".."],
}
_GUARDS = (401, 403, 413, 431)
"""Statuses that middleware returns before the route is called.

The document has them under `default`.
"""
_MAX_LENGTH = 10_000
"""Largest limit of characters for which the fuzzer can write a longer text."""


def document() -> dict[str, Any]:
    """Return the document for fuzzing, in which each route lists its own statuses."""
    written: dict[str, Any] = create_app().openapi()
    for item in written["paths"].values():
        for operation in item.values():
            refused = operation["responses"].pop("default")
            operation["responses"] |= {str(status): refused for status in _GUARDS}
            for response in operation["responses"].values():
                # `tests.fuzz.checks` has checks for streams. Schemathesis would apply the schema to
                # each event.
                response.get("content", {}).get("text/event-stream", {}).pop("schema", None)
            for parameter in operation.get("parameters", ()):
                if names := _NAMES.get(parameter["name"]):
                    parameter["schema"] = {"type": parameter["schema"]["type"], "enum": names}
    _remove_large_limits(written)
    return written


def _remove_large_limits(node: Any) -> None:
    if isinstance(node, list):
        for item in node:
            _remove_large_limits(item)
    if isinstance(node, dict):
        limit = node.get("maxLength")
        if isinstance(limit, int) and limit > _MAX_LENGTH:
            del node["maxLength"]
        for item in node.values():
            _remove_large_limits(item)
