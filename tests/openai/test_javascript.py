"""JavaScript clients of OpenAI's API. They need Node: ``npm ci`` in ``js``."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.docs_tooling.pages import ROOT, blocks
from tests.support.instructions import calls, instruct, words
from tests.support.server import RunningServer

FOLDER = Path(__file__).parent / "js"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (FOLDER / "node_modules").exists(),
        reason="`npm ci` has not been run in tests/openai/js",
    ),
]


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.test.mjs")))
def test_client(server: RunningServer, name: str) -> None:
    environment = {
        "MOCHI_URL": server.url,
        "CALL": instruct(calls("look", at="sky"), words(3)),
        "CONTINUE_CONFIG": continue_config(server.url),
    }
    command = ["node", "--test", "--test-reporter=spec", name]
    environment |= os.environ
    run = subprocess.run(
        command, check=False, cwd=FOLDER, env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr


def continue_config(url: str) -> str:
    """Return the configuration of Continue in the documentation, with the address and the models of
    the test.
    """
    (config,) = [
        b.text
        for b in blocks(ROOT / "docs" / "how-to" / "openai-clients.md")
        if b.language == "yaml"
    ]
    for documented, ours in (
        ("http://127.0.0.1:8000", url),
        ("qwen3:8b", "mochi"),
        ("nomic-embed-text", "mochi-embed"),
    ):
        assert documented in config
        config = config.replace(documented, ours)
    return config
