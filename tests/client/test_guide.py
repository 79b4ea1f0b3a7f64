"""The guide to the client: its blocks run, one after the other, against test mode."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.process import Command

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "python-client.md"


def test_every_block_of_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    root = GUIDE.parents[2]
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) == 5
    arguments = ("--test-mode", "--port", "0", "--stub-speed", "0")
    with Command("mochi_server", *arguments, cwd=root) as server, server.api() as api:
        address = str(api.http.base_url).partition("/api")[0]
        names: dict[str, Any] = {"__name__": "guide"}
        for block in blocks:
            exec(block.replace("http://127.0.0.1:5099", address), names)  # noqa: S102 - what the guide tells to do
        names["client"].close()
    printed = capsys.readouterr().out
    assert "True\n" in printed
    assert "SESSION_NOT_FOUND 404 {'session_id': '0123456789'}\n" in printed
    assert "Done(session_id=" in printed
