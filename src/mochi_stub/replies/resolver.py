"""Selection of the reply to a prompt: by instruction block, trigger, `_default` or, if none applies, built-in rules.

An instruction block is JSON in a user message. It contains a list of entries, which form rounds. A round is one reply
of the model and ends after tool calls. If the API allows several choices in one reply, the block has only one round, in
which each entry is a choice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import orjson

from mochi_stub.config.loader import Config, ConfiguredModel
from mochi_stub.config.response_types import Response, with_pace, with_settings
from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.replies.default_reply import default_reply, is_summary_request
from mochi_stub.replies.lorem import lorem
from mochi_stub.replies.requested_parts import as_requested
from mochi_stub.reply import Choice, Failure, Part, Reasoning, Reply, Scripted, Text, ToolCalls, as_reply

logger = logging.getLogger("mochi_stub")

MAX_SHOWN = 60
MAX_WORDS = 1_000_000
MAX_NESTED = 50
NO_RESULT = "Done."
_START, _END = "<|instruction_start|>", "<|instruction_end|>"


def resolve(prompt: Prompt, config: Config | None = None) -> Reply:
    """Return the reply to a prompt: from its instruction block, from `config`, or the built-in reply."""
    passed_over: list[str] = []
    model = config.find(prompt.model) if config else None
    reply = _block_reply(prompt, passed_over)
    if reply is None:
        configured = _configured_reply(prompt, model, passed_over)
        if configured is not None:
            return as_requested(prompt, configured)
        reply = as_requested(prompt, default_reply(prompt))
    if model is not None:
        reply = with_pace(reply, model.settings, model.model, prompt)
    return replace(reply, passed_over=tuple(passed_over))


def resolver(
    config: Callable[[], Config | None], script: Callable[[Prompt], Scripted | None] | None
) -> Callable[[Prompt], Reply]:
    """Return a function that selects replies: by `script` or, if `script` returns None, by `resolve`."""

    def resolve_reply(prompt: Prompt) -> Reply:
        try:
            scripted = script(prompt) if script else None
            if scripted is None:
                return resolve(prompt, config())
            reply = as_reply(scripted)
            return replace(reply, rule=reply.rule or "script")
        except Exception as error:
            logger.exception("reply failed: model=%s", prompt.model)
            return Reply([Failure(f"the stub failed: {error!r}")], rule="script")

    return resolve_reply


def _block_reply(prompt: Prompt, passed_over: list[str]) -> Reply | None:
    if prompt.operation == "embed":
        return None
    if is_summary_request(prompt):
        passed_over.append("instruction block: ignored in a request for a summary")
        return None
    rounds = _rounds(prompt.user_text, thinks=prompt.thinks, choices=prompt.choices)
    if rounds is not None and (ended := _ended_rounds(prompt, prompt.last_user)) < len(rounds):
        return Reply(rounds[ended], rule="instruction block", unasked=True)
    if rounds is None and not prompt.choices and (parts := _reminder_round(prompt)) is not None:
        return Reply(parts, rule="instruction block of an earlier message", unasked=True)
    passed_over.append(f"instruction block: {'no valid block' if rounds is None else 'all rounds have ended'}")
    return None


def _ended_rounds(prompt: Prompt, index: int) -> int:
    """Return how many rounds of the instruction block in message `index` are complete.

    Each later message with tool calls completes a round.
    """
    return sum(bool(message.tool_calls) for message in prompt.messages[index + 1 :])


def _reminder_round(prompt: Prompt) -> list[Part] | None:
    """Return the next round of an earlier instruction block if the latest user message is a reminder, or else None.

    Agent programs add reminders as user messages. The latest user message is a reminder in three cases:
    - The model has not replied since the message with the block.
    - The last reply of the model has tool calls.
    - No round is complete, the first round calls tools, and the request offers all of these tools.
    """
    for index in range(prompt.last_user - 1, -1, -1):
        message = prompt.messages[index]
        rounds = _rounds(message.content, thinks=prompt.thinks) if message.role == "user" else None
        if rounds is not None:
            ended = _ended_rounds(prompt, index)
            answers = [later for later in prompt.messages[index + 1 :] if later.role == "assistant"]
            if ended >= len(rounds):
                return None
            offered = not ended and _calls_offered(rounds[0], prompt)
            return rounds[ended] if not answers or answers[-1].tool_calls or offered else None
    return None


def _calls_offered(parts: list[Part], prompt: Prompt) -> bool:
    functions = [tool.get("function", tool) for tool in prompt.tools]
    offered = [function.get("name") for function in functions if isinstance(function, Mapping)]
    called = [call.name for part in parts if isinstance(part, ToolCalls) for call in part.calls]
    return bool(called) and all(name in offered for name in called)


def _rounds(user_text: str, *, thinks: bool, choices: bool = False) -> list[list[Part]] | None:
    """Return the rounds of the instruction block in `user_text`, or None if the text has no valid block."""
    block = _parse_block(user_text)
    if block is None:
        return None
    try:
        entries = _entries(block, thinks)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None
    if choices and entries:
        return [[part for index, entry in enumerate(entries) for part in (Choice(index), *entry)]]
    return _join_rounds(entries)


def _parse_block(text: str) -> Any:
    """Return the parsed JSON of the first instruction block, or None. Its strings may contain nested blocks."""
    _, found, rest = text.partition(_START)
    end = rest.find(_END) if found else -1
    for _ in range(MAX_NESTED):
        if end < 0:
            return None
        try:
            return orjson.loads(rest[:end])
        except orjson.JSONDecodeError:
            end = rest.find(_END, end + 1)
    return None


def _entries(block: Mapping[str, Any], thinks: bool) -> list[list[Part]]:
    label = block.get("id_message") or ""
    reasoning = _labelled(label, block["reasoning"]) if block.get("reasoning") is not None else None
    entries: list[list[Part]] = []
    for entry in block["messages"]:
        if "tool_call" in entry:
            calls = [ToolCall(call["name"], call.get("args", {})) for call in entry["tool_call"]]
            if not all(isinstance(call.name, str) and isinstance(call.arguments, dict) for call in calls):
                raise TypeError("a tool_call entry needs a name and an object of args")
            entries.append([ToolCalls(calls)])
        else:
            text = Text(_labelled(label, entry["text_message"]))
            entries.append([Reasoning(reasoning), text] if reasoning is not None and thinks else [text])
    return entries


def _join_rounds(entries: list[list[Part]]) -> list[list[Part]]:
    """Combine the entries of a block into rounds. Tool calls end a round. Blank lines separate the texts of a round."""
    rounds: list[list[Part]] = [[]]
    for part in (part for entry in entries for part in entry):
        if isinstance(part, (Reasoning, Text)) and any(type(earlier) is type(part) for earlier in rounds[-1]):
            rounds[-1].append(type(part)("\n\n"))
        rounds[-1].append(part)
        if isinstance(part, ToolCalls):
            rounds.append([])
    return [parts for parts in rounds if parts]


def _labelled(label: str, message: Mapping[str, Any]) -> str:
    length = message["length"]
    if not isinstance(length, (int, float)) or isinstance(length, bool):
        raise TypeError("length must be a number")
    words = lorem(max(0, min(int(length), MAX_WORDS)))
    return " ".join(filter(None, [label, words, label]))


def _configured_reply(prompt: Prompt, model: ConfiguredModel | None, passed_over: list[str]) -> Reply | None:
    if model is None:
        passed_over.append("configuration: the model is not configured")
        return None
    answered = ""
    for rule, response in _candidates(prompt, model, passed_over):
        if prompt.operation == "embed" and response.kind not in ("embedding", "error"):
            passed_over.append(f"{rule}: no response to embedding requests")
            continue
        if prompt.operation != "embed" and response.kind == "embedding":
            passed_over.append(f"{rule}: only for embedding requests")
            continue
        reply = response.reply(prompt, model.model)
        reply = with_settings(reply, response.settings.merged_over(model.settings), model.model, prompt)
        reply = replace(reply, unasked=True, rule=rule, passed_over=tuple(passed_over))
        if not _is_answered(reply, prompt):
            return reply
        if reply.text:  # without tool calls, because the client would run them again and again
            contents = [part for part in reply.parts if isinstance(part, (Reasoning, Text))]
            return replace(reply, parts=contents, frames=None, rule=f"{rule}, without its tool calls")
        passed_over.append(f"{rule}: its tool calls already have results")
        answered = answered or rule
    return _reply_from_results(prompt, model, answered, passed_over) if answered else None


def _is_answered(reply: Reply, prompt: Prompt) -> bool:
    """Return whether the prompt already contains the results of the tool calls in `reply`.

    Reminders (user messages that an agent program adds) can follow the results.
    """
    if not reply.tool_calls or not prompt.results:
        return False
    called = next((message.tool_calls for message in reversed(prompt.messages) if message.role == "assistant"), ())
    return prompt.after_tools or {call.name for call in reply.tool_calls} <= {call.name for call in called}


def _reply_from_results(prompt: Prompt, model: ConfiguredModel, rule: str, passed_over: list[str]) -> Reply:
    text = "\n\n".join(filter(None, (message.content for message in prompt.results))) or NO_RESULT
    reply = Reply.of(text)
    reply = with_pace(reply, model.settings, model.model, prompt)
    return replace(reply, rule=f"{rule}, with the results of its tool calls", passed_over=tuple(passed_over))


def _candidates(prompt: Prompt, model: ConfiguredModel, passed_over: list[str]) -> Iterator[tuple[str, Response]]:
    for script in model.scripts:
        trigger = next((trigger for text in _trigger_texts(prompt) for trigger in script.matching(text)), None)
        if trigger is not None:
            how = "" if trigger.match == "exact" else f" ({trigger.match})"
            yield f"trigger {_shown(trigger.text)}{how} of {script.name}", trigger.response
        else:
            passed_over.append(f"{script.name}: no match among its triggers ({len(script.triggers)})")
    for script in model.scripts:
        if script.default is not None:
            yield f"_default of {script.name}", script.default
        else:
            passed_over.append(f"{script.name}: no _default")


def _trigger_texts(prompt: Prompt) -> list[str]:
    """Return the user messages to compare with the triggers, latest first.

    Usually, this is only the latest user message. If that message follows tool results, it is a reminder that an agent
    program added, and the user message before it is also returned.
    """
    texts = [message.content for message in prompt.messages if message.role == "user"]
    return texts[:-3:-1] if prompt.results and not prompt.after_tools else [prompt.user_text]


def _shown(text: str) -> str:
    return repr(text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}...")
