"""Generator of ``docs/performance.md``. Run ``uv run python -m tests.benchmarks.page``; a test compares the page.

The saved run is ``docs/performance.json``. The reasons for missed aims are written by hand in ``reasons.yaml``.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.benchmarks import report
from tests.benchmarks.__main__ import MEASURES
from tests.benchmarks.measures import Aim
from tests.benchmarks.profiling import Profile
from tests.benchmarks.relays.peer import PEER
from tests.benchmarks.results import Saved, from_json

DOCS = Path(__file__).parents[2] / "docs"
PATH, RESULTS = DOCS / "performance.md", DOCS / "performance.json"
REASONS = Path(__file__).parent / "reasons.yaml"

_HEAD = f"""# Performance

After reading this page you know how much CPU time and memory mochi-server needs, how fast it responds, and which of
its aims it misses. The page compares the server with minimal relays and with another proxy.

The figures come from the saved run `docs/performance.json`. To measure again, run these commands on an idle Linux
machine with at least two cores:

<!-- not run: it takes minutes and needs an idle machine -->
```bash
uv run python -m tests.benchmarks --profile --save docs/performance.json
uv run python -m tests.benchmarks.page
```

| Option | Effect |
|---|---|
| `--only NAME` | runs one measurement |
| `--rounds N` | repeats each measurement N times; each figure is then the median of N rounds |
| `--no-peer` | neither installs nor measures the other proxy (the peer) |
| `--profile` | runs one more round of each measurement with the profiler py-spy |

The option `--help` lists all options.

## What is compared

A measurement uses three programs on one machine. The load generator sends requests to a server. The server sends its
own requests to the [upstream](glossary.md#upstream), a program in place of Ollama that sends the same bytes as Ollama.
Each program is a separate process. The table lists the servers that are compared. If a measurement has several rounds,
each round measures the servers in a different order.

| Name in the tables | Server between the load generator and the upstream |
|---|---|
| mochi-server | this server |
| raw relay | forwards bytes with asyncio protocols and httptools, which is about the minimum work in Python |
| aiohttp relay | forwards bytes with aiohttp, which is about the minimum work with aiohttp's HTTP client |
| peer | {PEER.name}, a proxy that anyone can install |
| direct | no server: the load generator sends its requests to the upstream |

- The two relays store nothing, have no limits, and cannot resume a stream.
- The CPU time of a server is the user and system time of its process, including all threads.
- `p50` is the median, and `p99` is the 99th percentile.
- *Peer relative to this server* is a ratio: the figure of the peer divided by the figure of mochi-server.
- The profiles show in which modules and functions mochi-server spends its time. The profiler py-spy samples the threads
  that hold Python's global interpreter lock. If a Python function calls C code, the profile counts the time of the C
  code as time of the Python function. For example, the time of the event loop includes the C code that polls sockets
  and reads from them. The time of the function `send` includes the C code that writes to sockets.
- In a profile, *Python's own* is the time in Python's standard library.
"""
_NO_REASON = "The reason is not known yet."


def page(saved: Saved, reasons: Mapping[str, Mapping[str, str]]) -> str:
    measures = {name: saved["measures"][name] for name in MEASURES if name in saved["measures"]}
    sections = [_section(name, measure, reasons.get(name) or {}) for name, measure in measures.items()]
    machine = ["## Machine", "", *_table(["property", "value"], saved["machine"].items()), ""]
    text = "\n".join([_HEAD, *machine, *_overview(measures), *("\n".join(section) for section in sections)])
    return text.rstrip() + "\n"


def written_reasons() -> dict[str, dict[str, str]]:
    """Return the hand-written reasons for missed aims, by measurement and aim."""
    return yaml.safe_load(REASONS.read_text(encoding="utf-8")) or {}


def _overview(measures: Mapping[str, Saved]) -> list[str]:
    aims = [(MEASURES[name].TITLE, aim) for name, measure in measures.items() for aim in from_json(measure).aims]
    met = sum(aim.met is True for _, aim in aims)
    measured = sum(aim.met is not None for _, aim in aims)
    lines = [[title, aim.what, *report.target_cells(aim)] for title, aim in aims]
    table = _table(["measurement", "aim", "measured", "limit", "result"], lines)
    return ["## Aims", "", f"mochi-server meets {met} of the {measured} aims that were measured.", "", *table, ""]


def _section(name: str, measure: Saved, reasons: Mapping[str, str]) -> Iterator[str]:
    findings = from_json(measure)
    yield from (f"## {MEASURES[name].TITLE}", "", str(MEASURES[name].__doc__).strip(), "")
    workload = [(text, report.number(value)) for text, value in measure["workload"].items()]
    yield from (*_table([f"workload (`--only {name}`)", "value"], workload), "")
    head, *lines = report.transposed(findings.rows)
    yield from (*_table(["figure", *head[1:]], lines), "")
    missed = [aim for aim in findings.aims if aim.met is False]
    yield from _missed(missed, reasons)
    if missed and "profile" in measure:
        yield from _profile(measure["profile"])


def _missed(aims: Sequence[Aim], reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield one line for each reason, with all aims that it applies to."""
    by_reason = defaultdict(list)
    for aim in aims:
        by_reason[" ".join(reasons.get(aim.what, _NO_REASON).split())].append(f"*{aim.what}*")
    if aims:
        lines = (f"- {', '.join(names)}: {reason}" for reason, names in by_reason.items())
        yield from ("Reasons for the missed aims:", "", *lines, "")


def _profile(profile: Profile) -> Iterator[str]:
    """Yield the shares of the modules, and the functions with the largest shares."""
    yield from (*_table(["module", "share of the time, %"], profile["rooms"].items()), "")
    functions = [(f"`{name}`", share) for name, share in profile["functions"].items()]
    yield from (*_table(["functions with the largest shares", "share of the time, %"], functions), "")


def _table(head: Sequence[str], lines: Any) -> list[str]:
    rule = "|---" * len(head) + "|"
    return [f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(map(str, line))} |" for line in lines)]


def main() -> None:
    saved = json.loads(RESULTS.read_text(encoding="utf-8"))
    PATH.write_text(page(saved, written_reasons()), encoding="utf-8")


if __name__ == "__main__":
    main()
