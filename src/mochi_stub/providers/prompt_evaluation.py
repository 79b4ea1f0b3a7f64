"""Evaluation of a prompt by a loaded model: truncation, the reply, token counts and the simulated prompt cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from mochi_stub.http.http_result import Encoder, Generation, Stub
from mochi_stub.models.catalogue import Model
from mochi_stub.models.prompt_slots import Evaluation
from mochi_stub.models.scheduler import Lease, LoadRequest
from mochi_stub.prompt import Prompt, count_tokens, render, render_message
from mochi_stub.providers.json_encoding import dumps
from mochi_stub.replies.seeded_ids import SeededIds
from mochi_stub.replies.truncation import FittedPrompt, apply_stop_conditions, fit_prompt
from mochi_stub.reply import Reply


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
    evaluation: Evaluation
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
        return Generation(reply, encoder, self.prompt.stream, fields, self.evaluation, self.seconds or 0.0)


def generated_characters(reply: Reply, encode: Callable[[Any], str] = dumps) -> int:
    """Count the characters of a reply: reasoning, text, and the names and JSON arguments of tool calls."""
    calls = sum(len(call.name) + len(encode(call.arguments)) for call in reply.tool_calls)
    return len(reply.reasoning) + len(reply.text) + calls


def evaluate_prompt(
    stub: Stub, load: LoadRequest, lease: Lease, prompt: Prompt, *, truncate: bool = True, context_tokens: int = 0
) -> EvaluatedPrompt:
    """Truncate a prompt to the context of the loaded model, and return the prompt with its reply.

    `context_tokens` is the number of tokens of an earlier conversation, which precede the prompt. Raises TooLong if the
    prompt is too long and cannot be truncated.
    """
    model = load.model
    fit = fit_prompt(prompt, model, lease.limit, truncate=truncate, shift=load.shift, before=context_tokens)
    stub.scheduler.truncations += fit.truncated
    options = _options(fit, load, lease.limit)
    reply = apply_stop_conditions(stub.resolve(fit.prompt), options, model.chars_per_token)
    answer = render_message("assistant", reply.text, reply.tool_calls)
    evaluation = Evaluation(render(fit.prompt), f"\n{answer}", fit.tokens)
    evaluated_tokens, speed = lease.prompt_cache.evaluate(evaluation), stub.scheduler.machine.prompt_speed
    seconds = evaluated_tokens / speed if speed else None
    return EvaluatedPrompt(stub, model, fit, reply, evaluation, evaluated_tokens, seconds)


def _options(fit: FittedPrompt, load: LoadRequest, limit: int | None) -> Mapping[str, Any]:
    """Return the generation options. If `load.shift` is false, limit `num_predict` to the free part of the context."""
    options = fit.prompt.options
    if load.shift or limit is None:
        return options
    requested, room = options.get("num_predict", -1), max(limit - fit.tokens, 0)
    return {**options, "num_predict": min(requested, room) if requested >= 0 else room}
