"""The reference pages match the code, and every entry has an anchor for links."""

import re

from mochi_server import MochiServerSettings, errors
from tests.docs_tooling import reference
from tests.docs_tooling.reference import FOLDER, events, routes, stub
from tests.support.openapi import document


def headings(page: str) -> list[str]:
    return re.findall(r"^##+ `(.+?)`", (FOLDER / page).read_text(), re.MULTILINE)


def test_reference_is_up_to_date() -> None:
    for path, text in reference.pages().items():
        assert path.read_text() == text, "run `uv run python -m tests.docs_tooling.reference`"


def test_reference_has_no_other_pages() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(reference.MAKERS)


def test_table_of_settings_has_every_setting_once() -> None:
    rows = re.findall(
        r"^\| <a id=\"(\w+)\"></a>`(\w+)` \|", (FOLDER / "settings.md").read_text(), re.MULTILINE
    )
    settings = sorted(f"MOCHI_{name.upper()}" for name in MochiServerSettings.model_fields)
    assert sorted(name for _, name in rows) == settings
    assert [anchor for anchor, name in rows if anchor != name.lower()] == []


def test_events_have_headings() -> None:
    assert headings("events.md") == [event.type for event in events.all_events()]


def test_error_codes_have_headings() -> None:
    assert headings("errors.md") == sorted({error.code for error in errors.all_errors()})


def test_routes_have_headings() -> None:
    served = routes.operations(document())
    assert headings("routes.md") == [f"{method} {path}" for method, path, _ in served]


def test_keys_of_the_stub_config_have_headings_and_text() -> None:
    assert set(stub.keys()) <= set(headings("stub.md"))
    assert len(headings("stub.md")) == len(set(headings("stub.md")))
    sections = re.findall(r"^### (.*)\n+(.?)", (FOLDER / "stub.md").read_text(), re.MULTILINE)
    assert [heading for heading, text in sections if text in ("", "#")] == []
