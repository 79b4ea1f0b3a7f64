"""Distribution of the tests to the workers."""

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

SCOPES = {
    "clients of OpenAI, Anthropic and Google": (
        "tests/anthropic/",
        "tests/openai/",
        "tests/stub/test_anthropic",
        "tests/stub/test_gemini",
        "tests/stub/test_openai",
    ),
    "commands": (
        "tests/cli/",
        "tests/docs/test_deploy_examples",
        "tests/faults/",
        "tests/sessions/test_other_processes",
        "tests/unit/test_mistakes",
    ),
    "MCP SDK": ("tests/mcp/",),
    "OpenAPI document": (
        "tests/api/test_attacks",
        "tests/api/test_error_advice",
        "tests/api/test_head_requests",
        "tests/api/test_html_pages",
        "tests/api/test_one_servers_app",
        "tests/api/test_own_app",
        "tests/api/test_owned_sessions",
        "tests/api/test_requests",
        "tests/api/test_unknown_fields",
        "tests/client/test_sse_parser",
        "tests/contract/",
        "tests/unit/test_reference",
    ),
}
"""What takes seconds to import, start or make, and the paths of the tests that need it."""


class LibraryScheduling(LoadFileScheduling):  # type: ignore[misc]
    """Gives the tests of a file, or all that need the same of `SCOPES`, to one worker."""

    def _split_scope(self, nodeid: str) -> str:
        shared = next((name for name, paths in SCOPES.items() if nodeid.startswith(paths)), None)
        scope: str = shared or super()._split_scope(nodeid)
        return scope
