"""Tools in requests: functions of the client, and the choice among all tools."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Discriminator, Field, Tag

from mochi_server.chat.turn_input import ToolSelection
from mochi_server.schemas.common import Body, ToolParameters
from mochi_server.tools.schema import (
    MAX_NODES,
    InvalidTool,
    inline_references,
    supported_schema,
    without_boolean_schemas,
)
from mochi_server.util.validation import Items

_MAX_NODES_OF_REQUEST = 50_000
"""Largest size of all converted schemas of a request, because a small body can expand to many."""
_Item = TypeVar("_Item")
WordOr = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("word")] | Annotated[_Item, Tag("object")],
    Discriminator(lambda value: "word" if isinstance(value, str) else "object"),
]
"""A word for `tool_choice`, or an object."""
TOOL_CHOICE = (
    "Whether the model may or must call a tool. It is enforced for the first answer of the turn."
)
"""Description of the field `tool_choice`."""
PARALLEL = "If `false`, each answer calls one tool at most. The server drops further calls."
"""Description of the field `parallel_tool_calls`."""


class FunctionTool(Body):
    """A function of the client that the model may call. ``parameters`` is a JSON schema."""

    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    parameters: ToolParameters | None = None

    def to_ollama(self, max_nodes: int) -> dict[str, Any]:
        """Return the schema of the tool in Ollama's format.

        If its parameters exceed ``max_nodes`` or are invalid, the model receives them as they are,
        except for top-level nulls and for boolean schemas.
        """
        schema = {key: value for key, value in (self.parameters or {}).items() if value is not None}
        try:
            inlined = inline_references(schema, max_nodes)
            parameters = supported_schema(inlined, {}, keeps_null=True)
        except InvalidTool:
            # Templates of models fail without `properties`.
            parameters = {"type": "object", "properties": {}} | without_boolean_schemas(schema)
        function = {
            "name": self.name,
            "description": self.description or "",
            "parameters": parameters,
        }
        return {"type": "function", "function": function}


def ollama_tools(functions: Sequence[FunctionTool]) -> list[dict[str, Any]]:
    """Return the schemas of a request's tools in Ollama's format."""
    share = _MAX_NODES_OF_REQUEST // max(len(functions), 1)
    max_nodes = min(share, MAX_NODES)
    return [function.to_ollama(max_nodes) for function in functions]


class NamedFunction(Body):
    """Name of a function."""

    name: str


class AllowedFunctions(Body):
    """The functions that the model may call. With the mode `required`, it must call one of them."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Items[NamedFunction]


ToolChoice = str | NamedFunction | AllowedFunctions
"""`none`, `auto` or `required`, the function to call, or the functions that may be called."""


def tool_selection(
    names: list[str] | None,
    client_tools: list[dict[str, Any]] | None = None,
    choice: ToolChoice | None = None,
    *,
    parallel: bool | None = None,
    takes_text: bool = True,
    omits_tools: bool = False,
) -> ToolSelection:
    """Return the tools of a request.

    ``names`` are tools of this server. If it is None, the tools of the session apply. A ``choice``
    of None means ``auto``, and a ``parallel`` of None means true. ``omits_tools`` states whether
    the server omits other tools of the request.
    """
    only: frozenset[str] | None = None
    must_call = False
    match choice:
        case NamedFunction():
            only = frozenset([choice.name])
            must_call = True
        case AllowedFunctions():
            only = frozenset(function.name for function in choice.tools)
            must_call = choice.mode == "required"
        case str():
            must_call = choice == "required"
    return ToolSelection(
        names=names,
        client_tools=client_tools or (),
        may_call=choice != "none",
        must_call=must_call,
        omits_tools=omits_tools,
        only=only,
        parallel=parallel is not False,
        takes_text=takes_text,
    )
