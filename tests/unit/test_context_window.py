"""Which window a model gets."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from mochi_server.ollama.types import ModelInfo
from mochi_server.services.context_window import WindowDecision, WindowRegistry
from mochi_server.sessions.session import default_window_config

NOW = "2026-01-01T00:00:00+00:00"


def model(maximum: int | None, name: str = "m:latest", num_ctx: int | None = None) -> ModelInfo:
    return ModelInfo(name, 1.0, capabilities=("completion",), context_length=maximum, num_ctx=num_ctx)


def decide(
    registry: WindowRegistry,
    info: ModelInfo,
    *,
    previous: str | None = "m",
    need: int = 0,
    config: Mapping[str, Any] | None = None,
) -> WindowDecision:
    config = default_window_config() if config is None else config
    return asyncio.run(registry.decide(info, config, "a", previous_model=previous, need=need))


def with_loaded(**windows: int) -> WindowRegistry:
    """A registry whose Ollama has models loaded."""

    async def loaded() -> dict[str, int]:
        return {f"{name}:latest": window for name, window in windows.items()}

    return WindowRegistry(loaded)


@pytest.mark.parametrize(
    ("maximum", "window"), [(40960, 8192), (9102, 8191), (8192, 7372), (512, 460), (1_048_576, 8192), (None, 8192)]
)
def test_the_first_window_is_the_smaller_of_nine_tenths_and_8192(maximum: int | None, window: int) -> None:
    decision = decide(WindowRegistry(), model(maximum), previous=None)
    assert (decision.window, decision.reason, decision.model_max) == (window, "initial_setup", maximum)


def test_the_ladder_doubles_up_to_nine_tenths_and_never_shrinks() -> None:
    registry, info = WindowRegistry(), model(40960)
    seen = [decide(registry, info, need=need) for need in (100, 4096, 4097, 8000, 9000, 20000, 36000, 99999, 10)]
    assert [d.window for d in seen] == [8192, 8192, 16384, 16384, 32768, 36864, 36864, 36864, 36864]
    assert [d.reason for d in seen] == [
        "no_adjustment",
        "no_adjustment",
        "usage_threshold",
        "no_adjustment",
        "usage_threshold",
        "usage_threshold",
        "no_adjustment",
        "no_adjustment",
        "no_adjustment",
    ]


def test_there_is_always_half_a_buffer_above_what_is_used_while_the_model_has_room() -> None:
    registry, info = WindowRegistry(), model(1_048_576)
    for need in range(100, 100_000, 777):
        window = decide(registry, info, need=need).window
        assert window is not None
        assert window >= need * 1.5


def test_a_larger_loaded_window_is_taken_over_and_a_smaller_one_is_not() -> None:
    registry = with_loaded(m=20000)
    decision = decide(registry, model(40960), previous=None)
    assert (decision.window, decision.reason) == (20000, "adopted_loaded")
    assert decide(with_loaded(m=4096), model(40960)).window == 8192
    assert decide(with_loaded(other=20000), model(40960)).window == 8192
    assert decide(with_loaded(m=40960), model(40960)).window == 40960


def test_the_modelfiles_window_is_a_floor() -> None:
    assert decide(WindowRegistry(), model(131072, num_ctx=65536)).window == 65536
    assert decide(WindowRegistry(), model(40960, num_ctx=2048)).window == 8192


def test_the_window_belongs_to_the_model_not_the_session() -> None:
    registry, info = WindowRegistry(), model(40960)
    decide(registry, info, need=7000)
    decision = decide(registry, info, need=10, config=default_window_config() | {"current_window": 8192})
    assert (decision.window, decision.reason) == (16384, "adopted_loaded")
    assert decide(registry, model(40960, "other"), previous="other").window == 8192


def test_running_out_of_memory_steps_down_once_and_is_remembered() -> None:
    registry, info = WindowRegistry(), model(40960)
    decide(registry, info, need=12000)
    assert registry.step_down(info)
    assert registry.stepped_down(info) == WindowDecision(16384, "load_failed_step_down", 40960)
    assert decide(registry, info, need=30000).window == 16384


def test_there_is_an_end_to_stepping_down() -> None:
    registry, info = WindowRegistry(), model(1024)
    decide(registry, info)
    assert not registry.step_down(info)


def test_a_step_down_that_did_not_help_is_forgotten() -> None:
    registry, info = WindowRegistry(), model(40960)
    decide(registry, info, need=12000)
    registry.step_down(info)
    registry.undo_step_down(info)
    assert decide(registry, info, need=16000).window == 32768


def test_what_no_text_can_have_is_not_learned() -> None:
    registry, info = WindowRegistry(), model(40960)
    registry.observe(info, 40, 5000)
    assert registry.estimate(info, 1000) < 400
    registry.observe(info, 500, 5000)
    assert registry.estimate(info, 1000) == 2001


def test_tokens_are_estimated_from_what_ollama_counted() -> None:
    registry, info = WindowRegistry(), model(40960)
    assert 250 <= registry.estimate(info, 1000) <= 350
    registry.observe(info, 1000, 900)
    assert registry.estimate(info, 2000) == 1801
    assert registry.estimate(model(40960, "other"), 1000) < 400


def test_reasons_follow_the_model_of_the_last_answer() -> None:
    registry = WindowRegistry()
    assert decide(registry, model(40960)).reason == "no_adjustment"
    assert decide(registry, model(40960), previous="other").reason == "model_change"


def test_without_dynamic_windows_only_people_choose_any() -> None:
    registry = WindowRegistry(dynamic=False)
    assert decide(registry, model(40960)).window is None
    assert not registry.grow(model(40960), 99999)
    config = registry.initial_config(model(40960))
    assert (config["dynamic_enabled"], config["current_window"]) == (False, None)
    registry.override(model(40960), 4096, "a")
    decision = decide(registry, model(40960))
    assert (decision.window, decision.reason) == (4096, "manual_override")
    assert not registry.grow(model(40960), 99999)
    assert registry.adjusted(config, decision, "now")["current_window"] == 4096


def test_a_window_set_by_hand_is_the_models_for_all_sessions_until_released() -> None:
    registry = WindowRegistry()
    assert registry.override(model(40960), 99999, "a") == 40960
    decision = decide(registry, model(40960), need=10)
    assert (decision.window, decision.reason) == (40960, "manual_override")
    assert registry.initial_config(model(40960))["current_window"] == 40960
    registry.release("M")
    assert decide(registry, model(40960)).window == 8192


def test_a_stored_override_is_taken_up_after_a_restart_but_not_after_a_release() -> None:
    stored: dict[str, Any] = default_window_config() | {"manual_override": True, "current_window": 4096}
    registry = WindowRegistry()
    assert decide(registry, model(40960), config=stored).window == 4096
    registry.release("m:latest")
    assert decide(registry, model(40960), config=stored).window == 8192


def test_the_history_keeps_the_last_ten_changes() -> None:
    registry, config = WindowRegistry(), default_window_config()
    for maximum in range(1000, 3000, 100):
        decision = decide(registry, model(maximum, f"m{maximum}"), previous="other", config=config)
        config = registry.adjusted(config, decision, NOW)
    history = config["adjustment_history"]
    assert len(history) == 10
    assert history[-1] == {"window": 2610, "reason": "model_change", "timestamp": NOW}
    same = decide(registry, model(2900, "m2900"), previous="m2900", config=config)
    assert registry.adjusted(config, same, NOW) == config
