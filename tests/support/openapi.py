"""Routes and their bodies from the OpenAPI document, so that new routes are tested
automatically.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from mochi_server import create_app


@dataclass(frozen=True)
class Route:
    """One method of a path.

    `schema` is the schema of its body, or None. `queries` and `headers` are its parameters.
    """

    method: str
    path: str
    schema: dict[str, Any] | None
    queries: frozenset[str] = frozenset()
    headers: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @cached_property
    def body(self) -> dict[str, Any] | None:
        """Return the smallest valid body of the route."""
        return None if self.schema is None else _sample(self.schema)

    @property
    def example(self) -> Any:
        """Return the example of the body in the document, with a model of the stub, or the smallest
        valid body.
        """
        examples = (self.schema or {}).get("examples")
        return (
            {**examples[0], **({"model": "mochi"} if "model" in examples[0] else {})}
            if examples
            else self.body
        )

    @property
    def properties(self) -> frozenset[str]:
        """Return the names of the top-level body fields."""
        return frozenset(_resolved(self.schema or {}).get("properties", {}))

    @property
    def fields(self) -> list[str]:
        """Return the names of the top-level body fields that can be strings."""
        properties = _resolved(self.schema or {}).get("properties", {})
        return [name for name, schema in properties.items() if "string" in _types(schema)]


def routes() -> list[Route]:
    return [
        Route(
            method.upper(),
            path,
            _body_schema(operation),
            _parameters(operation, "query"),
            _parameters(operation, "header"),
        )
        for path, item in document()["paths"].items()
        for method, operation in item.items()
    ]


def _parameters(operation: dict[str, Any], place: str) -> frozenset[str]:
    return frozenset(
        each["name"] for each in operation.get("parameters", ()) if each["in"] == place
    )


def _body_schema(operation: dict[str, Any]) -> dict[str, Any] | None:
    body = operation.get("requestBody")
    return None if body is None else _resolved(body["content"]["application/json"]["schema"])


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Resolve the reference of a schema. Use the first of several alternatives."""
    if "anyOf" in schema:
        schema = schema["anyOf"][0]
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _resolved(document()["components"]["schemas"][name])
    return schema


def _types(schema: dict[str, Any]) -> Iterator[str]:
    for alternative in schema.get("anyOf", [schema]):
        yield alternative.get("type", "")


def _sample(schema: dict[str, Any]) -> Any:
    schema = _resolved(schema)
    if schema.get("type") == "object":
        return {name: _sample(schema["properties"][name]) for name in schema.get("required", ())}
    return {"string": "mochi", "boolean": True, "integer": 0, "number": 0, "array": []}.get(
        schema.get("type", "")
    )


@cache
def document() -> dict[str, Any]:
    """Return the OpenAPI document. Making it takes a second."""
    made: dict[str, Any] = create_app().openapi()
    return made
