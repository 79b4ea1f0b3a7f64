"""What chat UIs ask their task model for: title, tags, queries, follow-ups, an image prompt, an emoji, a function.

Open WebUI's prompts name the JSON that they want (`JSON format: {…}`); the answer is that object, bare, filled from the
conversation in the prompt. A user's text that stands to be completed is completed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from mochi_stub.lorem import lorem, stable_hash
from mochi_stub.prompt import Prompt
from mochi_stub.schema import instance

AUTOCOMPLETE = {"9+10=": "THIS IS A TEST OF MINI-MEDIATOR'S AUTOCOMPLETE SYSTEM."}
EMOJI = ("😀", "😂", "😊", "🤔", "😢", "😡", "😱", "👍")
TITLE_WORDS = 5

_WANTED = re.compile(r"JSON format:\s*(?=\{)", re.IGNORECASE)
_HISTORY = re.compile(r"<chat_history>(.*?)</chat_history>", re.DOTALL)
_USER_LINE = re.compile(r"^\s*USER:\s*(.+?)\s*(?=^\s*[A-Z]+:|\Z)", re.DOTALL | re.MULTILINE | re.IGNORECASE)
_TEXT = re.compile(r"<text>(?!\{)(.*?)</text>", re.DOTALL)
_MESSAGE = re.compile(r"(?:Message|Query):\s*(.+)", re.DOTALL)
_TOOLS = re.compile(r"Available Tools:\s*(?=\[)")


def task_answer(prompt: Prompt) -> str | None:
    """The answer to a task prompt; None where the prompt is none. A bare text to complete is one."""
    text = prompt.user_text
    whole = "\n".join(message.content for message in prompt.messages)
    if text in AUTOCOMPLETE:
        return AUTOCOMPLETE[text]
    if '"tool_calls"' in whole and _TOOLS.search(whole):
        return _json({"tool_calls": _calls(whole, _topic(text))})
    wanted = _wanted(whole) if "### Task:" in whole else None
    if wanted is not None:
        return _json({key: _filled(key, value, whole) for key, value in wanted.items()})
    if "emoji" in whole and "facial expression" in whole:
        return EMOJI[stable_hash(_topic(text)) % len(EMOJI)]
    return None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _wanted(text: str) -> Mapping[str, Any] | None:
    """The object that stands behind "JSON format:"."""
    for match in _WANTED.finditer(text):
        try:
            value, _ = json.JSONDecoder().raw_decode(text, match.end())
        except (json.JSONDecodeError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
    return None


def _filled(key: str, example: Any, text: str) -> Any:
    topic = _topic(text)
    words = re.findall(r"[^\W\d_]{3,}", topic) or ["Chat"]
    if key == "text":
        return _completion(text)
    if isinstance(example, list):
        return [_one_of(key, index, topic, words) for index in range(len(example) or 1)]
    if isinstance(example, bool) or not isinstance(example, str):
        return example
    if key == "title":
        return " ".join([EMOJI[stable_hash(topic) % len(EMOJI)], *topic.split()[:TITLE_WORDS]])
    return topic or lorem(TITLE_WORDS)


def _one_of(key: str, index: int, topic: str, words: list[str]) -> str:
    if key == "tags":
        return words[index % len(words)].capitalize() if index < len(words) else f"{words[0].capitalize()} {index + 1}"
    if key == "follow_ups":
        return f"What else about {words[index % len(words)]} ({index + 1})?"
    return topic if index == 0 else f"{topic} {words[index % len(words)]}"


def _completion(text: str) -> str:
    """What goes on from the text between the tags."""
    texts = _TEXT.findall(text)
    begun = texts[-1].strip() if texts else ""
    return next((phrase for start, phrase in AUTOCOMPLETE.items() if begun.endswith(start)), lorem(TITLE_WORDS))


def _topic(text: str) -> str:
    """What the conversation in the prompt is about: the last thing that the user said in it, on one line."""
    histories = _HISTORY.findall(text)
    said = _USER_LINE.findall(histories[-1] if histories else text)
    messages = _MESSAGE.findall(text)
    found = said[-1] if said else histories[-1] if histories else messages[-1] if messages else text
    return " ".join(found.replace("`", " ").split())[:200]


def _calls(text: str, topic: str) -> list[dict[str, Any]]:
    """Calls of the tools whose name is in what the user said, with no parameters but the query."""
    at = _TOOLS.search(text)
    try:
        tools, _ = json.JSONDecoder().raw_decode(text, at.end() if at else 0)
    except (json.JSONDecodeError, RecursionError):
        return []
    named = [tool.get("function", tool) for tool in tools if isinstance(tool, dict)]
    return [
        {"name": tool["name"], "parameters": _parameters(tool, topic)}
        for tool in named
        if isinstance(tool, dict) and isinstance(tool.get("name"), str) and tool["name"] in topic
    ]


def _parameters(tool: Mapping[str, Any], topic: str) -> Any:
    schema = tool.get("parameters")
    return instance(schema, stable_hash(topic)) if isinstance(schema, dict) else {}
