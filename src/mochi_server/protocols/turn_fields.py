"""Fields of a response that are known only after the turn has ended."""

from mochi_server.chat.turn import TurnResult
from mochi_server.protocols.parts import End, Json


def usage(turn: TurnResult) -> dict[str, int]:
    """Return Ollama's token counts, summed over all requests of the turn."""
    answers = [message for message in (turn.stored or turn.repeated) if message["role"] == "assistant"]
    prompt = sum(answer.get("prompt_eval_count", 0) for answer in answers)
    completion = sum(answer.get("eval_count", 0) for answer in answers)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def is_cut(turn: TurnResult) -> bool:
    """Return whether the answer ended because it reached the maximum number of tokens."""
    return not turn.client_tool_calls and turn.answer is not None and turn.answer.get("done_reason") == "length"


def extra_fields(end: End) -> Json:
    """Return the fields that only this server has. Clients of other protocols ignore such fields."""
    return {
        "context_window": end.result.window_object,
        "tool_calls_executed": [outcome.executed() for outcome in end.result.outcomes],
        "notices": [{"type": notice.name, **notice.payload} for notice in end.notices],
    }
