"""``docs/reference.md``, made of the code: ``uv run python -m tests.reference`` writes it, a test compares it."""

from dataclasses import fields
from pathlib import Path
from typing import get_args

from mochi_server import MochiServerSettings, create_app, errors, events
from mochi_server.constants import API_PREFIX

PATH = Path(__file__).parents[1] / "docs" / "reference.md"

HEAD = """# Reference

Made from the code by `uv run python -m tests.reference`.
"""


def reference() -> str:
    """The whole page."""
    return "\n".join([HEAD, *_routes(), *_settings(), *_events(), *_errors()])


def _routes() -> list[str]:
    rows = [
        f"| `{method.upper()}` | `{path.removeprefix(API_PREFIX)}` | {operation['description']} |"
        for path, item in create_app().openapi()["paths"].items()
        for method, operation in item.items()
    ]
    return [
        "## Routes",
        "",
        f"All under `{API_PREFIX}`.",
        "",
        "| method | path | what it does |",
        "|---|---|---|",
        *rows,
        "",
    ]


def _settings() -> list[str]:
    rows = []
    for name, field in MochiServerSettings.model_fields.items():
        default = ",".join(field.default) if isinstance(field.default, tuple) else str(field.default)
        default = default.lower() if isinstance(field.default, bool) else default
        shown = f"`{default}`" if default else ""
        rows.append(f"| `MOCHI_{name.upper()}` | {shown} | {field.description} |")
    return [
        "## Settings",
        "",
        "Environment variables; a flag of the command, where there is one, goes before. Lists are comma-separated.",
        "",
        "| variable | default | what it does |",
        "|---|---|---|",
        *rows,
        "",
    ]


def _events() -> list[str]:
    rows = [
        f"| `{event.type}` | {', '.join(f'`{field.name}`' for field in fields(event))} | {_first_line(event)} |"
        for event in get_args(events.ChatEvent)
    ]
    return ["## Events of a stream", "", "| event | payload | when |", "|---|---|---|", *rows, ""]


def _errors() -> list[str]:
    rows = [
        f"| `{error.code}` | {int(error.status)} | `{error.__name__}` |"
        for error in sorted(errors.all_errors(), key=lambda error: error.code)
    ]
    return [
        "## Errors",
        "",
        'Every error has the body `{"error": {"code", "message", "details"}}`.',
        "",
        "| code | status | class |",
        "|---|---|---|",
        *rows,
        "",
    ]


def _first_line(documented: object) -> str:
    return str(documented.__doc__).strip().splitlines()[0].replace("``", "`")


if __name__ == "__main__":
    PATH.write_text(reference())
