"""Generator of ``docs/performance.md``.

Run ``uv run python -m tests.benchmarks.page``; a test compares the page.

The saved run is ``docs/performance.json``. The reasons for missed aims are written by hand in
``reasons.yaml``.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import yaml

from tests.benchmarks import report
from tests.benchmarks.__main__ import MEASURES
from tests.benchmarks.measures import Aim, Row
from tests.benchmarks.relays.peer import PEER
from tests.benchmarks.results import Saved, from_json

DOCS = Path(__file__).parents[2] / "docs"
PATH, RESULTS = DOCS / "performance.md", DOCS / "performance.json"
EARLIER = DOCS / "performance-before.json"
"""Saved run, on the same machine, of the code before its start, lists and short turns were sped up.
"""
REASONS = Path(__file__).parent / "reasons.yaml"

_HEAD = f"""# Performance

After reading this page you know how much CPU time and memory mochi-server needs, how fast it responds, and which of its
aims it misses.

The figures come from the saved run `docs/performance.json`, which also has the loads, profiles and all other
figures. To measure again, run these commands on an idle Linux machine with at least two cores:

<!-- not run: it takes minutes and needs an idle machine -->
```bash
uv run python -m tests.benchmarks --profile --save docs/performance.json
uv run python -m tests.benchmarks.page
```

## What is compared

The load generator, a server and an [upstream](glossary.md#upstream) in place of Ollama are separate processes on one
machine. mochi-server is compared with three servers between the load generator and the upstream:

- *raw relay*: forwards bytes with asyncio protocols and httptools, about the minimum work in Python
- *aiohttp relay*: forwards bytes with aiohttp, about the minimum with its HTTP client
- *peer*: {PEER.name}, a proxy that anyone can install

The relays store nothing, have no limits, and cannot resume a stream. CPU time is the user and system time of a process.
`p50` is the median, `p99` the 99th percentile. A figure *of the peer* is divided by the figure of mochi-server.
"""
_COMPARISON = """\
The saved run `docs/performance-before.json` has the figures of the code before the start, the list of sessions and
short turns were made faster, on the same machine:"""
_NO_REASON = "The reason is not known yet."


def page(saved: Saved, earlier: Saved, reasons: Mapping[str, Mapping[str, str]]) -> str:
    measures = {name: saved["measures"][name] for name in MEASURES if name in saved["measures"]}
    machine = "; ".join(
        f"{name}: {value}" for name, value in saved["machine"].items() if name != "CPU clock"
    )
    sections = (
        "\n".join(_section(name, measure, reasons.get(name) or {}))
        for name, measure in measures.items()
    )
    text = "\n".join(
        [
            _HEAD,
            fill(f"Machine: {machine}.", 120) + "\n",
            *_overview(measures),
            *_comparison(measures, earlier["measures"]),
            *sections,
        ]
    )
    return text.rstrip() + "\n"


def written_reasons() -> dict[str, dict[str, str]]:
    """Return the hand-written reasons for missed aims, by measurement and aim."""
    return yaml.safe_load(REASONS.read_text(encoding="utf-8")) or {}


def _overview(measures: Mapping[str, Saved]) -> list[str]:
    aims = {name: from_json(measure).aims for name, measure in measures.items()}
    results = [aim.met for each in aims.values() for aim in each if aim.met is not None]
    lines: list[list[str]] = []
    for name, each in aims.items():
        title = MEASURES[name].TITLE
        lines.append([f"**[{title}](#{title.lower().replace(' ', '-')})**"])
        lines += ([aim.what, *report.target_cells(aim)] for aim in each)
    counts = f"mochi-server meets {sum(results)} of the {len(results)} aims that were measured."
    return ["## Aims", "", counts, "", *_table(["aim", "measured", "limit", "result"], lines), ""]


def _comparison(now: Mapping[str, Saved], earlier: Mapping[str, Saved]) -> list[str]:
    """Return a table of the aims that were also measured with earlier code."""
    lines: list[list[str]] = []
    for name, measure in earlier.items():
        found = {aim.what: report.target_cells(aim)[0] for aim in from_json(now[name]).aims}
        for aim in from_json(measure).aims:
            before = report.target_cells(aim)[0]
            if before and aim.what in found:
                lines.append([aim.what, before, found[aim.what]])
    return [
        "## Before and after",
        "",
        _COMPARISON,
        "",
        *_table(["aim", "before", "now"], lines),
        "",
    ]


def _section(name: str, measure: Saved, reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield the title, the first two paragraphs about the measurement, its table if it has one, and
    missed aims.
    """
    what, how = str(MEASURES[name].__doc__).strip().split("\n\n")[:2]
    yield from (f"## {MEASURES[name].TITLE}", "", fill(f"{what} {how}", 120), "")
    if getattr(MEASURES[name], "SHOWS_ROWS", False):
        yield from (*_table(*_head_and_lines(measure["rows"])), "")
    yield from _missed([aim for aim in from_json(measure).aims if aim.met is False], reasons)


def _missed(aims: Sequence[Aim], reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield one line for each reason, with all aims that it applies to."""
    by_reason = defaultdict(list)
    for aim in aims:
        by_reason[" ".join(reasons.get(aim.what, _NO_REASON).split())].append(f"*{aim.what}*")
    if aims:
        lines = (f"- {', '.join(names)}: {reason}" for reason, names in by_reason.items())
        yield from ("Missed:", "", *lines, "")


def _head_and_lines(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the names of the rows, and one line for each figure."""
    head, *lines = report.transposed(rows)
    return ["figure", *head[1:]], lines


def _table(head: Sequence[str], lines: Any) -> list[str]:
    rule = "|---" * len(head) + "|"
    return [
        f"| {' | '.join(head)} |",
        rule,
        *(f"| {' | '.join(map(str, line))} |" for line in lines),
    ]


def main() -> None:
    saved = json.loads(RESULTS.read_text(encoding="utf-8"))
    earlier = json.loads(EARLIER.read_text(encoding="utf-8"))
    PATH.write_text(page(saved, earlier, written_reasons()), encoding="utf-8")


if __name__ == "__main__":
    main()
