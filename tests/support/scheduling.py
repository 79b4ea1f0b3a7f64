"""Distribution of the tests to the workers."""

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

FOLDERS = ("tests/anthropic/", "tests/openai/")
"""Folders whose tests all need one library that takes seconds to import."""


class LibraryScheduling(LoadFileScheduling):  # type: ignore[misc]
    """Gives the tests of a file, or of one of the folders, to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        folder = next((each for each in FOLDERS if nodeid.startswith(each)), None)
        scope: str = folder or super()._split_scope(nodeid)
        return scope
