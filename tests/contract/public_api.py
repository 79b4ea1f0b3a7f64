"""The public API as data: what `docs/stability.md` promises.

`uv run python -m tests.contract.public_api` stores it.

`tests/contract/test_public_api.py` compares the stored copy, `public_api.json`, with the code.
Texts such as descriptions and examples are left out, because they may change.
"""

import json
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

from mochi_server import MochiServerSettings, errors
from mochi_server.constants import FORMAT_VERSION
from mochi_server.sessions.session import SessionMetadata
from tests.docs_tooling.reference import events
from tests.docs_tooling.reference.routes import operations
from tests.support.openapi import document

PATH = Path(__file__).with_name("public_api.json")
LIBRARY = (
    *(
        "mochi_server",
        "mochi_server.client",
        "mochi_server.ollama",
        "mochi_server.sessions",
        "mochi_server.testing",
    ),
    "mochi_stub",
)
"""Modules whose `__all__` is documented."""
EVENTS = events.all_events()
_TEXTS = {"description", "summary", "title", "example", "examples", "tags", "operationId"}


def public_api() -> dict[str, dict[str, Any]]:
    """Return each part of the API: a mapping from a name to its definition."""
    schemas = document()["components"]["schemas"]
    return {
        "routes": {
            f"{method} {path}": _bare(each) for method, path, each in operations(document())
        },
        "schemas": {name: _bare(schema) for name, schema in schemas.items()},
        "events": {
            each.type: {row[0].strip("`"): list(row[1:]) for row in events.rows(each)}
            for each in EVENTS
        },
        "errors": {code: sorted(statuses) for code, statuses in _errors().items()},
        "settings": dict(_settings()),
        "session file": {
            "version": FORMAT_VERSION,
            "metadata": sorted(f.name for f in fields(SessionMetadata)),
        },
        "library": {name: sorted(import_module(name).__all__) for name in LIBRARY},
    }


def _errors() -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for error in errors.all_errors():
        found.setdefault(error.code, set()).add(int(error.status))
    return found


def _settings() -> Iterator[tuple[str, Any]]:
    for name, field in MochiServerSettings.model_fields.items():
        yield f"MOCHI_{name.upper()}", json.loads(json.dumps(field.default, default=str))


def _bare(value: Any, *, names: bool = False) -> Any:
    """Return a part of the OpenAPI document without its texts, and with names in place of
    references to schemas.

    `names` states that the keys are names of fields, which stay.
    """
    if isinstance(value, list):
        return [_bare(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        return value["$ref"].rpartition("/")[2]
    kept = {key: each for key, each in value.items() if names or key not in _TEXTS}
    return {key: _bare(each, names=key == "properties" and not names) for key, each in kept.items()}


def as_text(api: dict[str, dict[str, Any]]) -> str:
    """Return the API as JSON with one line for each name, so that a diff shows what changed."""
    parts = []
    for part, entries in api.items():
        lines = (f"  {json.dumps(name)}: {_line(each)}" for name, each in sorted(entries.items()))
        parts.append(f" {json.dumps(part)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _line(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return what differs, as in `errors: removed STORAGE_BUSY`."""
    found = []
    for part in {**before, **after}:
        old, new = before.get(part, {}), after.get(part, {})
        found += [f"{part}: removed {name}" for name in old if name not in new]
        found += [f"{part}: added {name}" for name in new if name not in old]
        found += [
            f"{part}: changed {name}" for name in old if name in new and old[name] != new[name]
        ]
    return found


if __name__ == "__main__":
    PATH.write_text(as_text(public_api()))
