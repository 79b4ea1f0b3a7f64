"""Slow imports in threads."""

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from mochi_server.util.imports import import_in_thread

FIRST = """
import meeting
meeting.first_began.set()
meeting.second_began.wait(0.5)  # in vain if the imports are serial
from second_module import VALUE
"""
SECOND = """
import meeting
meeting.second_began.set()
import first_module
VALUE = 1
"""


async def test_modules_that_import_each_other_are_imported_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meeting = SimpleNamespace(first_began=threading.Event(), second_began=threading.Event())
    monkeypatch.setitem(sys.modules, "meeting", meeting)
    monkeypatch.syspath_prepend(tmp_path)
    tmp_path.joinpath("first_module.py").write_text(FIRST)
    tmp_path.joinpath("second_module.py").write_text(SECOND)
    first = asyncio.create_task(import_in_thread("first_module"))
    await asyncio.to_thread(meeting.first_began.wait)
    second = await import_in_thread("second_module")
    assert (await first).VALUE == second.VALUE


def test_app_is_imported_without_modules_of_the_first_request() -> None:
    late = ("aiohttp", "docstring_parser", "httpx", "ollama", "standardwebhooks")
    program = f"import sys, mochi_server.app; print([m for m in {late} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
