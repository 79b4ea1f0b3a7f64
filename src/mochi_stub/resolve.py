"""Prompt to reply: what a model says that nobody has scripted. Pure and deterministic.

An instruction block in the latest user message is obeyed. Without one the model answers with filler text, as long as
the hash of what it was told says, and then repeats what it was told; a `Reason:` line in the message makes it think
first.
"""

from __future__ import annotations

from mochi_stub.instructions import rounds
from mochi_stub.lorem import hash_sized
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Part, Reasoning, Reply, Text


def resolve(prompt: Prompt) -> Reply:
    """The reply to a prompt; an empty one to an embedding request, whose vector depends on the model alone."""
    if prompt.operation == "embed":
        return Reply()
    planned = rounds(prompt.user_text, thinks=prompt.thinks, choices=prompt.choices)
    if planned is not None and _played(prompt) < len(planned):
        return Reply(planned[_played(prompt)])
    if prompt.messages and prompt.messages[-1].role == "tool":
        return Reply(_echoing(Text, prompt.messages[-1].content))
    return _minimal(prompt.user_text, prompt.thinks)


def _played(prompt: Prompt) -> int:
    """How many rounds of the instruction are over: each ended in tool calls and came back with their results."""
    return sum(bool(message.tool_calls) for message in prompt.messages[prompt.last_user + 1 :])


def _minimal(user_text: str, thinks: bool) -> Reply:
    reasoning = _echoing(Reasoning, user_text) if thinks and "\nReason:" in user_text else []
    return Reply([*reasoning, *_echoing(Text, user_text)])


def _echoing(kind: type[Text] | type[Reasoning], told: str) -> list[Part]:
    """Filler text, then what was told, word for word and blank for blank."""
    return [kind(hash_sized(told)), kind(f" {told}")] if told else [kind(hash_sized(told))]
