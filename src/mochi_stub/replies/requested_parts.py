"""Addition and removal of thinking and tool calls in replies, as the request demands."""

from __future__ import annotations

from dataclasses import replace

from mochi_stub.prompt import Prompt
from mochi_stub.replies.lorem import lorem, stable_hash
from mochi_stub.replies.tool_choice import Function, call_of, functions
from mochi_stub.reply import Cut, Failure, Reasoning, Reply, Text, ToolCalls

MIN_THINKING_WORDS, MAX_THINKING_WORDS = 5, 20


def with_requested_thinking(prompt: Prompt, reply: Reply) -> Reply:
    """Return the reply with the thinking that the request demands.

    If the request disables thinking, the reasoning is removed. If the request enables thinking and the reply has no
    reasoning, generated reasoning is added. Recorded replies and errors stay unchanged.
    """
    if reply.frames is not None or any(isinstance(part, Failure) for part in reply.parts):
        return reply
    if prompt.think is False:
        parts = [part for part in reply.parts if not isinstance(part, Reasoning)]
        return replace(reply, parts=parts, usage=replace(reply.usage, reasoning=None))
    if prompt.thinks and prompt.think and not reply.reasoning and not reply.text.startswith("<think>"):
        words = MIN_THINKING_WORDS + stable_hash(prompt.user_text) % (MAX_THINKING_WORDS - MIN_THINKING_WORDS + 1)
        return replace(reply, parts=[Reasoning(lorem(words)), *reply.parts])
    return reply


def with_required_call(prompt: Prompt, reply: Reply) -> Reply:
    """Return the reply with a generated tool call instead of its text if the request requires a tool call.

    Recorded replies, replies with tool calls and replies that end early stay unchanged.
    """
    ends_early = reply.finish != "stop" or any(isinstance(part, (Failure, Cut)) for part in reply.parts)
    if not prompt.required_tools or reply.frames is not None or reply.tool_calls or ends_early:
        return reply
    call = call_of(_next_tool(prompt), prompt.user_text, complete=True)
    parts = [part for part in reply.parts if not isinstance(part, Text)]
    return replace(reply, parts=[*parts, ToolCalls([call])], rule=f"{reply.rule}, with the required tool call")


def _next_tool(prompt: Prompt) -> Function:
    """Return the first required tool without a call since the last user message, or else the last required tool."""
    called = {call.name for message in prompt.messages[prompt.last_user + 1 :] for call in message.tool_calls}
    tools = functions(prompt.required_tools)
    return next((tool for tool in tools if tool.name not in called), tools[-1])
