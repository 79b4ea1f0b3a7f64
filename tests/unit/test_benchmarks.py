"""The benchmark runs and measures everything it names; what it measures is not judged here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

_SHORT = ["--rounds=1", "--streams=4", "--rate=100", "--seconds=0.6", "--burst=200", "--bursts=1"]
_DIFFERENCE = "CPU ms/stream"
"""What is left when the events' cost is taken away; in so short a run that can be less than nothing."""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the CPU clocks of other processes")
def test_a_short_benchmark_has_every_figure_of_every_relay(tmp_path: Path) -> None:
    saved = tmp_path / "figures.json"
    command = [sys.executable, "-m", "tests.benchmarks", *_SHORT, "--save", str(saved)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(saved.read_text(encoding="utf-8"))["streaming"]
    assert [row.pop("") for row in rows] == ["mochi-server", "aiohttp relay", "raw relay"]
    for row in rows:
        assert row.pop(_DIFFERENCE) != 0
        assert all(figure > 0 for figure in row.values()), row
    for name in rows[0]:
        assert name in done.stdout
