"""Importing tools does not get in the way of what else the process imports at the same moment."""

import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

import pytest

from mochi_server.tools.discovery import load_package

BEGUN, MAY_END = threading.Event(), threading.Event()
TOOLS = f"""
from {__name__} import BEGUN, MAY_END
BEGUN.set()
MAY_END.wait(10)
"""


class Meanwhile(MetaPathFinder):
    """Finds nothing; lets the tools' import end when it is asked for a module."""

    def __init__(self, module: str, loading: threading.Thread) -> None:
        self._module = module
        self._loading = loading

    def find_spec(self, fullname: str, _: Sequence[str] | None, __: object = None) -> ModuleSpec | None:
        if fullname == self._module:
            MAY_END.set()
            self._loading.join(10)
        return None


@pytest.fixture
def loading(tmp_path: Path) -> threading.Thread:
    """An import of tools that is under way."""
    BEGUN.clear()
    MAY_END.clear()
    directory = tmp_path / "tools"
    directory.mkdir()
    (directory / "__init__.py").write_text(TOOLS)
    (directory / "shared_name.py").write_text("OF_TOOLS = True\n")
    thread = threading.Thread(target=load_package, args=(directory,))
    thread.start()
    assert BEGUN.wait(10)
    return thread


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of other modules."""
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    for name in ("imported_meanwhile", "shared_name"):
        (directory / f"{name}.py").touch()
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(directory))


def test_module_is_found_while_an_import_of_tools_ends(loading: threading.Thread) -> None:
    meanwhile = Meanwhile("imported_meanwhile", loading)
    sys.meta_path.insert(sys.meta_path.index(PathFinder), meanwhile)
    try:
        import_module("imported_meanwhile")
    finally:
        sys.meta_path.remove(meanwhile)
    assert not loading.is_alive()


def test_other_threads_do_not_import_files_of_tools(loading: threading.Thread) -> None:
    module = import_module("shared_name")
    MAY_END.set()
    loading.join(10)
    assert not hasattr(module, "OF_TOOLS")
