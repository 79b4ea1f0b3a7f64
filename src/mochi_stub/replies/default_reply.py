"""Reply of a model without a script: a filled-in `format`, a summary, a tool result, or filler text and the echo.

A task of a chat UI names the JSON that it wants (`JSON format: {…}`); its answer is that object, filled in.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from mochi_stub.prompt import Prompt
from mochi_stub.replies.lorem import hash_sized, lorem, stable_hash
from mochi_stub.replies.schema_sample import schema_sample
from mochi_stub.reply import Part, Reasoning, Reply, Text

MAX_SENTENCE = 200
MAX_TOPICS = 5
_ASKS = re.compile(
    r"\bsummar(?:y|i[sz]e|i[sz]ing)\b.{0,120}\b(?:conversations?|chats?|dialogues?|discussions?|messages|history)\b",
    re.IGNORECASE | re.DOTALL,
)
_SPEAKER = r"^[\s>*\[-]*({}user|human|assistant|ai|model|tool)\b[\]*]*\s*:"
_TURN = re.compile(
    rf"{_SPEAKER.format('')}\**[ \t]*(.*?)(?={_SPEAKER.format('?:')}|^\s*</|\Z)",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
_SENTENCE = re.compile(r"(.+?[.!?])(?:\s|$)|(.+)")
_WORD = re.compile(r"[^\W\d_]{4,}")
_COMMON = {
    *("about", "also", "been", "could", "from", "have", "here", "into", "just", "like", "more", "need", "only", "that"),
    *("their", "them", "then", "there", "they", "this", "what", "when", "where", "which", "will", "with", "would"),
    *("your", "please", "some", "does", "were", "than", "should"),
}
AUTOCOMPLETE = {"9+10=": "THIS IS A TEST OF MINI-MEDIATOR'S AUTOCOMPLETE SYSTEM."}
EMOJI = ("😀", "😂", "😊", "🤔", "😢", "😡", "😱", "👍")
TITLE_WORDS = 5

_WANTED = re.compile(r"JSON format:\s*(?=\{)", re.IGNORECASE)
_HISTORY = re.compile(r"<chat_history>(.*?)</chat_history>", re.DOTALL)
_USER_LINE = re.compile(r"^\s*USER:\s*(.+?)\s*(?=^\s*[A-Z]+:|\Z)", re.DOTALL | re.MULTILINE | re.IGNORECASE)
_TEXT = re.compile(r"<text>(?!\{)(.*?)</text>", re.DOTALL)
_MESSAGE = re.compile(r"(?:Message|Query):\s*(.+)", re.DOTALL)
_TOOLS = re.compile(r"Available Tools:\s*(?=\[)")


def default_reply(prompt: Prompt) -> Reply:
    """Return the reply to a prompt; an empty one to an embedding request, whose vector depends on the model alone."""
    if prompt.operation == "embed":
        return Reply(rule="built-in: the vector of the text")
    thought = _echoing(Reasoning, prompt.user_text) if prompt.thinks and "\nReason:" in prompt.user_text else []
    rule, said = _default_parts(prompt)
    return Reply([*thought, *said], rule=f"built-in: {rule}")


def _default_parts(prompt: Prompt) -> tuple[str, list[Part]]:
    summary = _summarised(prompt)
    if prompt.format is not None:
        return "format", [Text(_json(_shaped(prompt, summary)))]
    if summary is not None:
        return "summary", [Text(f"{summary[0]}\n\nTopics: {', '.join(summary[1])}")]
    if prompt.after_tools:
        return "tool result", _echoing(Text, prompt.messages[-1].content)
    return "lorem and echo", _echoing(Text, prompt.user_text)


def is_summary_request(prompt: Prompt) -> bool:
    """Return whether a program hands over a conversation for a summary, so that it is not obeyed."""
    return _wants_summary(prompt, _system(prompt)) and bool(_turns(prompt))


def _echoing(kind: type[Text] | type[Reasoning], message: str) -> list[Part]:
    return [kind(hash_sized(message)), kind(f" {message}")] if message else [kind(hash_sized(message))]


def _shaped(prompt: Prompt, summary: tuple[str, list[str]] | None) -> Any:
    if not isinstance(prompt.format, dict):
        return {"response": f"{hash_sized(prompt.user_text)} {prompt.user_text}".rstrip()}
    made = schema_sample(prompt.format, stable_hash(prompt.user_text))
    if summary is None or not _has_summary(prompt.format) or not isinstance(made, dict):
        return made
    properties = prompt.format["properties"]
    longest, topics = properties["summary"].get("maxLength"), properties["topics"]
    longest_topic = topics["items"].get("maxLength") if isinstance(topics.get("items"), dict) else None
    kept = [topic[:longest_topic] for topic in summary[1][: topics.get("maxItems")]]
    return {**made, "summary": summary[0][:longest], "topics": kept}


def _summarised(prompt: Prompt) -> tuple[str, list[str]] | None:
    """Return a summary and its topics; None if the prompt wants none or has no conversation."""
    turns = _turns(prompt) if _wants_summary(prompt, _instructions(prompt)) else []
    if not turns:
        return None
    words = [word for _, text in turns for word in _WORD.findall(text.lower()) if word not in _COMMON]
    topics = [word for word, _ in Counter(words).most_common(MAX_TOPICS)]
    return " ".join(f"{speaker.capitalize()}: {_first_sentence(text)}" for speaker, text in turns), topics


def _wants_summary(prompt: Prompt, instructions: list[str]) -> bool:
    """Return whether the format or an instruction asks for a summary. Few contain the word, and the search is slow."""
    return _has_summary(prompt.format) or any("ummar" in one.lower() and _ASKS.search(one) for one in instructions)


def _has_summary(schema: Any) -> bool:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    wanted = [properties.get(name) for name in ("summary", "topics")] if isinstance(properties, dict) else []
    return [one.get("type") for one in wanted if isinstance(one, dict)] == ["string", "array"]


def _system(prompt: Prompt) -> list[str]:
    return [message.content for message in prompt.messages if message.role == "system"]


def _instructions(prompt: Prompt) -> list[str]:
    return [*_system(prompt), prompt.user_text]


def _turns(prompt: Prompt) -> list[tuple[str, str]]:
    """Return speakers and texts: those that an instruction quotes, else those of the messages before the last one."""
    for instruction in reversed(_instructions(prompt)):
        quoted = [(speaker, text.strip()) for speaker, text in _TURN.findall(instruction) if text.strip()]
        if quoted:
            return quoted
    before = prompt.messages[: max(prompt.last_user, 0)]
    return [(one.role, one.content) for one in before if one.role in ("user", "assistant") and one.content.strip()]


def _first_sentence(text: str) -> str:
    found = _SENTENCE.match(" ".join(text.split()))
    sentence = found[0].strip() if found else ""
    return sentence if len(sentence) <= MAX_SENTENCE else f"{sentence[:MAX_SENTENCE]}..."


def ui_task_reply(prompt: Prompt) -> str | None:
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
    try:
        return json.JSONDecoder().raw_decode(text, start)[0]
    except (json.JSONDecodeError, RecursionError):
        return None


def _emoji(topic: str) -> str:
    return EMOJI[stable_hash(topic) % len(EMOJI)]


def _filled(key: str, example: Any, text: str) -> Any:
    topic = _topic(text)
    if key == "text":
        texts = _TEXT.findall(text)
        begun = texts[-1].strip() if texts else ""
        return next((phrase for start, phrase in AUTOCOMPLETE.items() if begun.endswith(start)), lorem(TITLE_WORDS))
    if isinstance(example, list):
        words = re.findall(r"[^\W\d_]{3,}", topic) or ["Chat"]
        return [_one_of(key, index, topic, words) for index in range(len(example) or 1)]
    if not isinstance(example, str):
        return example
    return " ".join([_emoji(topic), *topic.split()[:TITLE_WORDS]]) if key == "title" else topic or lorem(TITLE_WORDS)


def _one_of(key: str, index: int, topic: str, words: list[str]) -> str:
    word = words[index % len(words)]
    if key == "tags":
        return word.capitalize() if index < len(words) else f"{words[0].capitalize()} {index + 1}"
    if key == "follow_ups":
        return f"What else about {word} ({index + 1})?"
    return f"{topic} {word}" if index else topic


def _topic(text: str) -> str:
    """Return the last words of the user in the quoted conversation, on one line."""
    histories = _HISTORY.findall(text)
    found = _USER_LINE.findall(histories[-1] if histories else text) or histories or _MESSAGE.findall(text) or [text]
    return " ".join(found[-1].replace("`", " ").split())[:200]


def _calls(tools: Any, topic: str) -> list[dict[str, Any]]:
    found = []
    for tool in tools if isinstance(tools, list) else ():
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        if isinstance(function, dict) and isinstance(name := function.get("name"), str) and name in topic:
            schema = function.get("parameters")
            made = schema_sample(schema, stable_hash(topic)) if isinstance(schema, dict) else {}
            found.append({"name": name, "parameters": made})
    return found
