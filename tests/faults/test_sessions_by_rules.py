"""In whatever order clients change sessions, the stored sessions match a model of them."""

from pathlib import Path

import pytest

from mochi_stub import StubServer
from tests.faults.mirror import resolve
from tests.faults.rounds import share
from tests.support.server import RunningServer

pytestmark = pytest.mark.slow


def test_any_order_of_changes_matches_the_session_model(tmp_path: Path) -> None:
    from tests.faults.session_rules import run_rules  # imports Hypothesis

    with (
        StubServer(speed=0, resolve=resolve) as stub,
        RunningServer(tmp_path, stub.url, summarization_enabled=False) as server,
    ):
        run_rules(server.api(), share(20))
