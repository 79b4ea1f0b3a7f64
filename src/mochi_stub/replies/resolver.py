"""Resolution of a prompt to a reply: instruction block, triggers, `_default`, then the unscripted reply.

Every reply names its rule, and why the rules before it did not apply. An instruction block becomes a list of rounds.
A round is one reply and ends after its tool calls. On a wire with choices the only round has one choice for each entry.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import orjson

from mochi_stub.config.loader import Config, ConfiguredModel
from mochi_stub.config.response_types import ErrorResponse, Response, VectorResponse, reply_to, with_pace, with_settings
from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.replies.default_reply import default_reply, is_summary_request
from mochi_stub.replies.lorem import lorem
from mochi_stub.reply import Choice, Failure, Part, Reasoning, Reply, Text, ToolCalls

logger = logging.getLogger("mochi_stub")

MAX_SHOWN = 60
MAX_WORDS = 1_000_000
MAX_NESTED = 50
_START, _END = "<|instruction_start|>", "<|instruction_end|>"


def resolve(prompt: Prompt, config: Config | None = None) -> Reply:
    """Return the reply to a prompt; an empty one to an embedding request for which nothing is configured."""
    passed_over: list[str] = []
    model = config.find(prompt.model) if config else None
    reply = _instructed(prompt, passed_over)
    if reply is None:
        configured = _configured(prompt, model, passed_over)
        if configured is not None:
            return configured
        reply = default_reply(prompt)
    if model is not None:
        reply = with_pace(reply, model.settings, model.model, prompt)
    return replace(reply, passed_over=tuple(passed_over))


def resolver(
    config: Callable[[], Config | None], script: Callable[[Prompt], Reply | str | None] | None
) -> Callable[[Prompt], Reply]:
    """Return a function from prompt to reply: that of the script or, if it returns None, of the configuration.

    An exception in the script becomes a `Failure`.
    """

    def resolved(prompt: Prompt) -> Reply:
        try:
            reply = script(prompt) if script else None
            if reply is None:
                return resolve(prompt, config())
            if isinstance(reply, str):
                reply = Reply.of(reply)
            elif not isinstance(reply, Reply):
                raise TypeError(f"a script gives a Reply, a text or None, not {reply!r}")
            return replace(reply, rule=reply.rule or "script")
        except Exception as error:
            logger.exception("no reply for %s", prompt.model)
            return Reply([Failure(f"the stub failed: {error!r}")], rule="script")

    return resolved


def _instructed(prompt: Prompt, passed_over: list[str]) -> Reply | None:
    if prompt.operation == "embed":
        return None
    if is_summary_request(prompt):
        passed_over.append("instruction block: what is to be summarised instructs nobody")
        return None
    planned = _rounds(prompt.user_text, thinks=prompt.thinks, choices=prompt.choices)
    played = _played(prompt, prompt.last_user)
    if planned is not None and played < len(planned):
        return Reply(planned[played], rule="instruction block", unasked=True)
    if planned is None and not prompt.choices and (reminded := _reminded(prompt)) is not None:
        return Reply(reminded, rule="instruction block of an earlier message", unasked=True)
    passed_over.append(f"instruction block: {'none that can be read' if planned is None else 'all played'}")
    return None


def _played(prompt: Prompt, asked: int) -> int:
    """Return how many rounds of an instruction are over; each one ended in tool calls."""
    return sum(bool(message.tool_calls) for message in prompt.messages[asked + 1 :])


def _reminded(prompt: Prompt) -> list[Part] | None:
    """Return the next round of the latest instruction block if the latest user message only repeats instructions.

    Agent programs send such reminders behind the history. A message is a reminder if there was no answer in between,
    if tool results have just come back, or if the first round calls only offered tools and was not played.
    """
    for asked in range(prompt.last_user - 1, -1, -1):
        message = prompt.messages[asked]
        planned = _rounds(message.content, thinks=prompt.thinks) if message.role == "user" else None
        if planned is not None:
            played = _played(prompt, asked)
            answers = [said for said in prompt.messages[asked + 1 :] if said.role == "assistant"]
            if played >= len(planned):
                return None
            offered = not played and _calls_offered(planned[0], prompt)
            return planned[played] if not answers or answers[-1].tool_calls or offered else None
    return None


def _calls_offered(parts: list[Part], prompt: Prompt) -> bool:
    functions = [tool.get("function", tool) for tool in prompt.tools]
    offered = [function.get("name") for function in functions if isinstance(function, Mapping)]
    called = [call.name for part in parts if isinstance(part, ToolCalls) for call in part.calls]
    return bool(called) and all(name in offered for name in called)


def _rounds(user_text: str, *, thinks: bool, choices: bool = False) -> list[list[Part]] | None:
    """Return the replies that a message requests, or None if it has no valid block."""
    plan = _parse_instructions(user_text)
    if plan is None:
        return None
    try:
        entries = _entries(plan, thinks)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return None
    if choices and entries:
        return [[part for index, entry in enumerate(entries) for part in (Choice(index), *entry)]]
    return _in_turn(entries)


def _parse_instructions(text: str) -> Any:
    """Return the JSON of the first block. Its strings may contain other blocks, meant for another model."""
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


def _entries(plan: Mapping[str, Any], thinks: bool) -> list[list[Part]]:
    label = plan.get("id_message") or ""
    thought = _labelled(label, plan["reasoning"]) if plan.get("reasoning") is not None else None
    found: list[list[Part]] = []
    for entry in plan["messages"]:
        if "tool_call" in entry:
            calls = [ToolCall(call["name"], call.get("args", {})) for call in entry["tool_call"]]
            if not all(isinstance(call.name, str) and isinstance(call.arguments, dict) for call in calls):
                raise TypeError("a tool_call entry needs a name and an object of args")
            found.append([ToolCalls(calls)])
        else:
            text = Text(_labelled(label, entry["text_message"]))
            found.append([Reasoning(thought), text] if thought is not None and thinks else [text])
    return found


def _in_turn(entries: list[list[Part]]) -> list[list[Part]]:
    """Join the entries up to each tool call. A second text or reasoning of a round is set off by a blank line."""
    found: list[list[Part]] = [[]]
    for part in (part for entry in entries for part in entry):
        if isinstance(part, (Reasoning, Text)) and any(type(earlier) is type(part) for earlier in found[-1]):
            found[-1].append(type(part)("\n\n"))
        found[-1].append(part)
        if isinstance(part, ToolCalls):
            found.append([])
    return [parts for parts in found if parts]


def _labelled(label: str, message: Mapping[str, Any]) -> str:
    length = message["length"]
    if not isinstance(length, (int, float)) or isinstance(length, bool):
        raise TypeError("a length is a number")
    words = lorem(max(0, min(int(length), MAX_WORDS)))
    return " ".join(filter(None, [label, words, label]))


def _configured(prompt: Prompt, model: ConfiguredModel | None, passed_over: list[str]) -> Reply | None:
    if model is None:
        passed_over.append("configuration: says nothing of the model")
        return None
    for rule, response in _candidates(prompt.user_text, model, passed_over):
        if prompt.operation == "embed" and not isinstance(response, (VectorResponse, ErrorResponse)):
            passed_over.append(f"{rule}: is not for embeddings")
            continue
        if prompt.operation != "embed" and isinstance(response, VectorResponse):
            passed_over.append(f"{rule}: is for embeddings only")
            continue
        made = reply_to(prompt, response, model.model)
        reply = with_settings(made, response.settings.merged_over(model.settings), model.model, prompt)
        reply = replace(reply, unasked=True, rule=rule, passed_over=tuple(passed_over))
        if not reply.tool_calls or not prompt.after_tools:
            return reply
        if reply.text:  # without the answered calls, or the client would call for ever
            contents = [part for part in reply.parts if isinstance(part, (Reasoning, Text))]
            return replace(reply, parts=contents, frames=None, rule=f"{rule}, its calls answered")
        passed_over.append(f"{rule}: its calls are answered")
    return None


def _candidates(text: str, model: ConfiguredModel, passed_over: list[str]) -> Iterator[tuple[str, Response]]:
    shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
    for script in model.scripts:
        if text in script.triggers:
            yield f"trigger {shown!r} of {script.name}", script.triggers[text]
        else:
            passed_over.append(f"{script.name}: the message is none of its {len(script.triggers)} triggers")
    for script in model.scripts:
        if script.default is not None:
            yield f"_default of {script.name}", script.default
        else:
            passed_over.append(f"{script.name}: has no _default")
