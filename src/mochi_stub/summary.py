"""Summaries of conversations, made of the conversation: the first sentence of each turn, and the words used most."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from mochi_stub.prompt import Message, Prompt

MAX_SENTENCE = 200
MAX_TOPICS = 5
_ASKS = re.compile(
    r"\bsummar(?:y|i[sz]e|i[sz]ing)\b.{0,120}\b(?:conversations?|chats?|dialogues?|discussions?|messages|history)\b",
    re.IGNORECASE | re.DOTALL,
)
_SPEAKER = r"^[\s>*\[-]*({})\b[\]*]*\s*:"
_SPEAKERS = "user|human|assistant|ai|model|tool"
_TURN = re.compile(
    rf"{_SPEAKER.format(_SPEAKERS)}\**[ \t]*(.*?)(?={_SPEAKER.format(f'?:{_SPEAKERS}')}|^\s*</|\Z)",
    re.IGNORECASE | re.MULTILINE | re.DOTALL,
)
_SENTENCE = re.compile(r"(.+?[.!?])(?:\s|$)|(.+)")
_WORD = re.compile(r"[^\W\d_]{4,}")
_COMMON = {
    *("about", "also", "been", "could", "from", "have", "here", "into", "just", "like", "more", "need", "only", "that"),
    *("their", "them", "then", "there", "they", "this", "what", "when", "where", "which", "will", "with", "would"),
    *("your", "please", "some", "does", "were", "than", "should"),
}


def summarised(prompt: Prompt) -> tuple[str, list[str]] | None:
    """A summary and its topics; None where the prompt wants none, or has no conversation to be summarised."""
    wanted = wants_summary(prompt.format) or any(map(_asks, _instructions(prompt)))
    turns = _turns(prompt) if wanted else []
    if not turns:
        return None
    summary = " ".join(f"{speaker.capitalize()}: {_first_sentence(text)}" for speaker, text in turns)
    return summary, _topics([text for _, text in turns])


def is_to_be_summarised(prompt: Prompt) -> bool:
    """Whether the prompt hands over a conversation for a summary, as programs do, rather than being one."""
    asked = (message.content for message in prompt.messages if message.role == "system")
    return (wants_summary(prompt.format) or any(map(_ASKS.search, asked))) and bool(_turns(prompt))


def wants_summary(schema: Any) -> bool:
    """Whether the schema has a text `summary` and a list `topics`."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return False
    kinds = [one.get("type") if isinstance(one := properties.get(name), Mapping) else None for name in _KEYS]
    return kinds == ["string", "array"]


_KEYS = ("summary", "topics")


def _asks(message: Message) -> bool:
    """Whether it asks for a summary; the search is slow, and few messages have the word."""
    return "ummar" in message.content.lower() and _ASKS.search(message.content) is not None


def _instructions(prompt: Prompt) -> list[Message]:
    """Where a prompt says what it wants: its system messages and the last of the user."""
    last = [prompt.messages[prompt.last_user]] if prompt.last_user >= 0 else []
    return [message for message in prompt.messages if message.role == "system"] + last


def _turns(prompt: Prompt) -> list[tuple[str, str]]:
    """Who said what: as the text of the prompt tells it, else in the messages before the last."""
    for message in reversed(_instructions(prompt)):
        told = [(speaker, text.strip()) for speaker, text in _TURN.findall(message.content) if text.strip()]
        if told:
            return told
    before = prompt.messages[: max(prompt.last_user, 0)]
    return [(one.role, one.content) for one in before if one.role in ("user", "assistant") and one.content.strip()]


def _first_sentence(text: str) -> str:
    found = _SENTENCE.match(" ".join(text.split()))
    sentence = (found[1] or found[2]) if found else ""
    return sentence if len(sentence) <= MAX_SENTENCE else f"{sentence[:MAX_SENTENCE]}..."


def _topics(texts: list[str]) -> list[str]:
    words = [word for text in texts for word in _WORD.findall(text.lower()) if word not in _COMMON]
    return [word for word, _ in Counter(words).most_common(MAX_TOPICS)]
