"""``docs/reference/settings.md``"""

from typing import Any

from mochi_server import MochiServerSettings
from mochi_server.__main__ import _FLAGS
from tests.docs_tooling.reference.markdown import page

INTRODUCTION = """
Settings are environment variables. A flag of the command, where there is one, goes before its variable, and both go
before the default. The same names in lower case, without `MOCHI_`, are arguments of `create_app`. Lists are
comma-separated. Directories are below `MOCHI_DATA_DIR` unless they are absolute. A value that cannot be used is said
in one line, and the server does not start.

```bash
MOCHI_LOG_LEVEL=DEBUG uv run --no-dev mochi-server --port 8080
```
"""


def settings_page() -> str:
    fields = MochiServerSettings.model_fields
    return page("Settings", INTRODUCTION, [_section(name, field) for name, field in fields.items()])


def _section(name: str, field: Any) -> str:
    facts = [str(field.description), "", f"- Default: {_default(field.default)}"]
    flag = [f"- Flag: `--{name.replace('_', '-')}`"] if name in _FLAGS else []
    return "\n".join([f"## `MOCHI_{name.upper()}`", "", *facts, *flag])


def _default(value: object) -> str:
    if isinstance(value, tuple):
        value = ",".join(value)
    if isinstance(value, bool):
        value = str(value).lower()
    return "none" if value in ("", None) else f"`{value}`"
