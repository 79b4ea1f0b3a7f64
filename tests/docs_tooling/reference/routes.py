"""Generator of `docs/reference/routes.md`."""

import re
from collections.abc import Iterator
from typing import Any

from tests.docs_tooling.reference.errors import codes
from tests.docs_tooling.reference.markdown import page, table
from tests.support.openapi import document

INTRODUCTION = """
Look up a route: its parameters, the fields of its body and its responses.

Send bodies as JSON, with `Content-Type: application/json`. Each response has an HTTP status and either the schema of
its body, such as `ChatResponse`, or [error codes](errors.md). The schemas are in the OpenAPI document of a running
server: `/openapi.json` is for programs, and `/docs` is for reading and trying.

Every route can also return these errors: [`UNAUTHORIZED`](errors.md#unauthorized),
[`ORIGIN_FORBIDDEN`](errors.md#origin_forbidden), [`HOST_FORBIDDEN`](errors.md#host_forbidden),
[`BODY_TOO_LARGE`](errors.md#body_too_large), [`HEADERS_TOO_LARGE`](errors.md#headers_too_large),
[`BAD_REQUEST`](errors.md#bad_request), [`REQUEST_TIMED_OUT`](errors.md#request_timed_out) and
[`INTERNAL_ERROR`](errors.md#internal_error).
"""


def routes_page() -> str:
    return page(
        "Routes", INTRODUCTION, [_section(document(), *one) for one in operations(document())]
    )


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield method, path and OpenAPI operation of every route."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield method.upper(), path, operation


def _section(document: dict[str, Any], method: str, path: str, operation: dict[str, Any]) -> str:
    parts = [f"## `{method} {path}`", operation.get("description") or operation["summary"]]
    parts += _parameters(operation)
    parts += _body(document, operation)
    parts += [
        "Responses:",
        "\n".join(f"- {status}: {text}" for status, text in _answers(operation)),
    ]
    return "\n\n".join(parts)


def _parameters(operation: dict[str, Any]) -> list[str]:
    given = [one for one in operation.get("parameters", []) if one["in"] != "path"]
    rows = [(f"`{one['name']}`", one["in"], one.get("description", "")) for one in given]
    return [table(["parameter", "in", "meaning"], rows)] if rows else []


def _body(document: dict[str, Any], operation: dict[str, Any]) -> list[str]:
    """Return the table of the fields of the body."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    found = re.search(r"#/components/schemas/(\w+)", str(content))
    if not found:
        return []
    schema = document["components"]["schemas"][found[1]]
    required = schema.get("required", [])
    rows = [
        (f"`{name}`", _type(field), "yes" if name in required else "", field.get("description", ""))
        for name, field in schema.get("properties", {}).items()
    ]
    return [table(["field of the body", "type", "required", "meaning"], rows)] if rows else []


def _type(field: dict[str, Any]) -> str:
    """Return the type of a field in one or two words."""
    if "$ref" in field:
        return "object"
    if "enum" in field or "const" in field:
        return " or ".join(f'`"{value}"`' for value in field.get("enum", [field.get("const")]))
    if choices := field.get("anyOf") or field.get("oneOf"):
        return " or ".join(dict.fromkeys(_type(choice) for choice in choices))
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    return str(field.get("type", "any"))


def _answers(operation: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for status, response in sorted(operation["responses"].items()):
        if status == "default":
            continue
        named = re.fullmatch(r"(`\w+`(, )?)+", response["description"])
        yield status, re.sub(r"`(\w+)`", _linked, named[0]) if named else _kind(response)


def _linked(code: re.Match[str]) -> str:
    """Link a code to its error. Some codes of OpenAI's API have no page."""
    return f"[{code[0]}](errors.md#{code[1].lower()})" if code[1].upper() in codes() else code[0]


def _kind(response: dict[str, Any]) -> str:
    found = re.search(
        r"#/components/schemas/(\w+)", str(response.get("content", {}).get("application/json", ""))
    )
    if "text/event-stream" in response.get("content", {}):
        return (
            f"`{found[1]}`, or a stream of server-sent events"
            if found
            else "a stream of server-sent events"
        )
    return (
        f"`{found[1]}`"
        if found
        else str(response["description"]).replace("Successful Response", "no body")
    )
