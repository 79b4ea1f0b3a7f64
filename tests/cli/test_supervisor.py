"""Supervisor of worker processes, with workers that only wait."""

import os
from pathlib import Path

import pytest

from tests.support import fork_server
from tests.support.process import shared_fork_server


@pytest.mark.skipif(not fork_server.AVAILABLE, reason="the fork server needs Linux")
def test_signal_while_workers_start_stops_all_of_them() -> None:
    root = str(Path(__file__).parents[2])
    process = shared_fork_server().start("tests.cli.supervised", (), root, dict(os.environ))
    assert process.stdout is not None
    with process.stdout:
        assert process.wait(60) == 0, process.stdout.read()
