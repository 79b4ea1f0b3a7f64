"""What a model says that nobody has scripted. Pure and deterministic.

A `format` is filled in, a conversation that stands to be summarised is, a tool's result is repeated. Else the model
answers with filler text, as long as the hash of what it was told says, and then repeats what it was told; a `Reason:`
line in the message makes it think first.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from mochi_stub.lorem import hash_sized, stable_hash
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Part, Reasoning, Reply, Text
from mochi_stub.schema import instance
from mochi_stub.summary import summarised, wants_summary


def unscripted(prompt: Prompt) -> Reply:
    """The reply to a prompt; an empty one to an embedding request, whose vector depends on the model alone."""
    if prompt.operation == "embed":
        return Reply(rule="built-in: the vector of the text")
    thought = _echoing(Reasoning, prompt.user_text) if prompt.thinks and "\nReason:" in prompt.user_text else []
    rule, said = _said(prompt)
    return Reply([*thought, *said], rule=f"built-in: {rule}")


def _said(prompt: Prompt) -> tuple[str, list[Part]]:
    summary = summarised(prompt)
    if prompt.format is not None:
        return "format", [Text(_dumps(_shaped(prompt, summary)))]
    if summary is not None:
        return "summary", [Text(f"{summary[0]}\n\nTopics: {', '.join(summary[1])}")]
    if after_tools(prompt):
        return "tool result", _echoing(Text, prompt.messages[-1].content)
    return "lorem and echo", _echoing(Text, prompt.user_text)


def after_tools(prompt: Prompt) -> bool:
    """Whether the prompt ends in the result of a tool."""
    return bool(prompt.messages) and prompt.messages[-1].role == "tool"


def says_no_more(reply: Reply, prompt: Prompt) -> bool:
    """Whether a scripted reply only calls tools, and these have answered: it would call for ever."""
    return bool(reply.tool_calls) and not reply.text and after_tools(prompt)


def without_answered_calls(reply: Reply, prompt: Prompt) -> Reply:
    """A scripted reply whose calls have been answered goes on without them."""
    if not reply.tool_calls or not after_tools(prompt):
        return reply
    contents = [part for part in reply.parts if isinstance(part, (Reasoning, Text))]
    return replace(reply, parts=contents, frames=None, rule=f"{reply.rule}, its calls answered")


def _shaped(prompt: Prompt, summary: tuple[str, list[str]] | None) -> Any:
    """A value that the format allows."""
    if not isinstance(prompt.format, dict):
        return {"response": f"{hash_sized(prompt.user_text)} {prompt.user_text}".rstrip()}
    made = instance(prompt.format, stable_hash(prompt.user_text))
    if summary is None or not wants_summary(prompt.format) or not isinstance(made, dict):
        return made
    return {**made, "summary": summary[0], "topics": summary[1]}


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _echoing(kind: type[Text] | type[Reasoning], told: str) -> list[Part]:
    """Filler text, then what was told, word for word and blank for blank."""
    return [kind(hash_sized(told)), kind(f" {told}")] if told else [kind(hash_sized(told))]
