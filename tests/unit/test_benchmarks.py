"""Reports of the benchmarks and the page that is generated from them."""

import json

from tests.benchmarks.measures import Aim
from tests.benchmarks.profiling import shares_of
from tests.benchmarks.report import target_cells


def test_missed_target_has_its_difference() -> None:
    assert target_cells(Aim("few", 50, 60, "KiB")) == ["50 KiB", "<= 60 KiB", "met"]
    assert target_cells(Aim("few", 90, 60)) == ["90", "<= 60", "missed by 50 %"]
    assert target_cells(Aim("few", 300, 60)) == ["300", "<= 60", "missed, 5 times the limit"]
    assert target_cells(Aim("many", 3, 4, "x", at_least=True)) == [
        "3 x",
        ">= 4 x",
        "missed by 25 %",
    ]
    assert target_cells(Aim("many", None, 4, at_least=True)) == ["", ">= 4", "not measured"]


def test_profile_has_shares_of_modules_and_functions() -> None:
    stacks = [
        "serve (mochi_server/serve.py:1);Runner.run (asyncio/runners.py:118) 4",
        "Runner.run (asyncio/runners.py:118);Run.publish (mochi_server/chat/run.py:58) 1",
        "Runner.run (asyncio/runners.py:118);Run.publish (mochi_server/chat/run.py:60) 2",
        "Runner.run (asyncio/runners.py:118);_find_and_load (<frozen importlib._bootstrap>:7) 1",
        "Thread.run (threading.py:982);Cycle.send (uvicorn/protocols/http/httptools_impl.py:5) 2",
    ]
    assert shares_of(iter(stacks)) == {
        "rooms": {
            "the event loop": 40.0,
            "mochi_server.chat": 30.0,
            "uvicorn": 20.0,
            "Python's own": 10.0,
        },
        "functions": {
            "the event loop": 40.0,
            "Run.publish (mochi_server.chat)": 30.0,
            "Cycle.send (uvicorn)": 20.0,
            "_find_and_load (Python's own)": 10.0,
        },
    }


def test_page_has_the_saved_results() -> None:
    from tests.benchmarks import page

    saved = json.loads(page.RESULTS.read_text(encoding="utf-8"))
    earlier = json.loads(page.EARLIER.read_text(encoding="utf-8"))
    text = page.page(saved, earlier, page.written_reasons())
    assert page.PATH.read_text(encoding="utf-8") == text, (
        "run `uv run python -m tests.benchmarks.page`"
    )


def test_reasons_name_existing_targets_without_figures() -> None:
    from tests.benchmarks import page

    saved = json.loads(page.RESULTS.read_text(encoding="utf-8"))["measures"]
    for name, reasons in page.written_reasons().items():
        assert set(reasons) <= {aim["what"] for aim in saved[name]["aims"]}
        assert not any(character.isdigit() for reason in reasons.values() for character in reason)
