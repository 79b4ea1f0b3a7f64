"""Thinking and tool calls that a request demands, added to configured and built-in replies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.replies.lorem import lorem, stable_hash
from mochi_stub.replies.schema_sample import schema_sample
from mochi_stub.reply import Cut, Failure, Reasoning, Reply, Text, ToolCalls

MIN_THINKING_WORDS, MAX_THINKING_WORDS = 5, 20
_NUMBER = re.compile(r"(?<![\w.])-?\d{1,15}(?:\.\d{1,15})?(?!\w)")
_PLAIN = {"type", "title", "description", "default"}
"""Keywords of a schema that permits every number of its type."""


def as_requested(prompt: Prompt, reply: Reply) -> Reply:
    """Return the reply with the thinking and the tool call that the request demands.

    - If the request disables thinking, the reasoning is removed.
    - If the request enables thinking, a reply without reasoning gets some.
    - If the request requires a tool call, a call replaces the text of a reply without calls.

    Error replies, replies that break off and recorded replies stay unchanged.
    """
    if reply.frames is not None or not any(isinstance(part, (Text, ToolCalls)) for part in reply.parts):
        return reply
    if prompt.think is False:
        parts = [part for part in reply.parts if not isinstance(part, Reasoning)]
        reply = replace(reply, parts=parts, usage=replace(reply.usage, reasoning=None))
    elif prompt.thinks and prompt.think and not reply.reasoning and not reply.text.startswith("<think>"):
        reply = replace(reply, parts=[Reasoning(_thinking(prompt.user_text)), *reply.parts])
    return _with_required_call(prompt, reply)


def sample_call(tool: Mapping[str, Any], text: str) -> ToolCall:
    """Return a call of a tool with arguments that are valid for its schema.

    Numbers of `text` become the arguments for parameters that permit every number. The other arguments are generated.
    """
    function = tool.get("function", tool)
    parameters = function.get("parameters")
    schema = parameters if isinstance(parameters, Mapping) else {}
    arguments = schema_sample(schema, stable_hash(text))
    return ToolCall(function.get("name", ""), _with_numbers(arguments, schema, text))


def _thinking(text: str) -> str:
    return lorem(MIN_THINKING_WORDS + stable_hash(text) % (MAX_THINKING_WORDS - MIN_THINKING_WORDS + 1))


def _with_required_call(prompt: Prompt, reply: Reply) -> Reply:
    ends_early = reply.finish != "stop" or any(isinstance(part, (Failure, Cut)) for part in reply.parts)
    if not prompt.required_tools or reply.tool_calls or ends_early:
        return reply
    call = sample_call(_next_tool(prompt), prompt.user_text)
    parts = [part for part in reply.parts if not isinstance(part, Text)]
    return replace(reply, parts=[*parts, ToolCalls([call])], rule=f"{reply.rule}, with the required tool call")


def _next_tool(prompt: Prompt) -> Mapping[str, Any]:
    """Return the first required tool without a call since the last user message, or else the last required tool."""
    later = prompt.messages[prompt.last_user + 1 :]
    called = {call.name for message in later for call in message.tool_calls}
    tools = prompt.required_tools
    return next((tool for tool in tools if tool.get("function", tool).get("name") not in called), tools[-1])


def _with_numbers(arguments: Any, schema: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Replace arguments by numbers of the text. Arguments that are no object become an empty object."""
    filled = dict(arguments) if isinstance(arguments, Mapping) else {}
    properties, numbers = schema.get("properties"), [float(found) for found in _NUMBER.findall(text)]
    for name, parameter in properties.items() if isinstance(properties, Mapping) else ():
        if not isinstance(parameter, Mapping) or not parameter.keys() <= _PLAIN or name not in filled:
            continue
        kind = parameter.get("type")
        fitting = [number for number in numbers if kind == "number" or (kind == "integer" and number.is_integer())]
        if fitting:
            numbers.remove(fitting[0])
            filled[name] = int(fitting[0]) if fitting[0].is_integer() else fitting[0]
    return filled
