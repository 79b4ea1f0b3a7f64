"""Token counts under OpenAI's names."""

from __future__ import annotations

from typing import Any

from mochi_stub.wire.asking import Counts


def completion_usage(counts: Counts, choices: int = 1) -> dict[str, Any]:
    """Of chat and text completions; what is generated is generated once for each choice."""
    output = counts.output * choices
    return {
        "prompt_tokens": counts.input,
        "completion_tokens": output,
        "total_tokens": counts.input + output,
        "prompt_tokens_details": {"cached_tokens": counts.cache_read, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": counts.reasoning * choices,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def response_usage(counts: Counts) -> dict[str, Any]:
    """Of the Responses API."""
    return {
        "input_tokens": counts.input,
        "input_tokens_details": {"cached_tokens": counts.cache_read, "cache_write_tokens": counts.cache_creation},
        "output_tokens": counts.output,
        "output_tokens_details": {"reasoning_tokens": counts.reasoning},
        "total_tokens": counts.input + counts.output,
    }
