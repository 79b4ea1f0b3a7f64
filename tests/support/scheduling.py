"""Distribution of the tests to the workers."""

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

CLIENTS, COMMANDS = "clients of OpenAI, Anthropic and Google", "commands and MCP"
SCOPES = {
    "tests/anthropic/": CLIENTS,
    "tests/cli/": COMMANDS,
    "tests/contract/test_document": COMMANDS,
    "tests/docs/test_deploy_examples": COMMANDS,
    "tests/faults/": COMMANDS,
    "tests/mcp/": COMMANDS,
    "tests/openai/": CLIENTS,
    "tests/stub/test_anthropic": CLIENTS,
    "tests/stub/test_gemini": CLIENTS,
    "tests/stub/test_openai": CLIENTS,
    "tests/unit/test_mistakes": COMMANDS,
}
"""Paths of tests that share libraries or processes which take seconds to start, with a name for these."""


class LibraryScheduling(LoadFileScheduling):  # type: ignore[misc]
    """Gives the tests of a file, or all that share libraries or processes, to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        shared = next((name for path, name in SCOPES.items() if nodeid.startswith(path)), None)
        scope: str = shared or super()._split_scope(nodeid)
        return scope
