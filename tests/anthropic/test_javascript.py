"""JavaScript client of Anthropic's API. It needs Node: ``npm ci`` in ``js``."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer

FOLDER = Path(__file__).parent / "js"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (FOLDER / "node_modules").exists(),
        reason="`npm ci` has not been run in tests/anthropic/js",
    ),
]


def test_client(server: RunningServer) -> None:
    environment = {
        "MOCHI_URL": server.url,
        "CALL": instruct(words(2), calls("look", at="sky"), words(3), reasoning=2),
    }
    command = ["node", "--test", "--test-reporter=spec"]
    run = subprocess.run(
        command,
        check=False,
        cwd=FOLDER,
        env=environment | os.environ,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
