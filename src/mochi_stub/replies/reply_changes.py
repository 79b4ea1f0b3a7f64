"""Changes of a reply: the thinking and the tool calls that the request demands, and the stream settings."""

from __future__ import annotations

from dataclasses import replace

from mochi_stub.config.entries import STREAM, ReplySettings
from mochi_stub.models.catalogue import Model
from mochi_stub.prompt import Prompt
from mochi_stub.replies.chunks import chunked
from mochi_stub.replies.seeded_values import lorem, stable_hash
from mochi_stub.replies.tool_choice import Function, call_of, functions
from mochi_stub.reply import Cut, Failure, Pace, Part, Pause, Reasoning, Reply, Text, ToolCalls

MIN_THINKING_WORDS, MAX_THINKING_WORDS = 5, 20
CHUNK_SIZES: dict[str, int | None] = {"words": None, "token": 4, "chunky": 40}


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


def with_settings(reply: Reply, settings: ReplySettings, model: Model, prompt: Prompt) -> Reply:
    """Return the reply with all stream settings applied: chunk size, speed, pause, premature end and error."""
    if not any(getattr(settings, name) is not None for name in STREAM):
        return reply
    reply = replace(with_pace(reply, settings, model, prompt), frames=None)
    if settings.pause:
        reply = _insert(reply, settings.pause.after, Pause(settings.pause.seconds))
    if settings.cut_after is not None:
        reply = _insert(reply, settings.cut_after, Cut())
    return _insert(reply, settings.fail.after, settings.fail.failure) if settings.fail else reply


def with_pace(reply: Reply, settings: ReplySettings, model: Model, prompt: Prompt) -> Reply:
    """Return the reply with the chunk size, speed, jitter and delay of the settings."""
    if not any((settings.profile, settings.tokens_per_second, settings.jitter, settings.delay)):
        return reply
    size, seed = CHUNK_SIZES[settings.profile or "words"], stable_hash(prompt.user_text)
    pace = Pace(size, jitter=settings.jitter or 0.0, seed=seed, delay=settings.delay or 0.0)
    rate = settings.tokens_per_second
    return replace(reply, pace=replace(pace, characters_per_second=rate * model.chars_per_token) if rate else pace)


def _insert(reply: Reply, count: int, inserted: Part) -> Reply:
    """Insert a part after the first `count` chunks of the reply, or at its end if it has fewer chunks."""
    parts: list[Part] = []
    for index, part in enumerate(reply.parts):
        if not isinstance(part, (Reasoning, Text)):
            parts.append(part)
            continue
        chunks = chunked(part.content, reply.pace)
        if len(chunks) >= count:
            before, after = (replace(part, content=content) for content in (chunks[:count], chunks[count:]))
            return replace(reply, parts=[*parts, before, inserted, after, *reply.parts[index + 1 :]])
        count -= len(chunks)
        parts.append(replace(part, content=chunks))
    return replace(reply, parts=[*parts, inserted])
