"""Selection of the reply to a prompt: by instruction block, configured turn, trigger, `_default`
or, if none applies, built-in rules.

An instruction block is JSON in a user message. It contains a list of entries, which form rounds. A
round is one reply of the model and ends after tool calls. If the API allows several choices in one
reply, the block has only one round, in which each entry is a choice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import orjson

from mochi_stub.config import Config, ConfiguredModel
from mochi_stub.config.entries import (
    EmbeddingResponse,
    ErrorResponse,
    GeneratedResponse,
    ReplySettings,
    Response,
)
from mochi_stub.prompt import Message, Prompt, ToolCall
from mochi_stub.replies import lorem, shortened, stable_hash
from mochi_stub.replies.built_in import default_reply, requests_automatic_summary
from mochi_stub.replies.tool_choice import Function, call_of, functions
from mochi_stub.reply import Choice, Cut, Failure, Part, Reasoning, Reply, Text, ToolCalls

Rounds: TypeAlias = "list[list[Part]]"
MAX_SHOWN = 60
MAX_WORDS = 1_000_000
NO_RESULT = "Done."
_START = "<|instruction_start|>"
_END = "<|instruction_end|>"


def with_requested_thinking(prompt: Prompt, reply: Reply) -> Reply:
    """Return the reply without reasoning, or with generated reasoning, if the request demands it.

    Recorded replies and errors stay unchanged.
    """
    if reply.frames is not None or _has_part(reply, Failure):
        return reply
    if prompt.requested_thinking is False:
        usage = replace(reply.usage, reasoning=None)
        return replace(reply, parts=_without(Reasoning, reply.parts), usage=usage)
    if not prompt.includes_reasoning or not prompt.requested_thinking:
        return reply
    if reply.reasoning or reply.text.startswith("<think>"):
        return reply
    count = 5 + stable_hash(prompt.user_text) % 16
    reasoning = Reasoning(lorem(count))
    return replace(reply, parts=[reasoning, *reply.parts])


def _has_part(reply: Reply, *kinds: type) -> bool:
    return any(isinstance(part, kinds) for part in reply.parts)


def _without(kind: type, parts: Iterable[Part]) -> list[Part]:
    return [part for part in parts if not isinstance(part, kind)]


def with_required_call(prompt: Prompt, reply: Reply) -> Reply:
    """Return the reply with a generated tool call instead of its text if the request requires a
    tool call.

    Recorded replies, replies with tool calls and replies that end early stay unchanged.
    """
    if not prompt.required_tools or reply.frames is not None or reply.tool_calls:
        return reply
    if reply.finish != "stop" or _has_part(reply, Failure, Cut):
        return reply
    tool = _next_tool(prompt)
    call = call_of(tool, prompt.user_text, complete=True)
    parts = _without(Text, reply.parts)
    parts.append(ToolCalls([call]))
    rule = f"{reply.rule}, with the required tool call"
    return replace(reply, parts=parts, rule=rule)


def _next_tool(prompt: Prompt) -> Function:
    called: set[str] = set()
    start = prompt.last_user_index + 1
    for message in prompt.messages[start:]:
        called.update(_call_names(message.tool_calls))
    tools = functions(prompt.required_tools)
    for tool in tools:
        if tool.name not in called:
            return tool
    return tools[-1]


def _call_names(calls: Iterable[ToolCall]) -> set[str]:
    return {call.name for call in calls}


def resolve(prompt: Prompt, config: Config | None = None, source: str = "") -> Reply:
    """Return the reply to a prompt: from its instruction block, from `config`, or the built-in
    reply.

    `source` is the name of the configured model, if the prompt has another one.
    """
    passed_over: list[str] = []
    model = None
    if config:
        model = config.find(source or prompt.model)
    reply = _block_reply(prompt, passed_over)
    configured = None
    if reply is None:
        configured = _configured_reply(prompt, model, passed_over)
        reply = configured
        if reply is None:
            built_in = default_reply(prompt)
            reply = with_requested_thinking(prompt, built_in)
        reply = with_required_call(prompt, reply)
    if model is not None and configured is None:
        reply = model.settings.applied_to(reply, model.model, prompt)
    return replace(reply, passed_over=tuple(passed_over))


def _block_reply(prompt: Prompt, passed_over: list[str]) -> Reply | None:
    """Return the current round of the latest instruction block, or None.

    If there is none, add the reason to `passed_over`. Embedding requests have no block and no
    reason.
    """
    if prompt.operation == "embed":
        return None
    if requests_automatic_summary(prompt):
        passed_over.append("instruction block: ignored in a request for a summary")
        return None
    index, rounds = _latest_block(prompt)
    if rounds is None:
        passed_over.append("instruction block: no valid block")
        return None
    later = prompt.messages[index + 1 :]
    ended = 0
    for message in later:
        if message.tool_calls:  # they end a round
            ended += 1
    applies = ended < len(rounds)
    if index == prompt.last_user_index:
        rule = "instruction block"
        problem = "all rounds have ended"
    else:
        rule = "instruction block of an earlier message"
        problem = "no valid block in the latest user message, and an earlier block has ended"
        applies = applies and _still_applies(rounds[0], later, prompt)
    if applies:
        return Reply(rounds[ended], rule=rule, sends_unoffered_calls=True)
    passed_over.append(f"instruction block: {problem}")
    return None


def _latest_block(prompt: Prompt) -> tuple[int, Rounds | None]:
    """Return the index and the rounds of the latest user message with a valid block, or -1 and
    None.
    """
    indices = range(prompt.last_user_index, -1, -1)
    if prompt.allows_choices:
        indices = indices[:1]
    for index in indices:
        message = prompt.messages[index]
        if message.role != "user":
            continue
        rounds = _rounds(message.content, prompt)
        if rounds is not None:
            return index, rounds
    return -1, None


def _still_applies(first_round: list[Part], later: Sequence[Message], prompt: Prompt) -> bool:
    """Return whether a block applies although the messages `later` contain another user message.

    It applies until the latest reply in `later` is a text: the user message can be a reminder of an
    agent program. After a text without earlier tool calls, which can be a plan, it applies if the
    request offers all tools of the first round.
    """
    has_calls = False
    ends_with_text = False
    for message in later:
        if message.tool_calls:
            has_calls = True
        if message.role == "assistant":
            ends_with_text = not message.tool_calls
    if not ends_with_text:
        return True
    if has_calls:
        return False
    names = _call_names(Reply(first_round).tool_calls)
    offered = {function.name for function in functions(prompt.tools)}
    return bool(names) and names <= offered


def _rounds(user_text: str, prompt: Prompt) -> Rounds | None:
    block = _parse_block(user_text)
    if block is None:
        return None
    try:
        entries = _entries(block, prompt.includes_reasoning)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None
    if not prompt.allows_choices or not entries:
        return _join_rounds(entries)
    parts: list[Part] = []
    for index, entry in enumerate(entries):
        parts += [Choice(index), *entry]
    return [parts]


def _parse_block(text: str) -> Any:
    _, _, rest = text.partition(_START)
    for end in re.finditer(re.escape(_END), rest):
        block = rest[: end.start()]
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(block)
    return None


def _entries(block: Mapping[str, Any], with_reasoning: bool) -> list[list[Part]]:
    label = block.get("id_message") or ""
    reasoning: list[Part] = []
    settings = block.get("reasoning")
    if settings is not None and settings.get("length") is not None:
        text = _labelled(label, settings)
        reasoning.append(Reasoning(text))
    entries: list[list[Part]] = []
    for entry in block["messages"]:
        parts: list[Part] = []
        if "tool_call" in entry:
            calls = list(map(_entry_call, entry["tool_call"]))
            parts.append(ToolCalls(calls))
        else:
            text = _labelled(label, entry["text_message"])
            if with_reasoning:
                parts += reasoning
            parts.append(Text(text))
        entries.append(parts)
    return entries


def _entry_call(entry: Mapping[str, Any]) -> ToolCall:
    name = entry["name"]
    arguments = entry.get("args", {})
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise TypeError("a tool_call entry needs a name and an object of args")
    return ToolCall(name, arguments)


def _join_rounds(entries: list[list[Part]]) -> Rounds:
    """Combine the entries of a block into rounds.

    Tool calls end a round. Blank lines separate the texts of a round.
    """
    current: list[Part] = []
    rounds = []
    for part in chain.from_iterable(entries):
        if isinstance(part, (Reasoning, Text)):
            kind = type(part)
            if any(isinstance(earlier, kind) for earlier in current):
                current.append(kind("\n\n"))
        current.append(part)
        if isinstance(part, ToolCalls):
            rounds.append(current)
            current = []
    if current:
        rounds.append(current)
    return rounds


def _labelled(label: str, message: Mapping[str, Any]) -> str:
    length = int(message["length"])
    count = max(0, min(length, MAX_WORDS))
    parts = [label, lorem(count), label]
    return " ".join(filter(None, parts))


class Candidate(NamedTuple):
    """Configured response that may apply to a prompt, with the name of its rule.

    `is_turn` states whether it is a reply of a recorded conversation.
    """

    rule: str
    response: Response
    is_turn: bool = False


def _configured_reply(
    prompt: Prompt, model: ConfiguredModel | None, passed_over: list[str]
) -> Reply | None:
    if model is None:
        passed_over.append("configuration: the model is not configured")
        return None
    answered_rule = ""
    for candidate in _candidates(prompt, model, passed_over):
        rule = candidate.rule
        if not _suits(candidate.response, prompt):
            passed_over.append(f"{rule}: not for {prompt.operation} requests")
            continue
        reply = _reply_of(candidate, prompt, model)
        if candidate.is_turn or not _is_answered(reply, prompt):
            return reply
        if reply.text:
            return _without_calls(reply)
        passed_over.append(f"{rule}: its tool calls already have results")
        answered_rule = answered_rule or rule
    if not answered_rule:
        return None
    reply = _reply_from_results(prompt)
    reply = model.settings.applied_to(reply, model.model, prompt)
    return replace(reply, rule=f"{answered_rule}, with the results of its tool calls")


def _reply_of(candidate: Candidate, prompt: Prompt, model: ConfiguredModel) -> Reply:
    response = candidate.response
    reply = response.reply(prompt, model.model)
    if not candidate.is_turn or prompt.requested_thinking is False:
        reply = with_requested_thinking(prompt, reply)
    if isinstance(response, ReplySettings):
        settings = response.merged_over(model.settings)
        reply = settings.applied_to(reply, model.model, prompt)
    if isinstance(response, GeneratedResponse):
        reply = response.timed(reply)
    return replace(reply, sends_unoffered_calls=True, rule=candidate.rule)


def _without_calls(reply: Reply) -> Reply:
    """Return the text of a reply. A client would run its tool calls again and again."""
    contents = []
    for part in reply.parts:
        if isinstance(part, (Reasoning, Text)):
            contents.append(part)
    rule = f"{reply.rule}, without its tool calls"
    return replace(reply, parts=contents, frames=None, rule=rule)


def _reply_from_results(prompt: Prompt) -> Reply:
    contents = [message.content for message in prompt.unanswered_results]
    text = "\n\n".join(filter(None, contents))
    reply = Reply.of(text or NO_RESULT)
    return with_requested_thinking(prompt, reply)


def _suits(response: Response, prompt: Prompt) -> bool:
    """Return whether a response is for the operation of the prompt. Errors are for all."""
    if isinstance(response, ErrorResponse):
        return True
    is_embedding = isinstance(response, EmbeddingResponse)
    return is_embedding == (prompt.operation == "embed")


def _is_answered(reply: Reply, prompt: Prompt) -> bool:
    """Return whether the prompt contains the results of the reply's tool calls.

    User messages can follow them. If none do, the results of any calls count.
    """
    if not reply.tool_calls or not prompt.unanswered_results:
        return False
    if prompt.after_tools:
        return True
    for message in reversed(prompt.messages):
        if message.role == "assistant":
            called = _call_names(message.tool_calls)
            return called >= _call_names(reply.tool_calls)
    return False


def _candidates(
    prompt: Prompt, model: ConfiguredModel, passed_over: list[str]
) -> Iterator[Candidate]:
    yield from _replies_of_turns(prompt, model)
    texts = _texts_for_triggers(prompt)
    for script in model.scripts:
        found = _triggered(script.triggers, texts)
        if found is None:
            count = len(script.triggers)
            passed_over.append(f"{script.name}: no match among its triggers ({count})")
            continue
        trigger, response = found
        shown = shortened(trigger, MAX_SHOWN)
        rule = f"trigger {shown!r}"
        if response.match != "exact":
            rule += f" ({response.match})"
        yield Candidate(f"{rule} of {script.name}", response)
    for script in model.scripts:
        if script.default is None:
            passed_over.append(f"{script.name}: no _default")
        else:
            yield Candidate(f"_default of {script.name}", script.default)


def _texts_for_triggers(prompt: Prompt) -> list[str]:
    """Return the latest user message. After a reminder, the message before it follows."""
    if not prompt.unanswered_results or prompt.after_tools:
        return [prompt.user_text]
    texts = []
    for message in prompt.messages:
        if message.role == "user":
            texts.append(message.content)
    latest = texts[-2:]
    latest.reverse()
    return latest


def _triggered(
    triggers: Mapping[str, Response], texts: Sequence[str]
) -> tuple[str, Response] | None:
    """Return the first trigger that matches the first text with a match, and its response."""
    for text in texts:
        for trigger, response in triggers.items():
            if response.applies_to(trigger, text):
                return trigger, response
    return None


def _replies_of_turns(prompt: Prompt, model: ConfiguredModel) -> Iterator[Candidate]:
    """Yield the next reply of the turn with the user's message, for each script with such a turn.

    The number of user messages decides between several turns with the message. It can match none,
    for example because the client has dropped old messages. Then the last of the turns applies.
    """
    roles = [message.role for message in prompt.messages]
    position = roles.count("user")
    after_user = roles[prompt.last_user_index + 1 :]
    ended = after_user.count("assistant")
    for script in model.scripts:
        numbers = []
        for number, (user, _) in enumerate(script.turns, 1):
            if user == prompt.user_text:
                numbers.append(number)
        if not numbers:
            continue
        turn = numbers[-1]
        if position in numbers:
            turn = position
        _, replies = script.turns[turn - 1]
        if ended < len(replies):
            rule = f"turn {turn} of {script.name}, reply {ended + 1}"
            yield Candidate(rule, replies[ended], is_turn=True)
