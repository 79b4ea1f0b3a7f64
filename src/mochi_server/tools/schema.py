"""What a function tells of its parameters: for models, for clients, and for checking arguments before a call.

Types come from the signature by way of pydantic, descriptions from the docstring (Google, numpy or reST). The same
function gives the same bytes in every process.
"""

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from docstring_parser import DocstringStyle, parse
from docstring_parser.common import Docstring
from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import ArgsKwargs

from mochi_server.constants import MAX_ARGUMENT_LEVELS
from mochi_server.sessions.encoding import is_nested_deeper

_STYLES = (DocstringStyle.GOOGLE, DocstringStyle.NUMPYDOC, DocstringStyle.REST)
_KEPT = ("type", "description", "enum", "required")
"""Plain keywords that Ollama passes on; ``items``, ``properties`` and ``anyOf`` are followed."""
TOO_DEEP = f"The arguments are nested deeper than {MAX_ARGUMENT_LEVELS} levels. Call the tool with flatter arguments."


class NotATool(Exception):
    """Why a function cannot be a tool, in words for its author."""


class WrongArguments(Exception):
    """Why arguments do not fit, in words for a model."""


@dataclass(frozen=True)
class ToolSchema:
    """How a tool is called. ``parameters`` is the JSON schema that models get."""

    name: str
    description: str
    parameters: dict[str, Any]
    overview: dict[str, dict[str, str]]
    """Parameter name → ``type`` (as Python writes it) and ``description``; what clients are shown."""
    bind: Callable[[Mapping[str, Any]], inspect.BoundArguments]
    """Arguments as the function takes them. Raises ``WrongArguments``."""

    def definition(self) -> dict[str, Any]:
        """The tool as Ollama takes it."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    def check(self, arguments: dict[str, Any]) -> inspect.BoundArguments:
        """Return the arguments as the function takes them. Raises ``WrongArguments``, also for too many levels."""
        if is_nested_deeper(arguments, MAX_ARGUMENT_LEVELS):
            raise WrongArguments(TOO_DEEP)
        return self.bind(arguments)


class ToolSchemaService:
    """Makes schemas of functions, once for each function."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], tuple[Callable[..., Any], ToolSchema]] = {}

    def schema_of(self, function: Callable[..., Any], name: str | None = None) -> ToolSchema:
        """The schema of a function under a name. Raises ``NotATool``."""
        name = name or str(getattr(function, "__name__", ""))
        key = (name, id(function))
        if key not in self._known:
            # The function is kept with its schema, so that its id stays its own.
            self._known[key] = (function, make_schema(function, name))
        return self._known[key][1]

    def clear(self) -> None:
        """Forget all schemas, and with them the functions."""
        self._known.clear()


def make_schema(function: Callable[..., Any], name: str) -> ToolSchema:
    """The schema of a function. Raises ``NotATool``."""
    if inspect.isclass(function) or not callable(function):
        raise NotATool("it is not a function")
    documentation = inspect.getdoc(function) or ""
    if not documentation.strip():
        raise NotATool("it has no docstring, and models go by that")
    signature, hints = _typed_signature(function)
    docstring = _parse(documentation, signature)
    described = {parameter.arg_name.lstrip("*"): parameter.description or "" for parameter in docstring.params}
    adapter = _adapter(signature, hints)
    full = adapter.json_schema()
    return ToolSchema(
        name=name,
        description=_summary(docstring) or documentation.strip(),
        parameters=for_models(full, described),
        overview={
            parameter: {"type": type_name(hints[parameter]), "description": _flat(described.get(parameter, ""))}
            for parameter in signature.parameters
        },
        bind=partial(_bind, signature, adapter),
    )


def _bind(
    signature: inspect.Signature, adapter: TypeAdapter[Any], arguments: Mapping[str, Any]
) -> inspect.BoundArguments:
    """Arguments with the types the function wants, defaults filled in."""
    try:
        values = adapter.validate_python(ArgsKwargs((), dict(arguments)))
    except ValidationError as error:
        raise WrongArguments(_explain(error)) from error
    bound = signature.bind_partial()
    bound.arguments = {name: values[name] for name in signature.parameters}
    return bound


def type_name(annotation: object) -> str:
    """A type as Python code writes it: ``float``, ``list[str]``, ``int | None``."""
    if annotation is type(None):
        return "None"
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return type_name(typing.get_args(annotation)[0])
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, typing.get_args(annotation)))}]"
    if origin is typing.Union or (origin is not None and getattr(origin, "__name__", "") == "UnionType"):
        return " | ".join(map(type_name, typing.get_args(annotation)))
    if origin is not None:
        arguments = ", ".join("..." if a is ... else type_name(a) for a in typing.get_args(annotation))
        return f"{type_name(origin)}[{arguments}]"
    return getattr(annotation, "__name__", None) or str(annotation).replace("typing.", "")


def _typed_signature(function: Callable[..., Any]) -> tuple[inspect.Signature, dict[str, Any]]:
    try:
        signature = inspect.signature(function)
        hints = typing.get_type_hints(_with_annotations(function), include_extras=True)
    except Exception as error:  # annotations are the author's code
        raise NotATool(f"its annotations cannot be read: {error}") from error
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise NotATool(f"it takes {parameter}, and a model must know each parameter")
        if parameter.name not in hints:
            raise NotATool(f"its parameter {parameter.name!r} has no type")
    if "return" not in hints:
        raise NotATool("it does not say what it returns")
    return signature, hints


def _with_annotations(function: Callable[..., Any]) -> Any:
    """What carries the annotations: a callable object's are those of its ``__call__``."""
    return function if hasattr(function, "__annotations__") or not hasattr(function, "func") else function.func


def _adapter(signature: inspect.Signature, hints: Mapping[str, Any]) -> TypeAdapter[Any]:
    def collect(**values: Any) -> dict[str, Any]:
        return values

    parameters = [
        parameter.replace(annotation=hints[name], kind=parameter.KEYWORD_ONLY)
        for name, parameter in signature.parameters.items()
    ]
    collect.__signature__ = inspect.Signature(parameters, return_annotation=dict)  # type: ignore[attr-defined]  # what inspect reads
    collect.__annotations__ = {**{p.name: p.annotation for p in parameters}, "return": dict}
    try:
        return TypeAdapter(cast("Any", collect))
    except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
        raise NotATool(f"one of its types cannot come from JSON: {str(error).splitlines()[0]}") from error


def _parse(documentation: str, signature: inspect.Signature) -> Docstring:
    """The docstring in the style that knows most of the parameters."""
    parsed = [parse(documentation, style) for style in _STYLES]
    return max(parsed, key=lambda docstring: sum(p.arg_name in signature.parameters for p in docstring.params))


def _summary(docstring: Docstring) -> str:
    parts = (docstring.short_description, docstring.long_description)
    return "\n\n".join(part.strip() for part in parts if part and part.strip())


def for_models(full: dict[str, Any], described: Mapping[str, str]) -> dict[str, Any]:
    """The schema with references put in place and only what Ollama passes on; defaults go into the descriptions."""
    definitions = full.get("$defs", {})
    properties = {}
    for name, node in full.get("properties", {}).items():
        kept = _kept(node, definitions, ())
        text = _flat(described.get(name, "") or kept.get("description", ""))
        if default := _default_text(node):
            text = f"{text} {default}".strip()
        properties[name] = ({**kept, "description": text}) if text else kept
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required := full.get("required"):
        schema["required"] = required
    return schema


def _kept(node: Mapping[str, Any], definitions: Mapping[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
    if reference := node.get("$ref"):
        name = str(reference).rpartition("/")[2]
        if name in inside:
            return {"type": "object"}
        return _kept(
            {**definitions[name], **{k: v for k, v in node.items() if k != "$ref"}}, definitions, (*inside, name)
        )
    choices = [choice for choice in node.get("anyOf", node.get("oneOf", ())) if choice.get("type") != "null"]
    if len(choices) == 1:
        return _kept({**choices[0], **{k: v for k, v in node.items() if k in _KEPT}}, definitions, inside)
    result = {key: node[key] for key in _KEPT if key in node}
    if "const" in node:
        result["enum"] = [node["const"]]
    if choices:
        result["anyOf"] = [_kept(choice, definitions, inside) for choice in choices]
    if "items" in node or "prefixItems" in node:
        items: Any = node.get("items") or next(iter(node.get("prefixItems", ())), None)
        result["items"] = _kept(items if isinstance(items, Mapping) else {}, definitions, inside)
    if "properties" in node:
        result["properties"] = {key: _kept(value, definitions, inside) for key, value in node["properties"].items()}
    return result


def _default_text(node: Mapping[str, Any]) -> str:
    default = node.get("default")
    return "" if default is None or default in ("", [], {}) else f"(default: {default})"


def _flat(text: str) -> str:
    return " ".join(text.split())


def _explain(error: ValidationError) -> str:
    problems = []
    for item in error.errors(include_url=False):
        where = ".".join(str(part) for part in item["loc"])
        problems.append(f"{where}: {item['msg']}" if where else str(item["msg"]))
    return "; ".join(problems)
