"""The soak with a small load, and its reports of broken bounds."""

import subprocess
import sys
from dataclasses import replace

import pytest

from tests.benchmarks.processes import python
from tests.soak.verdict import Measured, missed, problems, table
from tests.support.cases import cases

GOOD = Measured(
    streams=1000,
    turns=7000,
    events=1_000_000,
    broken=0,
    pace=1.0,
    memory=[290, 300, 303, 313],
    descriptors_before=14,
    descriptors_after=14,
    health_p50=5,
    health_p99=40,
    health_worst=150,
    late_p99=2,
    cpu={"server": 0.6},
)
BAD = {
    "3 of 1000 streams did not end well": replace(GOOD, broken=3),
    "no turn was completed": replace(GOOD, turns=0),
    "memory grew by 10.0 MiB or more in each round; 9.0 are allowed": replace(
        GOOD, memory=[300, 318, 328]
    ),
    "2 descriptors were not closed": replace(GOOD, descriptors_after=16),
}
SLOW = {
    "only 50% of the planned turns took place": replace(GOOD, pace=0.5),
    "/health took 120 ms at the 99th percentile; the aim is 100": replace(GOOD, health_p99=120),
}


def test_good_figures_are_within_bounds() -> None:
    assert problems(GOOD) == missed(GOOD) == []
    assert "290.0, 300.0, 303.0, 313.0 MiB" in table(GOOD)


@cases("line", BAD)
def test_each_broken_bound_is_reported_in_one_line(line: str) -> None:
    assert (problems(BAD[line]), missed(BAD[line])) == ([line], [])


@pytest.mark.parametrize("line", SLOW)
def test_each_missed_aim_is_reported_in_one_line(line: str) -> None:
    assert (problems(SLOW[line]), missed(SLOW[line])) == ([], [line])


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="reads the memory of other processes"
)
def test_small_soak_succeeds() -> None:
    short = ["--streams=50", "--seconds=5", "--turn=1", "--warm-up=50"]
    done = subprocess.run(
        python("tests.soak", *short), capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "streams broken" in done.stdout
