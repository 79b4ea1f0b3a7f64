"""Public names of the package.

`tests/unit/test_optional_packages.py` shows what its import loads.
"""

import mochi_server.sessions


def test_public_names_are_sorted_and_exist() -> None:
    names = mochi_server.sessions.__all__
    assert names == sorted(names)
    assert all(hasattr(mochi_server.sessions, name) for name in names)
