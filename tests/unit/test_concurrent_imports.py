"""The import of tools does not affect other imports of the process at the same time."""

import sys
import threading
from importlib import import_module
from pathlib import Path

import pytest

from mochi_server.tools import ToolDiscoveryService

BEGUN, MAY_END = threading.Event(), threading.Event()
TOOLS = f"""
from {__name__} import BEGUN, MAY_END
import shared_name
assert shared_name.OF_TOOLS
BEGUN.set()
MAY_END.wait(60)
__all__ = []
"""


def test_other_threads_do_not_import_files_of_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, tools = tmp_path / "elsewhere", tmp_path / "tools"
    for directory in (elsewhere, tools):
        directory.mkdir()
    (elsewhere / "shared_name.py").touch()
    (tools / "shared_name.py").write_text("OF_TOOLS = True\n")
    (tools / "__init__.py").write_text(TOOLS)
    monkeypatch.delitem(sys.modules, "shared_name", raising=False)
    monkeypatch.syspath_prepend(str(elsewhere))
    service = ToolDiscoveryService(tools)
    loading = threading.Thread(target=service.discover)
    loading.start()
    assert BEGUN.wait(60)

    module = import_module("shared_name")
    MAY_END.set()
    loading.join(60)
    assert not hasattr(module, "OF_TOOLS")
    assert service.discover().problems == ()
