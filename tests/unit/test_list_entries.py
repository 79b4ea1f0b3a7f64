"""List entries have the fields of the documented model.

Stores write them and nothing validates them again.
"""

from mochi_server.schemas.sessions import Session
from mochi_server.sessions.session import LIST_FIELDS


def test_list_entry_has_the_fields_of_a_session() -> None:
    assert set(Session.model_fields) == {*LIST_FIELDS, "preview", "owner"}
