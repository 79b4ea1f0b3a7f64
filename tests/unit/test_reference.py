"""The reference in the docs says what the code says."""

from tests.reference import PATH, reference


def test_the_reference_is_up_to_date() -> None:
    assert PATH.read_text() == reference(), "run `uv run python -m tests.reference`"
