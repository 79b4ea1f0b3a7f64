"""What chat UIs ask their task model for: title, tags, queries, follow-ups, an image prompt, an emoji, a function.

Open WebUI's prompts name the JSON that they want (`JSON format: {…}`); the answer is that object, bare, filled from the
conversation in the prompt. A user's text that stands to be completed is completed.
"""

from __future__ import annotations

import json
import re
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
    """Return the answer to a task, or None if the prompt is none. A plain text that can be completed is a task."""
    text = prompt.user_text
    whole = "\n".join(message.content for message in prompt.messages)
    if text in AUTOCOMPLETE:
        return AUTOCOMPLETE[text]
    if '"tool_calls"' in whole and (tools := _TOOLS.search(whole)):
        return _json({"tool_calls": _calls(_decoded(whole, tools.end()), _topic(text))})
    if "### Task:" in whole:
        for match in _WANTED.finditer(whole):
            wanted = _decoded(whole, match.end())
            if isinstance(wanted, dict):
                return _json({key: _filled(key, value, whole) for key, value in wanted.items()})
    if "emoji" in whole and "facial expression" in whole:
        return _emoji(_topic(text))
    return None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _decoded(text: str, start: int) -> Any:
    """Return the JSON value that begins there, or None."""
    try:
        return json.JSONDecoder().raw_decode(text, start)[0]
    except (json.JSONDecodeError, RecursionError):
        return None


def _emoji(topic: str) -> str:
    return EMOJI[stable_hash(topic) % len(EMOJI)]


def _filled(key: str, example: Any, text: str) -> Any:
    topic = _topic(text)
    words = re.findall(r"[^\W\d_]{3,}", topic) or ["Chat"]
    if key == "text":
        return _completion(text)
    if isinstance(example, list):
        return [_one_of(key, index, topic, words) for index in range(len(example) or 1)]
    if not isinstance(example, str):
        return example
    return " ".join([_emoji(topic), *topic.split()[:TITLE_WORDS]]) if key == "title" else topic or lorem(TITLE_WORDS)


def _one_of(key: str, index: int, topic: str, words: list[str]) -> str:
    if key == "tags":
        return words[index % len(words)].capitalize() if index < len(words) else f"{words[0].capitalize()} {index + 1}"
    if key == "follow_ups":
        return f"What else about {words[index % len(words)]} ({index + 1})?"
    return topic if index == 0 else f"{topic} {words[index % len(words)]}"


def _completion(text: str) -> str:
    """Return what continues the text between the tags."""
    texts = _TEXT.findall(text)
    begun = texts[-1].strip() if texts else ""
    return next((phrase for start, phrase in AUTOCOMPLETE.items() if begun.endswith(start)), lorem(TITLE_WORDS))


def _topic(text: str) -> str:
    """Return the last words of the user in the quoted conversation, on one line."""
    histories = _HISTORY.findall(text)
    found = _USER_LINE.findall(histories[-1] if histories else text) or histories or _MESSAGE.findall(text) or [text]
    return " ".join(found[-1].replace("`", " ").split())[:200]


def _calls(tools: Any, topic: str) -> list[dict[str, Any]]:
    """Return calls of the tools that the user names."""
    found = []
    for tool in tools if isinstance(tools, list) else ():
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        if isinstance(function, dict) and isinstance(name := function.get("name"), str) and name in topic:
            schema = function.get("parameters")
            made = instance(schema, stable_hash(topic)) if isinstance(schema, dict) else {}
            found.append({"name": name, "parameters": made})
    return found
