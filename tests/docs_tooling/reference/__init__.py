"""Generated reference pages: `uv run python -m tests.docs_tooling.reference` writes them, a unit
test compares them.

Every route, setting, event, error and configuration key has an anchor for links.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.docs_tooling.pages import ROOT
from tests.docs_tooling.reference.errors import errors_page
from tests.docs_tooling.reference.events import events_page
from tests.docs_tooling.reference.metrics import metrics_page
from tests.docs_tooling.reference.routes import routes_page
from tests.docs_tooling.reference.settings import settings_page
from tests.docs_tooling.reference.stub import stub_page

FOLDER = ROOT / "docs" / "reference"

MAKERS: Mapping[str, Callable[[], str]] = {
    "routes.md": routes_page,
    "settings.md": settings_page,
    "events.md": events_page,
    "errors.md": errors_page,
    "metrics.md": metrics_page,
    "stub.md": stub_page,
}


def pages() -> dict[Path, str]:
    """Return the text of every page by its path."""
    return {FOLDER / name: make() for name, make in MAKERS.items()}
