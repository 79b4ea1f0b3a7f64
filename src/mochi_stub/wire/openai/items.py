"""What a request of the Responses API may hold, and how its items become a prompt's messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mochi_stub.catalogue import Model
from mochi_stub.prompt import Message, Prompt, ToolCall
from mochi_stub.wire.fields import (
    ByKind,
    Check,
    ListOf,
    Number,
    Object,
    OneOf,
    Tagged,
    Where,
    Whole,
    anything,
    flag,
    mapping,
    string,
)
from mochi_stub.wire.openai.shapes import EFFORT, arguments, options, said

_TEXT: Check = Object({"text": string}, ("text",))
_CONTENT: Check = ByKind(
    {
        "string": string,
        "array": ListOf(
            Tagged(
                "type",
                {
                    "input_text": _TEXT,
                    "output_text": _TEXT,
                    "input_image": Object({"image_url": string}),
                    "input_file": mapping,
                    "refusal": Object({"refusal": string}, ("refusal",)),
                },
            )
        ),
    }
)
_ROLE: Check = OneOf(("user", "assistant", "system", "developer"))
_ITEM: Check = Tagged(
    "type",
    {
        "message": Object({"role": _ROLE, "content": _CONTENT}, ("role", "content")),
        "function_call": Object(
            {"call_id": string, "name": string, "arguments": string}, ("call_id", "name", "arguments")
        ),
        "function_call_output": Object({"call_id": string, "output": _CONTENT}, ("call_id", "output")),
        "reasoning": Object({"summary": ListOf(_TEXT), "content": ListOf(_TEXT)}),
        "item_reference": mapping,
    },
    default="message",
)
_FORMAT: Check = Tagged(
    "type",
    {
        "text": Object({}),
        "json_object": Object({}),
        "json_schema": Object({"name": string, "schema": mapping, "strict": flag}, ("name", "schema")),
    },
)


def _tool(value: Any, where: Where) -> Any:
    """A function, whose name is needed, or one of OpenAI's own tools, of which the stub has none."""
    tool = Object({"type": string}, ("type",))(value, where)
    if tool["type"] == "function":
        Object({"name": string, "parameters": mapping}, ("name",))(value, where)
    return value


RESPONSE: Check = Object(
    {
        "model": string,
        "input": ByKind({"string": string, "array": ListOf(_ITEM)}),
        "instructions": string,
        "previous_response_id": string,
        "tools": ListOf(_tool),
        "tool_choice": anything,
        "parallel_tool_calls": flag,
        "max_output_tokens": Whole(1),
        "temperature": Number(0, 2),
        "top_p": Number(0, 1),
        "reasoning": Object({"effort": EFFORT, "summary": string}),
        "text": Object({"format": _FORMAT, "verbosity": string}),
        "metadata": mapping,
        "store": flag,
        "stream": flag,
        "truncation": string,
    },
    ("model", "input"),
)


def prompt_of(body: Mapping[str, Any], model: Model) -> Prompt:
    """The request as a prompt for this model."""
    effort = body.get("reasoning", {}).get("effort")
    return Prompt(
        model=body["model"],
        messages=_messages(body),
        tools=tuple(map(_function, _functions(body))) if body.get("tool_choice") != "none" else (),
        think=effort,
        thinks=model.can("thinking") and effort != "none",
        format=_format(body.get("text", {}).get("format", {})),
        options=options(body, body.get("max_output_tokens")),
        stream=body.get("stream", False),
    )


def _functions(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [tool for tool in body.get("tools", ()) if tool["type"] == "function"]


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool as chat completions write it."""
    names = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": {name: tool[name] for name in names if tool.get(name) is not None}}


def _format(wanted: Mapping[str, Any]) -> Any:
    """ "json", a schema, or None."""
    if wanted.get("type") == "json_schema":
        return wanted["schema"]
    return "json" if wanted.get("type") == "json_object" else None


def _messages(body: Mapping[str, Any]) -> tuple[Message, ...]:
    given = body["input"]
    found = [Message("system", body["instructions"])] if body.get("instructions") else []
    if isinstance(given, str):
        return (*found, Message("user", given))
    for item in given:
        _add(found, item)
    return tuple(found)


def _add(found: list[Message], item: Mapping[str, Any]) -> None:
    """One item more; what the model said and did in one go is one message."""
    if item["type"] == "message":
        text, images = said(item["content"])
        role = "system" if item["role"] == "developer" else item["role"]
        _join(found, Message(role, text, images=images))
    elif item["type"] == "function_call":
        call = ToolCall(item["name"], arguments(item["arguments"]), item["call_id"])
        _join(found, Message("assistant", tool_calls=(call,)))
    elif item["type"] == "function_call_output":
        found.append(Message("tool", said(item["output"])[0], tool_call_id=item["call_id"]))
    elif item["type"] == "reasoning":
        parts = item.get("content") or item.get("summary", [])
        _join(found, Message("assistant", thinking="\n".join(part["text"] for part in parts)))


def _join(found: list[Message], new: Message) -> None:
    last = found[-1] if found else None
    if last is None or last.role != "assistant" or new.role != "assistant" or (last.content and new.content):
        found.append(new)
        return
    found[-1] = Message(
        "assistant",
        content=last.content or new.content,
        thinking=last.thinking or new.thinking,
        tool_calls=(*last.tool_calls, *new.tool_calls),
    )
