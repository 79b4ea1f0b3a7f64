"""Evaluation of a prompt by a loaded model: truncation, the reply, and the simulated prompt cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mochi_stub.http.http_result import Encoder, Generation, Stub
from mochi_stub.models.prompt_slots import Evaluation
from mochi_stub.models.scheduler import Lease, LoadRequest
from mochi_stub.prompt import Message, Prompt, render, render_message
from mochi_stub.replies.truncation import FittedPrompt, apply_stop_conditions, fit_prompt
from mochi_stub.reply import Reply


@dataclass(frozen=True)
class EvaluatedPrompt:
    """Truncated prompt with its reply. `seconds` is the evaluation time, or None if the machine has no prompt speed."""

    fit: FittedPrompt
    reply: Reply
    evaluation: Evaluation
    evaluated_tokens: int
    seconds: float | None

    def generation(self, encoder: Encoder, reply: Reply | None = None, **noted: Any) -> Generation:
        """Return the result that sends `reply` (default: the reply of the prompt).

        The fields of `noted` are added to the journal entry.
        """
        journal_fields = {
            **{"truncated": self.fit.truncated, "dropped_messages": self.fit.dropped},
            **{"prompt_tokens": self.fit.tokens, "evaluated_tokens": self.evaluated_tokens},
            **noted,
        }
        sent, stream = self.reply if reply is None else reply, self.fit.prompt.stream
        return Generation(sent, encoder, stream, journal_fields, self.evaluation, self.seconds or 0.0)


def evaluate_prompt(
    stub: Stub, load: LoadRequest, lease: Lease, prompt: Prompt, *, truncate: bool = True, context_tokens: int = 0
) -> EvaluatedPrompt:
    """Truncate a prompt to the context of the loaded model, and return it with the reply.

    `context_tokens` is the number of tokens before the prompt. Raises TooLong if the prompt cannot be truncated.
    """
    model = load.model
    fit = fit_prompt(prompt, model, lease.limit, truncate=truncate, shift=load.shift, before=context_tokens)
    stub.scheduler.truncations += fit.truncated
    options = _options(fit, load, lease.limit)
    reply = apply_stop_conditions(stub.resolve(fit.prompt), options, model.chars_per_token)
    answer = render_message(Message("assistant", reply.text, tool_calls=tuple(reply.tool_calls)))
    evaluation = Evaluation(render(fit.prompt), f"\n{answer}", fit.tokens)
    evaluated_tokens, speed = evaluation.run(lease.prompt_cache), stub.scheduler.machine.prompt_speed
    return EvaluatedPrompt(fit, reply, evaluation, evaluated_tokens, evaluated_tokens / speed if speed else None)


def _options(fit: FittedPrompt, load: LoadRequest, limit: int | None) -> Mapping[str, Any]:
    """Return the effective options. Without context shifting, the remaining context also limits the output."""
    options = fit.prompt.options
    if load.shift or limit is None:
        return options
    room, requested = max(limit - fit.tokens, 0), options.get("num_predict", -1)
    return {**options, "num_predict": min(requested, room) if requested >= 0 else room}
