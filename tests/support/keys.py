"""API keys with names for tests: the keys file, and the headers of each key."""

from pathlib import Path
from typing import Any

from mochi_server.services.keys import hash_of


def write_keys(
    path: Path, *, default: dict[str, Any] | None = None, **keys: dict[str, Any]
) -> Path:
    """Write a keys file.

    The secret of each key is its name and ` secret`; the values are its other fields. `default`
    has the permissions of keys of the scope `own`.
    """
    entries = (
        "\n  ".join(
            [f"- name: {name}", f"hash: {hash_of(f'{name} secret'.encode())}", *_lines(fields)]
        )
        for name, fields in keys.items()
    )
    first = "" if default is None else f"- default: {{{', '.join(_lines(default))}}}\n"
    path.write_text(first + "\n".join(entries) + "\n")
    return path


def _lines(fields: dict[str, Any]) -> list[str]:
    return [f"{name}: {value}" for name, value in fields.items()]


def headers(name: str, **others: str) -> dict[str, str]:
    """Return the headers of a request with the key `name`."""
    return {"Authorization": f"Bearer {name} secret", **others}
