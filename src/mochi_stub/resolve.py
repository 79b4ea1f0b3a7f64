"""Prompt to reply: an instruction block, else the model's triggers, else its `_default`, else what it says unscripted.

Pure and deterministic. Every reply says which rule made it and why those before it did not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from mochi_stub.config import Config, Script
from mochi_stub.instructions import rounds
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Failure, Part, Reply, ToolCalls
from mochi_stub.responses import NOTHING, Asked, Error, Response, Vector, in_manner, in_pace
from mochi_stub.summary import is_to_be_summarised
from mochi_stub.unscripted import says_no_more, unscripted, without_answered_calls

logger = logging.getLogger("mochi_stub")

MAX_SHOWN = 60


def resolve(prompt: Prompt, config: Config | None = None) -> Reply:
    """The reply to a prompt; an empty one to an embedding request for which nothing is configured."""
    passed_over: list[str] = []
    reply = _instructed(prompt, passed_over)
    if reply is None:
        configured = _configured(prompt, config, passed_over)
        if configured is not None:
            return configured
        reply = unscripted(prompt)
    manner = config.manner(prompt.model) if config else NOTHING
    if config is not None and manner is not NOTHING:
        reply = in_pace(reply, manner, config.chars_per_token(prompt.model), prompt)
    return replace(reply, passed_over=tuple(passed_over))


def resolver(
    config: Callable[[], Config | None], script: Callable[[Prompt], Reply | str | None] | None
) -> Callable[[Prompt], Reply]:
    """A function from prompt to reply: what the script says, and where it says nothing what the configuration does.

    A script that fails is a failure, which each wire tells in its own form.
    """

    def resolved(prompt: Prompt) -> Reply:
        try:
            return (_scripted(script(prompt)) if script else None) or resolve(prompt, config())
        except Exception as error:
            logger.exception("no reply for %s", prompt.model)
            return Reply([Failure(f"the stub failed: {error!r}")], rule="script")

    return resolved


def _scripted(said: Reply | str | None) -> Reply | None:
    reply = Reply.of(said) if isinstance(said, str) else said
    if reply is not None and not isinstance(reply, Reply):
        raise TypeError(f"a script gives a Reply, a text or None, not {reply!r}")
    return reply if reply is None or reply.rule else replace(reply, rule="script")


def _instructed(prompt: Prompt, passed_over: list[str]) -> Reply | None:
    if prompt.operation == "embed":
        return None
    if is_to_be_summarised(prompt):
        passed_over.append("instruction block: what is to be summarised instructs nobody")
        return None
    planned = rounds(prompt.user_text, thinks=prompt.thinks, choices=prompt.choices)
    if planned is not None and _played(prompt, prompt.last_user) < len(planned):
        return Reply(planned[_played(prompt, prompt.last_user)], rule="instruction block", unasked=True)
    if planned is None and not prompt.choices and (round_ := _reminded(prompt)) is not None:
        return Reply(round_, rule="instruction block of an earlier message", unasked=True)
    passed_over.append(
        "instruction block: none that can be read" if planned is None else "instruction block: all played"
    )
    return None


def _played(prompt: Prompt, asked: int) -> int:
    """How many rounds of an instruction are over: each ended in tool calls and came back with their results."""
    return sum(bool(message.tool_calls) for message in prompt.messages[asked + 1 :])


def _reminded(prompt: Prompt) -> list[Part] | None:
    """The next round of the latest instruction block, where the latest user message only reminds of it.

    Programs that tell a model again what to do put that behind the history as a user message. It is taken for such a
    reminder where nothing was said between, where results have just come back, or where the round calls tools that
    are offered and none was called yet. What a person says next is none of these.
    """
    for asked in range(prompt.last_user - 1, -1, -1):
        message = prompt.messages[asked]
        planned = rounds(message.content, thinks=prompt.thinks) if message.role == "user" else None
        if planned is None:
            continue
        played = _played(prompt, asked)
        answers = [said for said in prompt.messages[asked + 1 :] if said.role == "assistant"]
        if played < len(planned) and (
            not answers or answers[-1].tool_calls or (not played and _calls_offered(planned[0], prompt))
        ):
            return planned[played]
        return None
    return None


def _calls_offered(parts: list[Part], prompt: Prompt) -> bool:
    """Whether a round calls tools, and only such as the request offers."""
    functions = [tool.get("function", tool) for tool in prompt.tools]
    offered = [function.get("name") for function in functions if isinstance(function, Mapping)]
    called = [call.name for part in parts if isinstance(part, ToolCalls) for call in part.calls]
    return bool(called) and all(name in offered for name in called)


def _configured(prompt: Prompt, config: Config | None, passed_over: list[str]) -> Reply | None:
    """What the model's scripts say, triggers first, then the first `_default`."""
    lineage = config.lineage(prompt.model) if config else ()
    if config is None or not lineage:
        passed_over.append("configuration: says nothing of the model")
        return None
    for rule, response in _candidates(prompt, lineage, passed_over):
        if prompt.operation == "embed" and not isinstance(response, (Vector, Error)):
            passed_over.append(f"{rule}: is not for embeddings")
            continue
        if prompt.operation != "embed" and isinstance(response, Vector):
            passed_over.append(f"{rule}: is for embeddings only")
            continue
        asked = Asked(prompt, config.model(prompt.model), unscripted)
        reply = in_manner(response.reply(asked), response.manner.over(config.manner(prompt.model)), asked)
        if says_no_more(reply, prompt):
            passed_over.append(f"{rule}: its calls are answered")
            continue
        reply = replace(reply, unasked=True, rule=rule, passed_over=tuple(passed_over))
        return without_answered_calls(reply, prompt)
    return None


def _candidates(prompt: Prompt, lineage: tuple[Script, ...], passed_over: list[str]) -> Iterator[tuple[str, Response]]:
    text = prompt.user_text
    for script in lineage:
        if text in script.triggers:
            shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
            yield f"trigger {shown!r} of {script.name}", script.triggers[text]
        else:
            passed_over.append(f"{script.name}: the message is none of its {len(script.triggers)} triggers")
    for script in lineage:
        if script.default is not None:
            yield f"_default of {script.name}", script.default
        else:
            passed_over.append(f"{script.name}: has no _default")
