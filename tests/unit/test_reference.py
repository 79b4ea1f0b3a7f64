"""The reference in the docs says what the code says, and everything has a heading that can be linked to."""

import re

from mochi_server import MochiServerSettings, create_app, errors
from tests.docs_tooling import reference
from tests.docs_tooling.reference import FOLDER, events, routes, stub


def headings(page: str) -> list[str]:
    return re.findall(r"^##+ `(.+?)`", (FOLDER / page).read_text(), re.MULTILINE)


def test_the_reference_is_up_to_date() -> None:
    for path, text in reference.pages().items():
        assert path.read_text() == text, "run `uv run python -m tests.docs_tooling.reference`"


def test_nothing_is_left_of_pages_that_are_no_longer_made() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(reference.MAKERS)


def test_every_setting_has_its_heading() -> None:
    assert headings("settings.md") == [f"MOCHI_{name.upper()}" for name in MochiServerSettings.model_fields]


def test_every_event_has_its_heading() -> None:
    assert headings("events.md") == [event.type for event in events.all_events()]


def test_every_error_code_has_its_heading() -> None:
    assert headings("errors.md") == sorted({error.code for error in errors.all_errors()})


def test_every_route_has_its_heading() -> None:
    served = routes.operations(create_app().openapi())
    assert headings("routes.md") == [f"{method} {path}" for method, path, _ in served]


def test_every_key_of_the_stubs_configuration_has_its_heading_and_is_explained() -> None:
    assert set(stub.keys()) <= set(headings("stub.md"))
    assert len(headings("stub.md")) == len(set(headings("stub.md")))
    sections = re.findall(r"^### (.*)\n+(.?)", (FOLDER / "stub.md").read_text(), re.MULTILINE)
    assert [heading for heading, text in sections if text in ("", "#")] == []
