"""Generator of the table of metrics in the documentation: `uv run python -m tests.docs_tooling.metrics_table`."""

import re

from mochi_server.telemetry.metrics import Metrics
from tests.docs_tooling.pages import ROOT

PATH = ROOT / "docs" / "how-to" / "run-in-production.md"

_TABLE = re.compile(r"(<!-- metrics: [^\n]*-->\n).*(<!-- /metrics -->\n)", re.DOTALL)


def with_table(page: str) -> str:
    """Return the page with an up-to-date table."""
    rows = [
        f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {text} |"
        for name, kind, labels, text in Metrics().described
    ]
    table = "\n".join(["", "| metric | kind | labels | what it counts |", "|---|---|---|---|", *rows, "", ""])
    return _TABLE.sub(lambda found: found[1] + table + found[2], page)


if __name__ == "__main__":
    PATH.write_text(with_table(PATH.read_text()))
