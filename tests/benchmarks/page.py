"""``docs/performance.md``, made of a saved run: ``uv run python -m tests.benchmarks.page`` writes it, a test compares.

The run is ``docs/performance.json``. Only the reasons for missed aims are written by hand, in ``reasons.yaml``.
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
from tests.benchmarks.results import Saved, restored

DOCS = Path(__file__).parents[2] / "docs"
PATH, RESULTS = DOCS / "performance.md", DOCS / "performance.json"
REASONS = Path(__file__).parent / "reasons.yaml"

_HEAD = f"""# Performance

What the server costs, beside the least that it could cost and beside what people would use instead, and what is aimed
at. Made from the saved run `docs/performance.json` by `uv run python -m tests.benchmarks.page`; to measure again, on an
idle machine with two cores or more, Linux:

<!-- not run: it takes minutes, and wants the machine for itself -->
```bash
uv run python -m tests.benchmarks --profile --save docs/performance.json
uv run python -m tests.benchmarks.page
```

`--only NAME` measures one thing, `--rounds N` so many times; `--help` says what else can be adjusted. With `--no-peer`
nothing is installed and the peer is left out. With `--profile` py-spy looks at the server in one round more: the tables
of *where the time goes* count the moments in which a thread of it held the interpreter, by what ran. What is called in
C counts for its caller, so the event loop's share has waking up and reading from sockets in it, and that of `send` has
writing to them.

Everything runs on one machine: an upstream that sends Ollama's lines as plain bytes, a relay or server in front of it,
and the load, each a process of its own. The *raw relay* is about the least that Python can do with an event (bare
protocols and httptools), the *aiohttp relay* the least with a comfortable HTTP client; neither knows sessions, files,
limits or resuming. The *peer* is {PEER.name}, an installable proxy, in front of the same upstream. CPU time is the
server process's own accounting, threads included. Figures are medians over the rounds, and each round takes the
servers in another order.
"""
_NO_REASON = "No reason is written down yet."


def page(saved: Saved, reasons: Mapping[str, Mapping[str, str]]) -> str:
    """The whole page."""
    measures = {name: saved["measures"][name] for name in MEASURES if name in saved["measures"]}
    sections = [_section(name, measure, reasons.get(name) or {}) for name, measure in measures.items()]
    machine = [*_table(["machine", ""], saved["machine"].items()), ""]
    text = "\n".join([_HEAD, *machine, *_overview(measures), *("\n".join(section) for section in sections)])
    return text.rstrip() + "\n"


def written_reasons() -> dict[str, dict[str, str]]:
    """By measure and aim."""
    return yaml.safe_load(REASONS.read_text(encoding="utf-8")) or {}


def _overview(measures: Mapping[str, Saved]) -> list[str]:
    aims = [(MEASURES[name].TITLE, aim) for name, measure in measures.items() for aim in restored(measure).aims]
    met = sum(aim.met is True for _, aim in aims)
    measured = sum(aim.met is not None for _, aim in aims)
    lines = [[title, aim.what, *report.judged(aim)] for title, aim in aims]
    table = _table(["measure", "aim", "found", "limit", ""], lines)
    return ["## Aims", "", f"{met} of {measured} measured aims are met.", "", *table, ""]


def _section(name: str, measure: Saved, reasons: Mapping[str, str]) -> Iterator[str]:
    findings = restored(measure)
    yield from (f"## {MEASURES[name].TITLE}", "", str(MEASURES[name].__doc__).strip(), "")
    workload = "; ".join(f"{text}: {report.number(value)}" for text, value in measure["workload"].items())
    yield from (f"Workload (`--only {name}`): {workload}.", "")
    head, *lines = report.turned(findings.rows)
    yield from (*_table(head, lines), "")
    missed = [aim for aim in findings.aims if aim.met is False]
    yield from _missed(missed, reasons)
    if missed and "profile" in measure:
        yield from _profile(measure["profile"])


def _missed(aims: Sequence[Aim], reasons: Mapping[str, str]) -> Iterator[str]:
    """A line for each reason, with all aims that it is a reason for."""
    by_reason = defaultdict(list)
    for aim in aims:
        by_reason[" ".join(reasons.get(aim.what, _NO_REASON).split())].append(f"*{aim.what}*")
    yield from (f"- Why {', '.join(names)} is missed: {reason}" for reason, names in by_reason.items())
    if aims:
        yield ""


def _profile(profile: Profile) -> Iterator[str]:
    """Where the time goes, by rooms; and the functions that take most of it."""
    yield from (*_table(["where the time goes", "%"], profile["rooms"].items()), "")
    functions = ", ".join(f"`{name}` {share}" for name, share in profile["functions"].items())
    yield from (f"Most of it, in %: {functions}.", "")


def _table(head: Sequence[str], lines: Any) -> list[str]:
    rule = "|---" * len(head) + "|"
    return [f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(map(str, line))} |" for line in lines)]


def main() -> None:
    """Write it."""
    saved = json.loads(RESULTS.read_text(encoding="utf-8"))
    PATH.write_text(page(saved, written_reasons()), encoding="utf-8")


if __name__ == "__main__":
    main()
