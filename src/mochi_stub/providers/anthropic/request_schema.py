"""Schemas of Anthropic's requests, and the conversion of requests to prompts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mochi_stub.models.catalogue import Model
from mochi_stub.prompt import Message, Prompt, ToolCall
from mochi_stub.providers.body_validation import (
    Location,
    ValidationError,
    array,
    integer,
    number,
    schema,
    string_or,
    tagged,
)
from mochi_stub.providers.provider_pipeline import function_tool, options
from mochi_stub.reply import HttpError

_TEXT = {"text!": str}
_SOURCE = {"source!": dict}
_RESULT = string_or([tagged("type", {"text": _TEXT, "image": _SOURCE, "document": _SOURCE})])
_SERVER_BLOCKS = (
    *("search_result", "server_tool_use", "web_search_tool_result", "web_fetch_tool_result", "tool_search_tool_result"),
    *("code_execution_tool_result", "bash_code_execution_tool_result", "text_editor_code_execution_tool_result"),
    *("container_upload", "browser_state"),
)
"""Content blocks of Anthropic's server tools, which the stub does not run."""
_BLOCKS = {
    "text": _TEXT,
    "image": _SOURCE,
    "document": _SOURCE,
    **dict.fromkeys(_SERVER_BLOCKS, dict),
    "thinking": {"thinking!": str, "signature!": str},
    "redacted_thinking": {"data!": str},
    "tool_use": {"id!": str, "name!": str, "input!": dict},
    "tool_result": {"tool_use_id!": str, "content": _RESULT, "is_error": bool},
}
_MESSAGE = {"role!": ("user", "assistant", "system"), "content!": string_or([tagged("type", _BLOCKS)])}
_TOOL = schema({"type": str, "name!": str, "description": str, "input_schema": dict})


def _tool(value: Any, location: Location) -> Any:
    """Validate a tool. Only custom tools need `input_schema`, because Anthropic defines the schemas of other tools."""
    tool = _TOOL(value, location)
    if tool.get("type", "custom") == "custom" and "input_schema" not in tool:
        raise ValidationError((*location, "input_schema"), "a value")
    return tool


_THINKING = {"enabled": {"budget_tokens!": integer(1024)}, "adaptive": {}, "between_tools": {}, "disabled": {}}
_OUTPUT = {
    "effort": ("low", "medium", "high", "xhigh", "max"),
    "format": tagged("type", {"json_schema": {"schema!": dict}}),
}
_COUNT_FIELDS = {
    "model!": str,
    "messages!": array(_MESSAGE, least=1),
    "system": string_or([tagged("type", {"text": _TEXT})]),
    "tools": [_tool],
    "tool_choice": tagged("type", {"auto": {}, "any": {}, "tool": {"name!": str}, "none": {}}),
    "thinking": tagged("type", _THINKING),
}
COUNT = schema(_COUNT_FIELDS)
PAGE = schema({"limit": integer(1, 1000), "after_id": object, "before_id": object})
MESSAGES = schema(
    {
        "max_tokens!": integer(1),
        "messages!": _COUNT_FIELDS["messages!"],
        **_COUNT_FIELDS,
        "stop_sequences": [str],
        "temperature": number(0, 1),
        "top_p": number(0, 1),
        "top_k": integer(0),
        "output_config": _OUTPUT,
        "stream": bool,
    }
)


_NO_TOOLS = "tool_choice may only be specified while providing tools"


def to_prompt(body: Mapping[str, Any], model: Model) -> Prompt:
    """Convert a request body to a prompt. Raises HttpError if the model does not support the request."""
    _check_support(body, model)
    thinking = body.get("thinking", {}).get("type")
    system = _joined_text(body.get("system", ""))
    tools, required_tools = _tools(body)
    return Prompt(
        model=body["model"],
        messages=(
            *([Message("system", system)] if system else ()),
            *(message for item in body["messages"] for message in _messages(item["role"], item["content"])),
        ),
        tools=tools,
        required_tools=required_tools,
        think=None if thinking is None else thinking != "disabled",
        thinks=model.has_capability("thinking") and thinking != "disabled",
        format=body.get("output_config", {}).get("format", {}).get("schema"),
        options=options(body),
        stream=body.get("stream", False),
    )


def _tools(body: Mapping[str, Any]) -> tuple[tuple[dict[str, Any], ...], tuple[dict[str, Any], ...]]:
    """Return the tools that the model may call, and the tools of which it must call one. Both can be empty."""
    choice = body.get("tool_choice", {"type": "auto"})
    tools = [
        function_tool(name=raw["name"], description=raw.get("description") or None, parameters=raw.get("input_schema"))
        for raw in body.get("tools", ())
    ]
    match choice["type"]:
        case "none":
            return (), ()
        case "auto":
            return tuple(tools), ()
    name = choice.get("name")
    required = [tool for tool in tools if name in (None, tool["function"]["name"])]
    if not required:
        raise HttpError(400, f"Tool '{name}' not found in provided tools" if name else _NO_TOOLS)
    return tuple(tools), tuple(required)


def _check_support(body: Mapping[str, Any], model: Model) -> None:
    if not model.has_capability("completion"):
        raise HttpError(400, f"'{body['model']}' does not support the Messages API.")
    if body.get("tools") and not model.has_capability("tools"):
        raise HttpError(400, f"'{body['model']}' does not support tool use.")
    thinking = body.get("thinking", {})
    budget = thinking.get("budget_tokens", 0)
    if budget >= body.get("max_tokens", budget + 1):
        raise HttpError(400, "`max_tokens` must be greater than `thinking.budget_tokens`.")
    if thinking.get("type") == "enabled" and body.get("tool_choice", {}).get("type") in ("any", "tool"):
        raise HttpError(400, "Thinking may not be enabled when tool_choice forces tool use.")


def _messages(role: str, content: str | list[Mapping[str, Any]]) -> list[Message]:
    """Convert one message to prompt messages. Each tool result becomes a separate message."""
    if isinstance(content, str):
        return [Message(role, content)]
    results = [
        Message("tool", _joined_text(block.get("content", "")), tool_call_id=block["tool_use_id"])
        for block in content
        if block["type"] == "tool_result"
    ]
    if results and len(results) == len(content):
        return results
    message = Message(
        role,
        content=_joined_text(content),
        thinking="".join(block["thinking"] for block in content if block["type"] == "thinking"),
        images=sum(block["type"] == "image" for block in content),
        tool_calls=tuple(
            ToolCall(block["name"], block["input"], block["id"]) for block in content if block["type"] == "tool_use"
        ),
    )
    return [*results, message]


def _joined_text(content: str | Iterable[Mapping[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block["type"] == "text")
