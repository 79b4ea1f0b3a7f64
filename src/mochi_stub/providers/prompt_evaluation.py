"""Evaluation of a prompt by a loaded model: truncation, the reply, token counts and the simulated prompt cache.

As in Ollama, the oldest messages are removed first, except system messages. If the last message alone is too long, its
text is shortened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from math import inf
from typing import Any, NamedTuple

import orjson

from mochi_stub import prompt as prompts
from mochi_stub.handlers import Encoder, Generation, Stub
from mochi_stub.json_encoding import dumps
from mochi_stub.models import Model
from mochi_stub.models.scheduler import Lease, LoadRequest
from mochi_stub.prompt import Message, Prompt, count_tokens, prompt_tokens
from mochi_stub.replies import SeededIds
from mochi_stub.reply import Choice, Content, Cut, Failure, HttpError, Part, Reasoning, Reply, Text, ToolCalls, joined

NUM_KEEP = 4
_TOO_LONG = (
    "the prompt is longer than the context length currently available to the model; shorten the prompt, adjust the "
    "context length in settings, or use a model with a longer context length"
)


class TooLong(HttpError):
    """The prompt exceeds the context and cannot be truncated. The message is JSON, as in Ollama's llama-server."""

    def __init__(self, tokens: int, context: int) -> None:
        message = f"request ({tokens} tokens) exceeds the available context size ({context} tokens), try increasing it"
        error = {"code": 400, "message": message, "type": "exceed_context_size_error"}
        body = {"error": {**error, "n_prompt_tokens": tokens, "n_ctx": context}}
        super().__init__(400, orjson.dumps(body).decode())


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

    If `context` is None, there is no limit. Raises HttpError if the prompt is too long and cannot be truncated.
    """
    per_token, is_chat = model.chars_per_token, prompt.operation == "chat"
    tokens = prompt_tokens(prompt, per_token) + before
    if context is None or tokens <= context:
        return FittedPrompt(prompt, tokens)
    if not truncate:
        raise TooLong(tokens, context)
    shorter = replace(prompt, messages=_latest(prompt, per_token, context)) if is_chat else prompt
    tokens = prompt_tokens(shorter, per_token) + before
    dropped = len(prompt.messages) - len(shorter.messages)
    if tokens <= context:
        return FittedPrompt(shorter, tokens, dropped, truncated=True)
    if is_chat and model.template_style == "native":
        raise TooLong(tokens, context)
    if not shift:
        raise HttpError(400, _TOO_LONG)
    keep = max(0, min(int(prompt.options.get("num_keep", NUM_KEEP)), context - 1))
    removed = tokens - (context - (context - keep) // 2)  # half of the context after the first `keep` tokens is free
    start = int(keep * per_token)
    *earlier, last = shorter.messages
    content = last.content[:start] + last.content[start + int(removed * per_token) :]
    shortened = replace(shorter, messages=(*earlier, replace(last, content=content)))
    return FittedPrompt(shortened, tokens - removed, dropped, truncated=True)


def _latest(prompt: Prompt, chars_per_token: float, context: int) -> tuple[Message, ...]:
    length = len(prompts.counted_text(prompt))
    images = sum(message.images for message in prompt.messages)
    latest: list[Message] = []
    for message in prompt.messages[:-1]:
        fits = count_tokens(length, chars_per_token) + prompts.IMAGE_TOKENS * images <= context
        if fits or message.role == "system":
            latest.append(message)
        else:
            length -= len(prompts.counted_text_of(message))
            images -= message.images
    return (*latest, prompt.messages[-1])


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
    starts = accumulate(map(len, content), initial=0)
    return [piece[: length - start] for piece, start in zip(content, starts, strict=False) if start < length]


class Counts(NamedTuple):
    """Token counts of a request and its reply. `output` includes `reasoning`."""

    input: int
    output: int
    reasoning: int
    cache_read: int = 0
    cache_creation: int = 0


@dataclass  # not frozen: frozen instances take three times as long to create
class EvaluatedPrompt:
    """Truncated prompt with its reply.

    `seconds` is the simulated time of the evaluation, or None if the simulated machine has no `prompt_speed`.
    """

    stub: Stub
    model: Model
    fit: FittedPrompt
    reply: Reply
    evaluated_tokens: int
    seconds: float | None

    @property
    def prompt(self) -> Prompt:
        return self.fit.prompt

    @property
    def ids(self) -> SeededIds:
        """IDs and times of the reply, derived from the model name and the request body."""
        return self.stub.seeded_ids(self.prompt.model.encode(errors="replace") + self.prompt.request)

    @cached_property
    def usage(self) -> Counts:
        """Token counts. Counts that the reply sets replace the calculated counts."""
        reply, per_token = self.reply, self.model.chars_per_token
        output, reasoning = generated_characters(reply), len(reply.reasoning)
        counts = Counts(self.fit.tokens, count_tokens(output, per_token), count_tokens(reasoning, per_token))
        return counts._replace(**{name: count for name, count in vars(reply.usage).items() if count is not None})

    def generation(self, encoder: Encoder, reply: Reply, **journal_fields: Any) -> Generation:
        """Return the response that sends `reply`. `journal_fields` are additional fields of the journal entry."""
        fields = {
            **{"model": self.prompt.model, "truncated": self.fit.truncated, "dropped_messages": self.fit.dropped},
            **{"prompt_tokens": self.fit.tokens, "evaluated_tokens": self.evaluated_tokens},
            **journal_fields,
        }
        return Generation(reply, encoder, self.prompt.stream, fields, self.seconds or 0.0)


def generated_characters(reply: Reply, encode: Callable[[Any], str] = dumps) -> int:
    """Count the characters of a reply: reasoning, text, and the names and JSON arguments of tool calls."""
    calls = sum(len(call.name) + len(encode(call.arguments)) for call in reply.tool_calls)
    return len(reply.reasoning) + len(reply.text) + calls


def evaluate_prompt(
    stub: Stub, load: LoadRequest, lease: Lease, prompt: Prompt, *, truncate: bool = True, context_tokens: int = 0
) -> EvaluatedPrompt:
    """Truncate a prompt to the context of the loaded model, and return the prompt with its reply.

    `context_tokens` is the number of tokens of an earlier conversation, which precede the prompt. Raises HttpError if
    the prompt is too long and cannot be truncated.
    """
    model = load.model
    fit = fit_prompt(prompt, model, lease.limit, truncate=truncate, shift=load.shift, before=context_tokens)
    stub.scheduler.truncations += fit.truncated
    options = dict(fit.prompt.options)
    if not load.shift and lease.limit is not None:  # the reply must fit the free part of the context
        requested, room = options.get("num_predict", -1), max(lease.limit - fit.tokens, 0)
        options["num_predict"] = min(requested, room) if requested >= 0 else room
    reply = apply_stop_conditions(stub.resolve(fit.prompt), options, model.chars_per_token)
    answer = prompts.render_message("assistant", reply.text, reply.tool_calls)
    evaluated_tokens = lease.prompt_cache.evaluate(prompts.render(fit.prompt), f"\n{answer}", fit.tokens)
    speed = stub.scheduler.machine.prompt_speed
    return EvaluatedPrompt(stub, model, fit, reply, evaluated_tokens, evaluated_tokens / speed if speed else None)
