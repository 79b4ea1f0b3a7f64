"""Generator of `docs/reference/metrics.md`."""

from mochi_server.telemetry.metrics import Metrics
from tests.docs_tooling.reference.markdown import page

INTRODUCTION = """
Look up a metric of `/metrics`. The page
[Run the server in production](../how-to/run-in-production.md#monitor-the-server) has alerts and a dashboard.

All durations are in seconds. The labels `model` and `tool` can each have up to 100 different values; the server counts
all others as `other`. On Linux, the response also contains the standard `process_` metrics.
"""


def metrics_page() -> str:
    rows = [
        f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | {text} |"
        for name, kind, labels, text in Metrics().described
    ]
    return page(
        "Metrics",
        INTRODUCTION,
        ["\n".join(["| metric | kind | labels | meaning |", "|---|---|---|---|", *rows])],
    )
