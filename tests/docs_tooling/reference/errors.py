"""Generator of `docs/reference/errors.md`."""

from collections.abc import Iterator

from mochi_server import errors
from tests.docs_tooling.reference.markdown import page

INTRODUCTION = """
Look up an error code that your client received. Every error response has the same body:

```json
{
  "error": {
    "code": "TOOL_NOT_FOUND",
    "message": "There is no tool named 'dance'. GET /api/v1/tools lists the tools.",
    "details": {"tool_name": "dance"}
  }
}
```

- `code` is stable. Use it in programs.
- `message` says what happened and what to do. It is meant for users, and its text may change.
- `details` has the same facts as data, for example the name of the tool.

If Ollama is busy ([`OLLAMA_BUSY`](#ollama_busy)), the header `Retry-After` has the time in seconds after which your
client can try again. If a chat request fails because of Ollama, its message is already stored: send the request without
`message`, or send the same request with its idempotency key, to get the answer. Otherwise the session has the message
twice.

In a stream, the payload of an [`error`](events.md#error) event has the same three fields, and the time of `Retry-After`
in `retry_after`. The routes under `/v1` return [errors in OpenAI's format](../how-to/openai-clients.md) instead.

No route returns [`TOOL_EXECUTION_FAILED`](#tool_execution_failed) and
[`TOOL_EXECUTION_DENIED`](#tool_execution_denied). They describe a failed [tool call](../glossary.md#tool-call), in the
`error_code` of a [`tool_result`](events.md#tool_result) event. There, [`TOOL_NOT_FOUND`](#tool_not_found) means that
the model called a tool that does not exist or is not enabled, and
[`TOOL_CONFIRMATION_TIMEOUT`](#tool_confirmation_timeout) that the approval timed out.

Each section below has the HTTP status, the cause and the class in `mochi_server.errors`.
"""


def errors_page() -> str:
    return page("Errors", INTRODUCTION, [_section(code) for code in codes()])


def codes() -> list[str]:
    """Return every code once, sorted."""
    return sorted({error.code for error in errors.all_errors()})


def _section(code: str) -> str:
    return "\n".join([f"## `{code}`", "", *_ways(code)])


def _ways(code: str) -> Iterator[str]:
    """Describe each class with this code."""
    for error in errors.all_errors():
        if error.code == code:
            yield f"- HTTP {int(error.status)}: {error.cause} Class: `{error.__name__}`"
