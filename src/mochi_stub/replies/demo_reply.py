"""Replies of the demo model: short sentences, calls of the tools that a message names, and plans of an agent."""

from __future__ import annotations

import re

from mochi_stub.prompt import Prompt
from mochi_stub.replies.default_reply import default_reply, requests_summary
from mochi_stub.replies.tool_choice import Function, call_of, functions, functions_to_call
from mochi_stub.reply import Reply

MAX_QUOTED = 80
MAX_RESULT = 400
MAX_LISTED = 3
PLAN = "Plan: "
_PLANNING = re.compile(r"\bplan\b", re.IGNORECASE)
_UNKNOWN_TOOL = re.compile(
    r"\b(?:use|call|run|with|ask)\s+(?:the\s+)?(?:tool\s+|agent\s+)?`?(\w+_\w+|agent)\b", re.IGNORECASE
)
_SENTENCES = (  # patterns of messages, with the reply to each
    (r"\b(?:thanks|thank you)\b", "You are welcome!"),
    (r"^\W*(?:bye|goodbye|good night|see you)\b", "Goodbye! It was nice to talk to you."),
    (
        r"\b(?:who|what) are you\b|\bwhat can you do\b|\byour name\b|^\W*help\b",
        "I am mochi-demo, a simulated model for tests and first steps. {abilities}",
    ),
    (
        r"^\W*(?:hi|hello|hey|good (?:morning|afternoon|evening))\b",
        "Hello! I am mochi-demo, a simulated model. {abilities}",
    ),
    (r"\?\W*$", "You asked: “{message}” A real model can answer that. I am only a demo. {abilities}"),
    (r"", "You wrote: “{message}” I am only a demo and cannot say more about it. {abilities}"),
)


def demo_reply(prompt: Prompt) -> Reply:
    """Return the reply of the demo model to a prompt."""
    if prompt.operation == "embed" or prompt.format is not None or requests_summary(prompt):
        return default_reply(prompt)
    task, plans = _task(prompt)
    offered = functions(prompt.tools)
    named = functions_to_call(functions(prompt.required_tools) or offered, task)
    reasoning = f"The user wrote: {_quoted(task)}" if prompt.think else ""
    if plans:
        return Reply.of(_plan(task, named), reasoning=reasoning)
    if prompt.results:
        return Reply.of(_answer_from_results(prompt), reasoning=reasoning)
    if named:
        calls = [call_of(function, task) for function in named]
        return Reply.of(reasoning=reasoning, tool_calls=calls)
    return Reply.of(_sentence(task, offered), reasoning=reasoning)


def _task(prompt: Prompt) -> tuple[str, bool]:
    """Return the message to reply to, and whether the reply is a plan.

    A program that runs an agent sends the instruction of the agent, then a request for a plan, and later a request to
    carry out the plan. For both requests, the message to reply to is the instruction.
    """
    users = [index for index, message in enumerate(prompt.messages) if message.role == "user"]
    if len(users) > 1 and _PLANNING.search(prompt.user_text):
        before = prompt.messages[users[-2]].content
        between = prompt.messages[users[-2] + 1 : users[-1]]
        if not between:
            return before, True
        if between[0].role == "assistant" and between[0].content.startswith(PLAN):
            return before, False
    return prompt.user_text, False


def _plan(task: str, named: list[Function]) -> str:
    if named:
        names = [function.name for function in named]
    else:  # a request for a plan can offer no tools
        names = list(dict.fromkeys(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", task)))
    if names:
        return f"{PLAN}I call {_listed(names)} and report the result."
    return f"{PLAN}I answer “{_quoted(task)}” without tools."


def _answer_from_results(prompt: Prompt) -> str:
    called = [call for message in prompt.messages for call in message.tool_calls][-len(prompt.results) :]
    names = [call.name for call in called]
    sentences = []
    for index, result in enumerate(prompt.results):
        name = result.tool_name or (names[index] if index < len(names) else "") or "the tool"
        text = " ".join(result.content.split())
        text = text if len(text) <= MAX_RESULT else f"{text[:MAX_RESULT]}..."
        sentences.append(f"The result of {name} is: {text or 'nothing'}")
    return "\n".join(sentences)


def _sentence(message: str, offered: list[Function]) -> str:
    unknown = _UNKNOWN_TOOL.search(message)
    if unknown:
        return f"I cannot call {unknown[1]}, because this chat does not offer it. {_abilities(offered)}"
    text = next(reply for pattern, reply in _SENTENCES if re.search(pattern, message, re.IGNORECASE))
    return text.format(message=_quoted(message), abilities=_abilities(offered))


def _abilities(offered: list[Function]) -> str:
    if not offered:
        return "Enable a tool and name it in a message: then I call it."
    names = [tool.name for tool in offered]
    shown = [*names[:MAX_LISTED], f"{len(names) - MAX_LISTED} more"] if len(names) > MAX_LISTED + 1 else names
    return f"Name one of my tools in a message, and I call it: {_listed(shown)}."


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _quoted(message: str) -> str:
    text = " ".join(message.split())
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}..."
