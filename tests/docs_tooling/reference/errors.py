"""``docs/reference/errors.md``"""

from collections.abc import Iterator

from mochi_server import errors
from tests.docs_tooling.reference.markdown import page

INTRODUCTION = """
Every error has the same body:

```json
{"error": {"code": "TOOL_NOT_FOUND", "message": "There is no tool named 'dance'.", "details": {"tool_name": "dance"}}}
```

Decide by `code`. `message` is for a person and may change. In a stream the same three fields are the payload of an
[`error`](events.md#error) event. Some codes never are the answer of a route: they say how a tool's call ended, in
`error_code` of a [`tool_result`](events.md#tool_result).
"""


def errors_page() -> str:
    return page("Errors", INTRODUCTION, [_section(code) for code in codes()])


def codes() -> list[str]:
    """Every code, once."""
    return sorted({error.code for error in errors.MochiError.__subclasses__()})


def _section(code: str) -> str:
    return "\n".join([f"## `{code}`", "", *_ways(code)])


def _ways(code: str) -> Iterator[str]:
    """The classes with that code; they differ in status."""
    for error in errors.MochiError.__subclasses__():
        if error.code == code:
            yield f"- Status {int(error.status)}: {error.cause}. `{error.__name__}`"
