"""Benchmarks with a tiny load. The figures have no meaning."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.__main__ import MEASURES
from tests.benchmarks.measures import hosts, prompts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.nightly,
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="reads the CPU clocks of other processes"
    ),
]

_TINY = {
    "streaming": ["--streams=4", "--rate=100", "--seconds=0.4", "--burst=200", "--bursts=1"],
    "protocols": ["--streams=4", "--rate=100", "--seconds=0.6", "--spread=0.1"],
    "first-token": [
        "--delay=10",
        "--rate=100",
        "--streams=4",
        "--length=0.1",
        "--seconds=0.2",
        "--alone=2",
    ],
    "short-turns": ["--delay=10", "--alone=2", "--streams=4", "--seconds=0.2", "--turns=2"],
    "middleware": ["--requests=50"],
    "crowd": ["--streams=4", "--spread=0.1", "--seconds=0.3"],
    "health": ["--streams=4", "--burst=500"],
    "sessions": ["--long=10", "--very-long=20", "--turns=2"],
    "list": ["--sessions=20", "--lists=2"],
    "idle": ["--streams=5", "--seconds=0.5"],
    "start": ["--times=1"],
    "prompts": ["--turns=3", "--tokens=40"],
    "hosts": [
        "--sessions=4",
        "--turns=2",
        "--pause=0.1",
        "--load=0.01",
        "--busy-sessions=4",
        "--seconds=1",
    ],
}
_DIFFERENCES = (
    "CPU per stream without its events",
    "KiB per open stream",
    "one at a time, ",
    "begun within two seconds, ",
    "layer ",
    "4 ",
)
"""Prefixes of the names of figures that can be negative in so short a run."""


@pytest.mark.parametrize("name", MEASURES)
def test_tiny_run_reports_every_figure_and_aim(name: str, tmp_path: Path) -> None:
    saved = tmp_path / "figures.json"
    options = [option.replace("--", f"--{name}-") for option in _TINY[name]]
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks",
        "--only",
        name,
        "--rounds=1",
        "--no-peer",
        *options,
    ]
    done = subprocess.run(
        [*command, "--save", str(saved)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(saved.read_text(encoding="utf-8"))["measures"][name]
    assert found["rows"]
    assert all(
        _is_found(figure, value) for row in found["rows"] for figure, value in row.items()
    ), found["rows"]
    assert all(aim["value"] is not None or "peer" in aim["what"] for aim in found["aims"]), found[
        "aims"
    ]
    assert all(
        text in done.stdout for text in [*found["rows"][0], *(aim["what"] for aim in found["aims"])]
    )


@pytest.mark.parametrize("scenario", prompts.SCENARIOS[:2], ids=lambda scenario: scenario.label)
def test_conversation_evaluates_only_what_is_new(scenario: prompts.Scenario) -> None:
    answers, summaries = prompts.ratios(
        scenario, prompts.Workload(turns=60, tokens=550), summaries=True
    )
    assert answers <= 1.1
    assert summaries <= 0.3


def test_choice_of_host_evaluates_little_more_than_private_hosts() -> None:
    work = hosts.Workload(
        sessions=12, turns=6, slots=3, deaths=0, pause=0.4, load=0.05, answer_seconds=0.1
    )
    own, private, random = (
        hosts.simulate(work, name)[hosts.TOKENS]
        for name in ("mochi-server", "private host", "random")
    )
    assert own <= 1.15 * private
    assert own <= random / 2


def _is_found(figure: str, value: Any) -> bool:
    return bool(value) if isinstance(value, str) else figure.startswith(_DIFFERENCES) or value >= 0
