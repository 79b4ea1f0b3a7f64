"""Which window a model gets."""

from typing import Any

import pytest

from mochi_server.ollama.types import ModelInfo
from mochi_server.services.context_window import WindowRegistry
from mochi_server.sessions.session import default_window_config

NOW = "2026-01-01T00:00:00+00:00"


def model(maximum: int | None, name: str = "m:latest") -> ModelInfo:
    return ModelInfo(name, 1.0, capabilities=("completion",), context_length=maximum)


@pytest.mark.parametrize(
    ("maximum", "window"), [(40960, 8192), (9102, 8191), (8192, 7372), (512, 460), (1_048_576, 8192), (None, 8192)]
)
def test_the_first_window_is_the_smaller_of_nine_tenths_and_8192(maximum: int | None, window: int) -> None:
    decision = WindowRegistry().decide(model(maximum), default_window_config(), "a", None)
    assert (decision.window, decision.reason, decision.model_max) == (window, "initial_setup", maximum)


def test_reasons_follow_the_model_of_the_last_answer() -> None:
    registry, config = WindowRegistry(), default_window_config()
    assert registry.decide(model(40960), config, "a", "m").reason == "no_adjustment"
    assert registry.decide(model(40960), config, "a", "other").reason == "model_change"


def test_without_dynamic_windows_none_is_chosen() -> None:
    registry = WindowRegistry(dynamic=False)
    registry.override(model(40960), 4096, "a")
    assert registry.decide(model(40960), default_window_config(), "a", None).window is None
    assert registry.initial_config(model(40960))["dynamic_enabled"] is False


def test_a_window_set_by_hand_is_the_models_for_all_sessions_until_released() -> None:
    registry = WindowRegistry()
    assert registry.override(model(40960), 99999, "a") == 40960
    decision = registry.decide(model(40960), default_window_config(), "b", None)
    assert (decision.window, decision.reason) == (40960, "manual_override")
    assert registry.initial_config(model(40960))["current_window"] == 40960
    registry.release("M")
    assert registry.decide(model(40960), default_window_config(), "b", None).window == 8192


def test_a_stored_override_is_taken_up_after_a_restart_but_not_after_a_release() -> None:
    stored: dict[str, Any] = default_window_config() | {"manual_override": True, "current_window": 4096}
    registry = WindowRegistry()
    assert registry.decide(model(40960), stored, "a", None).window == 4096
    registry.release("m:latest")
    assert registry.decide(model(40960), stored, "a", None).window == 8192


def test_the_history_keeps_the_last_ten_changes() -> None:
    registry, config = WindowRegistry(), default_window_config()
    for maximum in range(1000, 3000, 100):
        decision = registry.decide(model(maximum), config, "a", "other")
        config = registry.adjusted(config, decision, NOW)
    history = config["adjustment_history"]
    assert len(history) == 10
    assert history[-1] == {"window": 2610, "reason": "model_change", "timestamp": NOW}
    assert registry.adjusted(config, registry.decide(model(2900), config, "a", "m"), NOW) == config
