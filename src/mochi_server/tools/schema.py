"""Tool schemas, generated from signatures and docstrings (Google, NumPy or reST style) of Python
functions.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import UnionType
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import ArgsKwargs, to_json

from mochi_server.constants import MAX_ARGUMENT_LEVELS, MAX_ARGUMENT_VALUES
from mochi_server.util.text import text_of_error

if TYPE_CHECKING:
    from docstring_parser import Docstring

_KEYWORDS = ("type", "description", "enum", "required")
"""JSON schema keywords that Ollama supports, besides ``items``, ``properties`` and ``anyOf``."""
_PYTHON_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool"}
_PYTHON_TYPES |= {"array": "list", "object": "dict", "null": "None"}
_LISTS_OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
_KEYWORD_TYPES: Mapping[str, type | UnionType] = {
    "type": str | list,
    "description": str,
    "enum": list,
    "required": list,
    "properties": dict,
    **dict.fromkeys(_LISTS_OF_SCHEMAS, list),
}
"""Types of the values of keywords, which the declared draft of a schema need not check."""
_TEXT_KEYWORDS = ("type", "required")
"""Keywords whose value contains only strings."""
_NOT_VALIDATING = ("metadata", "serialization")
"""Keys in the schemas of pydantic-core that do not affect validation."""
_PARAMETERS = "Parameters|Params|Arguments|Args"
_USED_SECTIONS = {
    "GOOGLE": re.compile(
        rf"^({_PARAMETERS}|Attributes|Returns|Yields|Raises|Exceptions|Except):[ \t]*$"
        r"(\n([ \t].*)?)*",
        re.MULTILINE,
    ),
    "NUMPYDOC": re.compile(
        rf"^((Other )?({_PARAMETERS})|Receives?|Attributes?|Returns?|Yields?|Raises?|Warns?)[ \t]*"
        r"\n-+[ \t]*$(\n(?!.+\n---).*)*\n?",
        re.MULTILINE,
    ),
}
"""Sections of parameters, results and errors by docstring style. Descriptions omit them."""
MAX_NODES = 5_000
_VALUES_PER_NODE = 100
"""Characters of a text, or values of a list, that count as one node of a schema."""
_MAX_DEPTH = 50
TOO_DEEP = (
    f"The arguments are nested deeper than {MAX_ARGUMENT_LEVELS} levels. Call the tool with "
    "flatter arguments."
)
TOO_MANY = (
    f"The arguments have more than {MAX_ARGUMENT_VALUES:,} values. Call the tool with smaller "
    "arguments."
)
_ARGUMENT_PROBLEMS = {
    "missing_keyword_only_argument": "Missing required argument",
    "unexpected_keyword_argument": "Unexpected argument",
}
"""Texts for pydantic's errors that describe the function of ``_arguments_adapter``."""


class InvalidTool(Exception):
    """A function cannot be a tool. The message is for the author of the function."""


class InvalidArguments(Exception):
    """The arguments of a tool call are invalid. The message is for the model."""


@dataclass(frozen=True)
class ToolSchema:
    """Name, description and parameters of a tool. ``parameters`` is a JSON schema for models."""

    name: str
    description: str
    parameters: dict[str, Any]
    overview: dict[str, dict[str, str]]
    """Python type and description of each parameter by name, for clients."""
    bind: Callable[[Mapping[str, Any]], Awaitable[inspect.BoundArguments]]
    """Function that converts and validates arguments. Raises ``InvalidArguments``."""
    # Description of the result for models, from the docstring's section "Returns", or "".
    returns: str = ""
    bind_in_thread: Callable[[Mapping[str, Any]], inspect.BoundArguments] | None = None
    """Same as ``bind``, for a thread, if validation runs user code such as validators of types.

    None if it runs none.
    """

    def definition(self) -> dict[str, Any]:
        """Return the tool in Ollama's format."""
        description = self.description
        if self.returns:
            description += f"\n\nReturns: {self.returns}"
        function = {"name": self.name, "description": description, "parameters": self.parameters}
        return {"type": "function", "function": function}


class ToolSchemaService:
    """Factory and cache of tool schemas. The default name of a tool is the name of its function."""

    def __init__(self) -> None:
        self._cache: dict[tuple[str, int], tuple[ToolSchema, object]] = {}

    def schema_of(self, function: Callable[..., Any], name: str | None = None) -> ToolSchema:
        """Return the schema of a function. Raises the errors of ``make_schema``."""
        name = name or str(getattr(function, "__name__", ""))
        key = (name, id(function))
        if key not in self._cache:
            # The cache keeps the function, so that no other function gets its ID.
            self._cache[key] = (make_schema(function, name), function)
        schema, _ = self._cache[key]
        return schema


def make_schema(function: Callable[..., Any], name: str) -> ToolSchema:
    """Return the schema of a function.

    Raises ``InvalidTool``, and errors of the types of parameters, such as an invalid pattern.
    """
    from docstring_parser import parse  # noqa: PLC0415 - only tools need it

    if inspect.isclass(function) or not callable(function):
        raise InvalidTool("it is not a function")
    if inspect.isasyncgenfunction(function):
        raise InvalidTool("it yields its result in parts; return the whole result")
    documentation = inspect.getdoc(function) or ""
    try:
        signature = inspect.signature(function, eval_str=True)
    except BaseException as error:  # annotations are user code
        raise InvalidTool(f"its annotations cannot be read: {text_of_error(error)}") from error
    faults = list(_faults(documentation, signature))
    if faults:
        raise InvalidTool("; ".join(faults))
    docstring = parse(documentation)  # in the style that finds the most
    adapter, schema = _arguments_adapter(signature)
    descriptions = _parameter_descriptions(docstring, schema)
    inlined = inline_references(schema)
    overview = {}
    for parameter, node in inlined["properties"].items():
        text = _one_line(descriptions.get(parameter, ""))
        overview[parameter] = {"type": python_type(node), "description": text}
    returns = docstring.returns
    core_schema = adapter.core_schema
    bind = partial(_bind, signature, adapter, is_strict=_is_strict(core_schema))
    parameter_schema = core_schema.get("arguments_schema", core_schema)
    return ToolSchema(
        name=name,
        description=_description(docstring, documentation) or documentation.strip(),
        parameters=supported_schema(inlined, descriptions),
        overview=overview,
        bind=partial(_bind_without_thread, bind),
        returns=_one_line(returns.description or "") if returns else "",
        bind_in_thread=bind if _has_code(parameter_schema) else None,
    )


def _description(docstring: "Docstring", documentation: str) -> str:
    """Return a docstring without its sections of parameters, results and errors."""
    style = docstring.style.name if docstring.style else ""
    if style in _USED_SECTIONS:
        text = _USED_SECTIONS[style].sub("", documentation)
        summary, _, details = text.partition("\n")
        return f"{summary}\n\n{details.strip()}".strip()
    parts = (docstring.short_description or "", docstring.long_description or "")
    return "\n\n".join(part.strip() for part in parts).strip()


def _parameter_descriptions(docstring: "Docstring", schema: Mapping[str, Any]) -> dict[str, str]:
    """Return the descriptions from a docstring, or else from the types of the parameters."""
    descriptions = {}
    for parameter, node in schema["properties"].items():
        if "description" in node:
            descriptions[parameter] = node["description"]
    for each in docstring.params:
        if each.description:
            descriptions[each.arg_name] = each.description
    return descriptions


def _has_code(schema: object) -> bool:
    """Return whether a schema of pydantic-core contains functions or classes."""
    if isinstance(schema, Mapping):
        values = [value for key, value in schema.items() if key not in _NOT_VALIDATING]
        return any(map(_has_code, values))
    if isinstance(schema, list | tuple):
        return any(map(_has_code, schema))
    return callable(schema)


def _is_strict(schema: object) -> bool:
    """Return whether a schema of pydantic-core contains strict types."""
    if isinstance(schema, Mapping):
        parts = [value for key, value in schema.items() if key not in _NOT_VALIDATING]
        return schema.get("strict") is True or any(map(_is_strict, parts))
    if isinstance(schema, list | tuple):
        return any(map(_is_strict, schema))
    return False


async def _bind_without_thread(
    bind: Callable[[Mapping[str, Any]], inspect.BoundArguments], arguments: Mapping[str, Any]
) -> inspect.BoundArguments:
    return bind(arguments)


def _bind(
    signature: inspect.Signature,
    adapter: TypeAdapter[Any],
    arguments: Mapping[str, Any],
    *,
    is_strict: bool,
) -> inspect.BoundArguments:
    """Convert and validate arguments with the adapter of a signature.

    Raises ``InvalidArguments``.
    """
    try:
        if is_strict:  # only from JSON, a strict date can be a string
            values = adapter.validate_json(to_json(dict(arguments), inf_nan_mode="constants"))
        else:
            values = adapter.validate_python(ArgsKwargs((), dict(arguments)))
    except ValidationError as error:
        raise InvalidArguments(explain(error)) from error
    except BaseException as error:  # validators of types are user code, which may raise SystemExit
        raise InvalidArguments(type(error).__name__) from error
    bound = signature.bind_partial()
    bound.arguments = {name: values[name] for name in signature.parameters}
    return bound


def python_type(node: Mapping[str, Any]) -> str:
    """Return the Python notation of a JSON schema's type, such as ``list[str]``.

    An unknown type is ``Any``.
    """
    if "enum" in node:
        values = ", ".join(map(repr, node["enum"]))
        return f"Literal[{values}]"
    if "const" in node:
        return f"Literal[{node['const']!r}]"
    choices = node.get("anyOf") or node.get("oneOf")
    if choices:
        return " | ".join(dict.fromkeys(map(python_type, choices)))
    kind = node.get("type")
    if isinstance(kind, list):
        return " | ".join(_PYTHON_TYPES.get(str(each), "Any") for each in kind) or "Any"
    if kind == "array" and node.get("items"):
        return f"list[{python_type(node['items'])}]"
    return _PYTHON_TYPES.get(str(kind), "Any")


def _faults(documentation: str, signature: inspect.Signature) -> Iterator[str]:
    if not documentation.strip():
        yield "it has no docstring; add one, because models choose tools by their descriptions"
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            yield (
                f"it takes {parameter}; declare each parameter by name, because models need a "
                "fixed list"
            )
        elif parameter.annotation is parameter.empty:
            yield f"its parameter {parameter.name!r} has no type; annotate it"
    if signature.return_annotation is signature.empty:
        yield "its return type is missing; annotate it"


def _arguments_adapter(
    signature: inspect.Signature,
) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    """Return the adapter and the JSON schema of the arguments for a signature.

    The adapter validates the call of a function with the parameters as keywords. This function only
    returns the validated arguments.
    """

    def collect(**values: Any) -> dict[str, Any]:
        return values

    parameters = [
        parameter.replace(kind=parameter.KEYWORD_ONLY)
        for parameter in signature.parameters.values()
    ]
    collect.__signature__ = inspect.Signature(parameters, return_annotation=dict)  # type: ignore[attr-defined]
    collect.__annotations__ = {each.name: each.annotation for each in parameters}
    collect.__annotations__["return"] = dict
    try:
        adapter = TypeAdapter(cast("Any", collect))
        return adapter, adapter.json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidTool(f"one of its types cannot be read from JSON: {reason}") from error


def inline_references(schema: dict[str, Any], max_nodes: int = MAX_NODES) -> dict[str, Any]:
    """Replace each ``$ref`` of a JSON schema by its target, and merge the parts of each ``allOf``.

    A recursive reference becomes any object. Raises ``InvalidTool`` if a keyword is invalid, or the
    result has more than ``max_nodes`` or too many levels. Long texts and lists count as several
    nodes.
    """
    nodes = 0

    def inline(node: Any, parents: tuple[str, ...] = (), depth: int = 0) -> dict[str, Any]:
        nonlocal nodes
        nodes += _weight(node)
        if nodes > max_nodes or depth > _MAX_DEPTH:
            raise InvalidTool("its schema is too large")
        if not isinstance(node, dict):  # ``true`` and ``false`` are valid schemas
            return {}
        node = _without_old_keywords(node)
        _check_keywords(node)
        pointer = node.get("$ref")
        if pointer in parents:
            return {"type": "object"}
        if isinstance(pointer, str):
            siblings = dict(node)
            del siblings["$ref"]
            target = _resolve(schema, pointer)
            return inline(target | siblings, (*parents, pointer), depth + 1)
        if "allOf" in node:
            own = dict(node)
            parts = [*own.pop("allOf"), own]
            return _merged([inline(part, parents, depth + 1) for part in parts])
        result = dict(node)
        for key in {"anyOf", "oneOf", "prefixItems"} & node.keys():
            result[key] = [inline(each, parents, depth + 1) for each in node[key]]
        if "items" in node:
            result["items"] = inline(node["items"], parents, depth + 1)
        if "properties" in node:
            result["properties"] = {
                name: inline(each, parents, depth + 1) for name, each in node["properties"].items()
            }
            result |= _required_keyword(node)
        return result

    return inline(schema)


def _weight(node: Any) -> int:
    """Return the number of nodes as which a schema counts without the schemas inside it."""
    weight = 1
    if isinstance(node, dict):
        for keyword in _KEYWORDS:
            value = node.get(keyword)
            if isinstance(value, str | list):
                weight += len(value) // _VALUES_PER_NODE
    return weight


def _without_old_keywords(node: dict[str, Any]) -> dict[str, Any]:
    """Remove the values that only draft 3 allows: booleans in ``required``, and lists of schemas
    in ``type``.
    """
    result = dict(node)
    if isinstance(node.get("required"), bool):
        del result["required"]
    kinds = node.get("type")
    if isinstance(kinds, list) and any(isinstance(kind, dict) for kind in kinds):
        del result["type"]
    return result


def _required_keyword(node: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the keyword ``required`` of an object as a mapping, empty if nothing is required.

    In draft 3, ``required`` is a boolean in each property.
    """
    names = [*node.get("required", ())]
    for name, each in node["properties"].items():
        if isinstance(each, dict) and each.get("required") is True:
            names.append(name)
    return {"required": names} if names else {}


def _check_keywords(node: Mapping[str, Any]) -> None:
    """Raise ``InvalidTool`` if the value of a keyword has the wrong type."""
    for keyword, expected in _KEYWORD_TYPES.items():
        if keyword not in node:
            continue
        value = node[keyword]
        is_valid = isinstance(value, expected)
        if is_valid and keyword in _TEXT_KEYWORDS:
            is_valid = all(isinstance(text, str) for text in value)
        if not is_valid:
            raise InvalidTool(f"the keyword {keyword!r} of its schema is invalid")


def without_boolean_schemas(schema: Any) -> Any:
    """Replace booleans by empty schemas where Ollama reads a JSON schema.

    These places are properties, items and the parts of keywords such as ``anyOf``.

    ``true`` and ``false`` are valid schemas, but Ollama cannot read them.
    """
    if isinstance(schema, bool):
        return {}
    if not isinstance(schema, dict):
        return schema
    result = dict(schema)
    for key, value in schema.items():
        if key == "items":
            result[key] = without_boolean_schemas(value)
        elif key in _LISTS_OF_SCHEMAS and isinstance(value, list):
            result[key] = [without_boolean_schemas(each) for each in value]
        elif key == "properties" and isinstance(value, dict):
            result[key] = {name: without_boolean_schemas(each) for name, each in value.items()}
    return result


def _merged(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one schema for all parts of an ``allOf``. Later parts take precedence."""
    merged: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    required: dict[str, None] = {}
    for part in parts:
        merged |= part
        for name, node in part.get("properties", {}).items():
            properties[name] = _merged([properties.get(name, {}), node])
        required |= dict.fromkeys(part.get("required", ()))
    if properties:
        merged["properties"] = properties
    if required:
        merged["required"] = [*required]
    return merged


def _resolve(schema: Any, pointer: str) -> dict[str, Any]:
    """Return the target of a ``$ref``, or the empty schema if there is none.

    Anchors are found only in the definitions of the schema.
    """
    start, *parts = pointer.split("/")
    if start != "#":
        return _anchored_definition(schema, pointer)
    for part in parts:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if not isinstance(schema, dict):
            return {}
        schema = schema.get(key)
    return schema if isinstance(schema, dict) else {}


def _anchored_definition(schema: Mapping[str, Any], reference: str) -> dict[str, Any]:
    """Return the definition with the anchor of a reference, or the empty schema."""
    for keyword in ("$defs", "definitions"):
        definitions = schema.get(keyword)
        if not isinstance(definitions, dict):
            continue
        for node in definitions.values():
            if isinstance(node, dict) and f"#{node.get('$anchor')}" == reference:
                return node
    return {}


def supported_schema(
    schema: dict[str, Any], descriptions: Mapping[str, str], *, keeps_null: bool = False
) -> dict[str, Any]:
    """Return ``schema`` with only the keywords that Ollama supports.

    Default values become part of the descriptions. ``keeps_null`` states whether required
    parameters can be null.
    """
    properties = {}
    required = schema.get("required", ())
    for name, node in schema.get("properties", {}).items():
        result = _allowed_keywords(node, keeps_null=keeps_null and name in required)
        text = _one_line(descriptions.get(name) or result.get("description", ""))
        default = node.get("default")
        if default not in (None, "", [], {}):
            text = f"{text} (default: {default})".strip()
        if text:
            result["description"] = text
        properties[name] = result
    supported = {"type": "object", "properties": properties}
    if required:
        supported["required"] = required
    return supported


def _allowed_keywords(node: Mapping[str, Any], *, keeps_null: bool = False) -> dict[str, Any]:
    """Return a node, and the nodes in it, with only the keywords that Ollama supports.

    A node with one alternative besides null becomes this alternative, with its own keywords added.
    Models need no null for optional values, because they can leave them out.
    """
    result = {key: node[key] for key in _KEYWORDS if key in node}
    alternatives = node.get("anyOf", node.get("oneOf", ()))
    choices = [choice for choice in alternatives if choice.get("type") != "null"]
    if len(choices) == 1:
        result = _allowed_keywords(choices[0] | result)
        kind = result.get("type")
        if keeps_null and len(alternatives) > 1 and isinstance(kind, str):
            result["type"] = [kind, "null"]
        return result
    if "const" in node:
        result["enum"] = [node["const"]]
    if choices:
        result["anyOf"] = [_allowed_keywords(choice) for choice in choices]
    if "items" in node or "prefixItems" in node:
        result["items"] = _items(node)
    if "properties" in node:
        required = node.get("required", ())
        result["properties"] = {
            name: _allowed_keywords(value, keeps_null=name in required)
            for name, value in node["properties"].items()
        }
    return result


def _items(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of the items of an array.

    Items of a tuple share one schema: Ollama has no ``prefixItems``.
    """
    if node.get("items"):
        return _allowed_keywords(node["items"])
    kinds: list[dict[str, Any]] = []
    for item in node.get("prefixItems", ()):
        kind = _allowed_keywords(item)
        if kind not in kinds:
            kinds.append(kind)
    if not kinds:
        return {}
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


def _one_line(text: str) -> str:
    return " ".join(text.split())


def explain(error: ValidationError) -> str:
    """Return validation errors as one line of text, without the invalid values."""
    problems = []
    for item in error.errors(include_url=False, include_input=False):
        place = ".".join(map(str, item["loc"]))
        problem = _ARGUMENT_PROBLEMS.get(item["type"], item["msg"])
        problems.append(f"{place}: {problem}" if place else problem)
    return "; ".join(problems)
