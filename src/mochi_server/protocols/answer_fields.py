"""Fields of an answer that the protocols derive from the result of its turn."""

from collections.abc import Sequence

from mochi_server.chat.turn_result import TurnResult
from mochi_server.protocols.parts import End, Json, Notice


def usage(turn: TurnResult) -> Json:
    """Return Ollama's token counts, summed over all requests of the turn, in OpenAI's format.

    The number of cached tokens is null if Ollama has not reported it for each request.
    """
    answers = [message for message in turn.stored if message["role"] == "assistant"]
    answers += turn.replaced
    prompt = sum(answer.get("prompt_eval_count", 0) for answer in answers)
    completion = sum(answer.get("eval_count", 0) for answer in answers)
    cached = [answer.get("prompt_eval_cached_count") for answer in answers]
    is_known = cached and None not in cached
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(cached) if is_known else None},
    }


def is_cut(turn: TurnResult) -> bool:
    """Return whether the answer ended because it reached the maximum number of tokens."""
    return (
        not turn.client_tool_calls
        and turn.answer is not None
        and turn.answer.get("done_reason") == "length"
    )


def extra_fields(end: End, notices: Sequence[Notice] = ()) -> Json:
    """Return the fields that only this server has.

    ``notices`` are about the request; those of the run follow them. Clients of other protocols
    ignore such fields.
    """
    return {
        "context_window": end.result.window_object,
        "tool_calls_executed": [outcome.executed() for outcome in end.result.outcomes],
        "notices": [{"type": notice.name, **notice.payload} for notice in (*notices, *end.notices)],
    }
