"""What Anthropic's requests may hold, and how they become a prompt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mochi_stub.catalogue import Model
from mochi_stub.prompt import Message, Prompt, ToolCall
from mochi_stub.wire.anthropic.errors import Refused
from mochi_stub.wire.fields import (
    ByKind,
    Check,
    ListOf,
    Number,
    Object,
    OneOf,
    Problem,
    Tagged,
    Where,
    Whole,
    flag,
    mapping,
    string,
)

_TEXT: Check = Object({"text": string}, ("text",))
_SOURCE: Check = Object({"source": mapping}, ("source",))
_RESULT: Check = ByKind(
    {"string": string, "array": ListOf(Tagged("type", {"text": _TEXT, "image": _SOURCE, "document": _SOURCE}))}
)
_SERVER_BLOCKS = (
    *("search_result", "server_tool_use", "web_search_tool_result", "web_fetch_tool_result", "tool_search_tool_result"),
    *("code_execution_tool_result", "bash_code_execution_tool_result", "text_editor_code_execution_tool_result"),
    *("container_upload", "browser_state"),
)
"""Blocks that Anthropic's own tools leave in a conversation; the stub has no such tools."""
_BLOCK: Check = Tagged(
    "type",
    {
        "text": _TEXT,
        "image": _SOURCE,
        "document": _SOURCE,
        **dict.fromkeys(_SERVER_BLOCKS, mapping),
        "thinking": Object({"thinking": string, "signature": string}, ("thinking", "signature")),
        "redacted_thinking": Object({"data": string}, ("data",)),
        "tool_use": Object({"id": string, "name": string, "input": mapping}, ("id", "name", "input")),
        "tool_result": Object({"tool_use_id": string, "content": _RESULT, "is_error": flag}, ("tool_use_id",)),
    },
)
_CONTENT: Check = ByKind({"string": string, "array": ListOf(_BLOCK)})
_MESSAGE: Check = Object({"role": OneOf(("user", "assistant", "system")), "content": _CONTENT}, ("role", "content"))


def _tool(value: Any, where: Where) -> Any:
    """A tool of the client's, which has a schema, or one of Anthropic's own, which has none."""
    tool = _TOOL(value, where)
    if tool.get("type", "custom") == "custom" and "input_schema" not in tool:
        raise Problem("missing", (*where, "custom", "input_schema"))
    return tool


_TOOL: Check = Object({"type": string, "name": string, "description": string, "input_schema": mapping}, ("name",))
_THINKING: Check = Tagged(
    "type",
    {
        "enabled": Object({"budget_tokens": Whole(1024)}, ("budget_tokens",)),
        "adaptive": Object({}),
        "between_tools": Object({}),
        "disabled": Object({}),
    },
)
_EFFORT: Check = OneOf(("low", "medium", "high", "xhigh", "max"))
_FORMAT: Check = Tagged("type", {"json_schema": Object({"schema": mapping}, ("schema",))})
_COUNTED: dict[str, Check] = {
    "model": string,
    "messages": ListOf(_MESSAGE, least=1),
    "system": ByKind({"string": string, "array": ListOf(Tagged("type", {"text": _TEXT}))}),
    "tools": ListOf(_tool),
    "tool_choice": Object({"type": OneOf(("auto", "any", "tool", "none")), "name": string}, ("type",)),
    "thinking": _THINKING,
}
COUNT: Check = Object(_COUNTED, ("model", "messages"))
MESSAGES: Check = Object(
    {
        **_COUNTED,
        "max_tokens": Whole(1),
        "stop_sequences": ListOf(string),
        "temperature": Number(0, 1),
        "top_p": Number(0, 1),
        "top_k": Whole(0),
        "output_config": Object({"effort": _EFFORT, "format": _FORMAT}),
        "stream": flag,
    },
    ("max_tokens", "messages", "model"),
)


def prompt_of(body: Mapping[str, Any], model: Model) -> Prompt:
    """The request as a prompt for this model. Raises Refused for what the model cannot do."""
    _check(body, model)
    thinking = body.get("thinking", {}).get("type")
    offered = body.get("tool_choice", {}).get("type") != "none"
    system = _system(body.get("system", ""))
    return Prompt(
        model=body["model"],
        messages=(*system, *_messages(body["messages"])),
        tools=tuple(map(_function, body.get("tools", ()))) if offered else (),
        think=None if thinking is None else thinking != "disabled",
        thinks=model.can("thinking") and thinking != "disabled",
        format=body.get("output_config", {}).get("format", {}).get("schema"),
        options=_options(body),
        stream=body.get("stream", False),
    )


def _check(body: Mapping[str, Any], model: Model) -> None:
    if not model.can("completion"):
        raise Refused(400, f"'{body['model']}' does not support the Messages API.")
    if body.get("tools") and not model.can("tools"):
        raise Refused(400, f"'{body['model']}' does not support tool use.")
    budget = body.get("thinking", {}).get("budget_tokens", 0)
    if budget >= body.get("max_tokens", budget + 1):
        raise Refused(400, "`max_tokens` must be greater than `thinking.budget_tokens`.")


def _options(body: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling options under Ollama's names."""
    names = {"max_tokens": "num_predict", "stop_sequences": "stop"}
    return {
        names.get(name, name): body[name]
        for name in ("temperature", "top_p", "top_k", "max_tokens", "stop_sequences")
        if name in body
    }


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool as chat completions write it; one of Anthropic's own has no schema."""
    described = {"description": tool["description"]} if tool.get("description") else {}
    schema = {"parameters": tool["input_schema"]} if "input_schema" in tool else {}
    return {"type": "function", "function": {"name": tool["name"], **described, **schema}}


def _system(given: str | Iterable[Mapping[str, Any]]) -> tuple[Message, ...]:
    text = _joined(given)
    return (Message("system", text),) if text else ()


def _messages(given: Iterable[Mapping[str, Any]]) -> tuple[Message, ...]:
    return tuple(message for one in given for message in _split(one["role"], one["content"]))


def _split(role: str, content: str | list[Mapping[str, Any]]) -> list[Message]:
    """One message as it came; results of tools stand in the user's, and are messages of their own here."""
    if isinstance(content, str):
        return [Message(role, content)]
    results = [
        Message("tool", _joined(block.get("content", "")), tool_call_id=block["tool_use_id"])
        for block in content
        if block["type"] == "tool_result"
    ]
    rest = [block for block in content if block["type"] != "tool_result"]
    return [*results, _message(role, rest)] if rest or not results else results


def _message(role: str, blocks: list[Mapping[str, Any]]) -> Message:
    return Message(
        role,
        content=_joined(blocks),
        thinking="".join(block["thinking"] for block in blocks if block["type"] == "thinking"),
        images=sum(block["type"] == "image" for block in blocks),
        tool_calls=tuple(
            ToolCall(block["name"], block["input"], block["id"]) for block in blocks if block["type"] == "tool_use"
        ),
    )


def _joined(content: str | Iterable[Mapping[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block["type"] == "text")
