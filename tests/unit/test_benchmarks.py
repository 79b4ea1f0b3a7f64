"""The benchmarks run and measure everything they name; what they measure is not judged here."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import page
from tests.benchmarks.__main__ import MEASURES
from tests.benchmarks.measures import Aim
from tests.benchmarks.profiling import summed
from tests.benchmarks.report import judged

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the CPU clocks of other processes")

_TINY = {
    "streaming": ["--streams=4", "--rate=100", "--seconds=0.4", "--burst=200", "--bursts=1"],
    "first-token": ["--delay=10", "--rate=100", "--streams=4", "--length=0.1", "--seconds=0.2", "--alone=2"],
    "crowd": ["--streams=4", "--spread=0.1", "--seconds=0.3"],
    "health": ["--streams=4", "--burst=500"],
    "sessions": ["--long=10", "--very-long=20", "--turns=2"],
    "list": ["--sessions=20", "--lists=2"],
    "idle": ["--streams=5", "--seconds=0.5"],
    "start": ["--times=1"],
}
_DIFFERENCES = ("CPU ms/stream besides", "KiB per open stream", "alone, p", "4 ")
"""How the names begin of figures that can be less than nothing in so short a run."""


@linux
@pytest.mark.parametrize("name", MEASURES)
def test_a_tiny_run_has_every_figure_and_judges_every_aim(name: str, tmp_path: Path) -> None:
    saved = tmp_path / "figures.json"
    options = [option.replace("--", f"--{name}-") for option in _TINY[name]]
    command = [sys.executable, "-m", "tests.benchmarks", "--only", name, "--rounds=1", *options]
    done = subprocess.run([*command, "--save", str(saved)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(saved.read_text(encoding="utf-8"))["measures"][name]
    assert found["rows"]
    assert all(_is_found(figure, value) for row in found["rows"] for figure, value in row.items()), found["rows"]
    assert all(aim["value"] is not None or "peer" in aim["what"] for aim in found["aims"]), found["aims"]
    assert all(text in done.stdout for text in [*found["rows"][0], *(aim["what"] for aim in found["aims"])])


def _is_found(figure: str, value: Any) -> bool:
    return bool(value) if isinstance(value, str) else figure.startswith(_DIFFERENCES) or value >= 0


def test_an_aim_says_by_how_much_it_is_missed() -> None:
    assert judged(Aim("few", 50, 60, "KiB")) == ["50 KiB", "<= 60 KiB", "met"]
    assert judged(Aim("few", 90, 60)) == ["90", "<= 60", "missed by 50 %"]
    assert judged(Aim("few", 300, 60)) == ["300", "<= 60", "missed, 5 times the limit"]
    assert judged(Aim("many", 3, 4, "x", at_least=True)) == ["3 x", ">= 4 x", "missed by 25 %"]
    assert judged(Aim("many", None, 4, at_least=True)) == ["", ">= 4", "not measured"]


def test_a_profile_has_the_shares_of_rooms_and_functions() -> None:
    stacks = [
        "serve (mochi_server/serve.py:1);Runner.run (asyncio/runners.py:118) 4",
        "Runner.run (asyncio/runners.py:118);Run.publish (mochi_server/chat/run.py:58) 1",
        "Runner.run (asyncio/runners.py:118);Run.publish (mochi_server/chat/run.py:60) 2",
        "Runner.run (asyncio/runners.py:118);_find_and_load (<frozen importlib._bootstrap>:7) 1",
        "Thread.run (threading.py:982);Cycle.send (uvicorn/protocols/http/httptools_impl.py:5) 2",
    ]
    assert summed(iter(stacks)) == {
        "rooms": {"the event loop": 40.0, "mochi_server.chat": 30.0, "uvicorn": 20.0, "Python's own": 10.0},
        "functions": {
            "the event loop": 40.0,
            "Run.publish (mochi_server.chat)": 30.0,
            "Cycle.send (uvicorn)": 20.0,
            "_find_and_load (Python's own)": 10.0,
        },
    }


def test_the_page_says_what_was_saved() -> None:
    saved = json.loads(page.RESULTS.read_text(encoding="utf-8"))
    text = page.page(saved, page.written_reasons())
    assert page.PATH.read_text(encoding="utf-8") == text, "run `uv run python -m tests.benchmarks.page`"


def test_reasons_are_for_aims_there_are_and_hold_no_figures() -> None:
    saved = json.loads(page.RESULTS.read_text(encoding="utf-8"))["measures"]
    for name, reasons in page.written_reasons().items():
        assert set(reasons) <= {aim["what"] for aim in saved[name]["aims"]}
        assert not any(character.isdigit() for reason in reasons.values() for character in reason)
