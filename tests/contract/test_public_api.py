"""The public API equals its stored copy, so that a breaking change is a decision."""

import json

from tests.contract.public_api import PATH, as_text, changes, public_api

ADVICE = (
    "See docs/stability.md. To accept the changes, run `uv run python -m "
    "tests.contract.public_api`."
)


def test_public_api_equals_its_stored_copy() -> None:
    api = json.loads(as_text(public_api()))
    assert changes(json.loads(PATH.read_text()), api) == [], ADVICE
    assert PATH.read_text() == as_text(api), ADVICE


def test_changes_name_each_difference() -> None:
    before = {"errors": {"GONE": [404], "BUSY": [409], "SAME": [500]}}
    after = {"errors": {"BUSY": [503], "SAME": [500]}, "events": {"new": {}}}
    assert changes(before, after) == [
        "errors: removed GONE",
        "errors: changed BUSY",
        "events: added new",
    ]


def test_every_part_has_entries_without_texts() -> None:
    api = public_api()
    assert all(len(entries) > 1 for entries in api.values())
    assert '"description": "' not in as_text({"routes": api["routes"]})
