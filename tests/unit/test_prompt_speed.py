"""Estimates of evaluated prompt tokens, from the token counts and evaluation times that Ollama reports."""

from typing import Any

import pytest

from mochi_server.inference.prompt_speed import PromptSpeeds


def response(count: object, duration: object, model: str = "m") -> dict[str, Any]:
    return {"model": model, "prompt_eval_count": count, "prompt_eval_duration": duration}


def test_cached_part_of_a_prompt_is_not_counted() -> None:
    speeds = PromptSpeeds()
    assert speeds.observe(response(1000, 5_000_000)) == 1000
    assert speeds.observe(response(1100, 500_000)) == 100
    assert speeds.evaluated_tokens(response(1100, 500_000, "m:latest")) == 100
    assert speeds.evaluated_tokens(response(1100, 500_000, "other")) == 1100


def test_slower_evaluation_corrects_the_speed() -> None:
    speeds = PromptSpeeds()
    speeds.observe(response(1000, 500_000))  # most of it was cached before the server started
    speeds.observe(response(1000, 5_000_000))
    assert speeds.evaluated_tokens(response(1000, 500_000)) == 100


def test_short_prompts_do_not_determine_the_speed() -> None:
    speeds = PromptSpeeds()
    speeds.observe(response(2, 5_000_000))
    assert speeds.observe(response(1000, 5_000_000)) == 1000


@pytest.mark.parametrize(("count", "duration"), [(None, 1), (1, None), (0, 1), (1, 0), ("many", 1), (-5, 1)])
def test_missing_figures_give_no_estimate(count: object, duration: object) -> None:
    assert PromptSpeeds().observe(response(count, duration)) is None


def test_speeds_of_many_models_are_limited() -> None:
    speeds = PromptSpeeds()
    for number in range(2000):
        speeds.observe(response(100, 100, f"model-{number}"))
    assert speeds.evaluated_tokens(response(100, 10, "model-0")) == 100
    assert speeds.evaluated_tokens(response(100, 10, "model-1999")) == 10
