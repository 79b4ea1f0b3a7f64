"""The server under test, and schemathesis in the second tier.

Importing schemathesis takes a second. So the first tier (`-m 'not slow'`) ignores the module that
uses it, and this file loads its plugin, which pytest's own option `-p no:schemathesis` excludes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.server import LoggedServer
from tests.fuzz.world import World
from tests.support.api import Api


def _is_selected(config: pytest.Config) -> bool:
    """Return whether this test run includes the second tier."""
    return bool(config.option.markexpr != "not slow")


def pytest_configure(config: pytest.Config) -> None:
    """Load the plugin of schemathesis, which pytest itself must not load (`-p no:schemathesis`)."""
    if _is_selected(config):
        config.pluginmanager.import_plugin("schemathesis.pytest.plugin")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore the module that needs schemathesis."""
    return (
        True if collection_path.name == "test_operations.py" and not _is_selected(config) else None
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the ID of each test name its operation.

    Schemathesis gives all the same ID, and xdist would run only one.
    """
    for item in items:
        if item.path.name == "test_operations.py" and item.parent is not None:
            item._id = item.parent.id.child(item.name)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One server in test mode in its own process. Fails if its log reports a defect."""
    data_dir = tmp_path_factory.mktemp("fuzz")
    World.furnish(data_dir)
    with LoggedServer(data_dir) as server:
        api = Api(server.url)
        yield World(data_dir, api)
        api.http.close()
    complaints = server.complaints()
    assert not complaints, "\n".join(complaints)
