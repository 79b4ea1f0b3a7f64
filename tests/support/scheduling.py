"""Distribution of the tests to the workers."""

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

CLIENTS = "clients of OpenAI, Anthropic and Google"
SCOPES = {
    "tests/anthropic/": CLIENTS,
    "tests/mcp/": "MCP",
    "tests/openai/": CLIENTS,
    "tests/stub/test_anthropic": CLIENTS,
    "tests/stub/test_gemini": CLIENTS,
    "tests/stub/test_openai": CLIENTS,
}
"""Paths of tests that need libraries which take seconds to import, with a name for these libraries."""


class LibraryScheduling(LoadFileScheduling):  # type: ignore[misc]
    """Gives the tests of a file, or all that need the same libraries, to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        libraries = next((name for path, name in SCOPES.items() if nodeid.startswith(path)), None)
        scope: str = libraries or super()._split_scope(nodeid)
        return scope
