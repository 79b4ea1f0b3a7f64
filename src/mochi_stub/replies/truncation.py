"""Truncation of prompts to the context length, and of replies by the options `stop` and `num_predict`.

As in Ollama, the oldest messages are removed first, except system messages. If the last message alone is too long, its
text is shortened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

import orjson

from mochi_stub.models.catalogue import Model
from mochi_stub.prompt import IMAGE_TOKENS, Message, Prompt, count_tokens, counted_text, counted_text_of, prompt_tokens
from mochi_stub.reply import Choice, Content, Cut, Failure, HttpError, Part, Reasoning, Reply, Text, ToolCalls, joined

NUM_KEEP = 4
TOO_LONG = (
    "the prompt is longer than the context length currently available to the model; shorten the prompt, adjust the "
    "context length in settings, or use a model with a longer context length"
)


class TooLong(HttpError):
    """The prompt exceeds the context and cannot be truncated."""


class FittedPrompt(NamedTuple):
    """Prompt that fits the context. `tokens` is its length, and `dropped` is the number of removed messages."""

    prompt: Prompt
    tokens: int
    dropped: int = 0
    truncated: bool = False


def fit_prompt(
    prompt: Prompt, model: Model, context: int | None, *, truncate: bool, shift: bool, before: int = 0
) -> FittedPrompt:
    """Truncate a prompt so that its tokens and `before` earlier tokens fit into a context of `context` tokens.

    If `context` is None, there is no limit. Raises TooLong if the prompt is too long and cannot be truncated.
    """
    per_token = model.chars_per_token
    tokens = prompt_tokens(prompt, per_token) + before
    if context is None or tokens <= context:
        return FittedPrompt(prompt, tokens)
    if not truncate:
        raise TooLong(400, exceeds(tokens, context))
    shorter = prompt
    if prompt.operation == "chat":
        shorter = replace(prompt, messages=_latest(prompt, per_token, context))
        tokens = prompt_tokens(shorter, per_token) + before
    dropped = len(prompt.messages) - len(shorter.messages)
    if tokens <= context:
        return FittedPrompt(shorter, tokens, dropped, truncated=True)
    if prompt.operation == "chat" and model.template_style == "native":
        raise TooLong(400, exceeds(tokens, context))
    if not shift:
        raise TooLong(400, TOO_LONG)
    return _shorten_last_message(shorter, per_token, tokens, context, dropped)


def exceeds(tokens: int, context: int) -> str:
    """Return the error of Ollama's llama-server for a prompt that is too long, as JSON text."""
    message = f"request ({tokens} tokens) exceeds the available context size ({context} tokens), try increasing it"
    error = {"code": 400, "message": message, "type": "exceed_context_size_error"}
    return orjson.dumps({"error": {**error, "n_prompt_tokens": tokens, "n_ctx": context}}).decode()


def _latest(prompt: Prompt, chars_per_token: float, context: int) -> tuple[Message, ...]:
    length = len(counted_text(prompt))
    images = sum(message.images for message in prompt.messages)
    latest: list[Message] = []
    for message in prompt.messages[:-1]:
        fits = count_tokens(length, chars_per_token) + IMAGE_TOKENS * images <= context
        if fits or message.role == "system":
            latest.append(message)
        else:
            length -= len(counted_text_of(message))
            images -= message.images
    return (*latest, prompt.messages[-1])


def _shorten_last_message(
    prompt: Prompt, chars_per_token: float, tokens: int, context: int, dropped: int
) -> FittedPrompt:
    """Remove tokens of the last message after the first `num_keep`, so that half of the rest of the context is free."""
    keep = max(0, min(int(prompt.options.get("num_keep", NUM_KEEP)), context - 1))
    removed = tokens - (context - (context - keep) // 2)
    start = int(keep * chars_per_token)
    *earlier, last = prompt.messages
    content = last.content[:start] + last.content[start + int(removed * chars_per_token) :]
    shorter = replace(prompt, messages=(*earlier, replace(last, content=content)))
    return FittedPrompt(shorter, tokens - removed, dropped, truncated=True)


def apply_stop_conditions(reply: Reply, options: Mapping[str, Any], chars_per_token: float) -> Reply:
    """Apply the options `stop` and `num_predict`: return the reply, cut at a stop sequence or at the token limit.

    A stop sequence can span adjacent texts, such as the filler text and the echo after it.
    """
    stop, tokens = options.get("stop") or (), options.get("num_predict")
    stops = [stop] if isinstance(stop, str) else list(filter(None, stop))
    left = inf if tokens is None or tokens < 0 else int(tokens * chars_per_token)
    if not stops and left == inf:
        return reply
    before, text, kind = 0, "", None  # `text` joins adjacent parts of the same kind
    for part in reply.parts:
        if isinstance(part, (Choice, Cut, Failure, ToolCalls)):
            kind = None
        if not isinstance(part, (Reasoning, Text)):
            continue
        if type(part) is not kind:
            before, text, kind = before + len(text), "", type(part)
        text += joined(part.content)
        at, found = min(((at, stop) for stop in stops if (at := text.find(stop)) >= 0), default=(len(text), None))
        end = before + at
        if found is not None or end > left:
            ended = replace(reply, parts=_first_characters(reply.parts, int(min(end, left))), frames=None)
            return replace(ended, finish="length") if end > left else replace(ended, finish="stop", stop_sequence=found)
    return reply


def _first_characters(parts: Sequence[Part], length: int) -> list[Part]:
    """Return the parts up to the first `length` characters of their texts."""
    kept: list[Part] = []
    for part in parts:
        if isinstance(part, (Reasoning, Text)):
            size = len(joined(part.content))
            if size > length:
                return [*kept, replace(part, content=_shortened(part.content, length))]
            length -= size
        kept.append(part)
    return kept


def _shortened(content: Content, length: int) -> Content:
    if isinstance(content, str):
        return content[:length]
    pieces: list[str] = []
    for piece in content:
        pieces.append(piece[:length])
        length -= len(piece)
        if length <= 0:
            break
    return pieces
