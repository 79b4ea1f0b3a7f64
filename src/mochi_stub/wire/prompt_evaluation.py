"""Evaluation of a prompt by a loaded model: truncation, the reply, and the simulated prompt cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from mochi_stub.http.http_result import Encoder, Generation, Stub
from mochi_stub.models.prompt_slots import Evaluation
from mochi_stub.models.scheduler import Lease, LoadRequest
from mochi_stub.prompt import Prompt, render, render_message
from mochi_stub.replies.truncation import FittedPrompt, apply_stop_conditions, fit_prompt
from mochi_stub.reply import Reply


class EvaluatedPrompt(NamedTuple):
    """Truncated prompt with its reply.

    `seconds` is the simulated time of the evaluation, or None if the simulated machine has no `prompt_speed`.
    """

    fit: FittedPrompt
    reply: Reply
    evaluation: Evaluation
    evaluated_tokens: int
    seconds: float | None

    def generation(self, encoder: Encoder, reply: Reply, **noted: Any) -> Generation:
        """Return the response that sends `reply`. `noted` has additional fields for the request's journal entry."""
        journal_fields = {
            **{"truncated": self.fit.truncated, "dropped_messages": self.fit.dropped},
            **{"prompt_tokens": self.fit.tokens, "evaluated_tokens": self.evaluated_tokens},
            **noted,
        }
        stream = self.fit.prompt.stream
        return Generation(reply, encoder, stream, journal_fields, self.evaluation, self.seconds or 0.0)


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
    evaluated_tokens, speed = evaluation.run(lease.prompt_cache), stub.scheduler.machine.prompt_speed
    return EvaluatedPrompt(fit, reply, evaluation, evaluated_tokens, evaluated_tokens / speed if speed else None)


def _options(fit: FittedPrompt, load: LoadRequest, limit: int | None) -> Mapping[str, Any]:
    """Return the generation options. If `load.shift` is false, limit `num_predict` to the free part of the context.

    As in Ollama, a `num_predict` of 0 is no limit.
    """
    options = fit.prompt.options
    requested = options.get("num_predict", -1) or -1
    if load.shift or limit is None:
        return {**options, "num_predict": requested} if "num_predict" in options else options
    room = max(limit - fit.tokens, 0)
    return {**options, "num_predict": min(requested, room) if requested > 0 else room}
