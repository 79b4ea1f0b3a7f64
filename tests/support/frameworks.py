"""Names that the `conftest.py` of tests of client frameworks imports.

Their packages are in the group `frameworks`.
"""

from importlib.util import find_spec

import pytest

collect_ignore_glob = [] if find_spec("langchain_tests") else ["test_*.py"]


@pytest.fixture
def benchmark() -> None:
    """Stand in for the fixture of a plugin that is not loaded.

    The standard test that uses it is skipped.
    """


@pytest.fixture
def vcr() -> None:
    """Stand in for the fixture of a plugin that is not loaded.

    The standard test that uses it is skipped.
    """


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers of LangChain's standard tests. Their pytest plugins are not loaded."""
    for name in ("benchmark", "vcr"):
        config.addinivalue_line("markers", f"{name}: used by LangChain's standard tests")
