"""Schema of a request of the Responses API, and its items as the messages of a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mochi_stub.catalogue import Model
from mochi_stub.prompt import Message, Prompt, ToolCall
from mochi_stub.wire.fields import Where, anything, flag, mapping, number, schema, string, tagged, text_or, whole
from mochi_stub.wire.openai.request_schema import EFFORT, TEXT, arguments, reply_format, text_and_images
from mochi_stub.wire.provider_pipeline import function_tool, options

_CONTENT = text_or(
    [
        tagged(
            "type",
            {
                "input_text": TEXT,
                "output_text": TEXT,
                "input_image": {"image_url": string},
                "input_file": mapping,
                "refusal": {"refusal!": string},
            },
        )
    ]
)
_ITEMS = {
    "message": {"role!": ("user", "assistant", "system", "developer"), "content!": _CONTENT},
    "function_call": {"call_id!": string, "name!": string, "arguments!": string},
    "function_call_output": {"call_id!": string, "output!": _CONTENT},
    "reasoning": {"summary": [TEXT], "content": [TEXT]},
    "item_reference": mapping,
}
_FORMAT = {"text": {}, "json_object": {}, "json_schema": {"name!": string, "schema!": mapping, "strict": flag}}
_ANY_TOOL = schema({"type!": string})
_FUNCTION = schema({"name!": string, "parameters": mapping})


def _tool(value: Any, where: Where) -> Any:
    """Check a tool. A function needs a name; OpenAI's own tools are accepted as they are."""
    if _ANY_TOOL(value, where)["type"] == "function":
        _FUNCTION(value, where)
    return value


RESPONSE = schema(
    {
        "model!": string,
        "input!": text_or([tagged("type", _ITEMS, default="message")]),
        "instructions": string,
        "previous_response_id": string,
        "tools": [_tool],
        "tool_choice": anything,
        "parallel_tool_calls": flag,
        "max_output_tokens": whole(1),
        "temperature": number(0, 2),
        "top_p": number(0, 1),
        "reasoning": {"effort": EFFORT, "summary": string},
        "text": {"format": tagged("type", _FORMAT), "verbosity": string},
        "metadata": mapping,
        "store": flag,
        "stream": flag,
        "truncation": string,
    }
)


def prompt_of(body: Mapping[str, Any], model: Model) -> Prompt:
    """Return the request as a prompt for this model."""
    effort = body.get("reasoning", {}).get("effort")
    wanted = body.get("text", {}).get("format", {})
    functions = [
        function_tool(**{name: tool.get(name) for name in ("name", "description", "parameters", "strict")})
        for tool in body.get("tools", ())
        if tool["type"] == "function"
    ]
    return Prompt(
        model=body["model"],
        messages=_messages(body),
        tools=tuple(functions) if body.get("tool_choice") != "none" else (),
        think=effort,
        thinks=model.can("thinking") and effort != "none",
        format=reply_format(wanted.get("type"), wanted),
        options=options(body),
        stream=body.get("stream", False),
    )


def _messages(body: Mapping[str, Any]) -> tuple[Message, ...]:
    given = body["input"]
    found = [Message("system", body["instructions"])] if body.get("instructions") else []
    if isinstance(given, str):
        return (*found, Message("user", given))
    for item in given:
        _add(found, item)
    return tuple(found)


def _add(found: list[Message], item: Mapping[str, Any]) -> None:
    """Append an item. Consecutive items of the assistant become one message."""
    if item["type"] == "message":
        text, images = text_and_images(item["content"])
        role = "system" if item["role"] == "developer" else item["role"]
        _join(found, Message(role, text, images=images))
    elif item["type"] == "function_call":
        call = ToolCall(item["name"], arguments(item["arguments"]), item["call_id"])
        _join(found, Message("assistant", tool_calls=(call,)))
    elif item["type"] == "function_call_output":
        found.append(Message("tool", text_and_images(item["output"])[0], tool_call_id=item["call_id"]))
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
