"""Choice of the context window for a model."""

from collections.abc import Mapping
from typing import Any

import pytest

from mochi_server.errors import StorageBusy
from mochi_server.inference.gateway import ModelGateway
from mochi_server.inference.session_window import save_window, turn_allocation
from mochi_server.inference.token_estimate import PromptSize, TokenEstimate
from mochi_server.inference.window_allocation import Allocation
from mochi_server.inference.window_registry import WindowDecision, WindowRegistry
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.types import ModelInfo
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import FieldChanges
from mochi_server.sessions.types import SessionCreationOptions, default_window_config
from mochi_server.storage.memory import MemorySessionStore
from tests.support.cases import cases

NOW = "2026-01-01T00:00:00+00:00"


def model(maximum: int | None, name: str = "m:latest", num_ctx: int | None = None) -> ModelInfo:
    return ModelInfo(
        name, 1.0, capabilities=("completion",), context_length=maximum, num_ctx=num_ctx
    )


async def decide(
    registry: WindowRegistry,
    info: ModelInfo,
    *,
    previous: str | None = "m",
    need: int = 0,
    config: Mapping[str, Any] | None = None,
) -> WindowDecision:
    config = default_window_config() if config is None else config
    return await registry.decide(info, config, previous_model=previous, required_tokens=need)


def registry_with_models(**windows: int) -> WindowRegistry:
    """Return a registry whose Ollama has these models loaded."""

    async def loaded() -> dict[str, int]:
        return {f"{name}:latest": window for name, window in windows.items()}

    return WindowRegistry(loaded)


@cases(
    ("maximum", "window"),
    [(40960, 8192), (9102, 8191), (8192, 7372), (512, 460), (1_048_576, 8192), (None, 8192)],
)
async def test_first_window_is_at_most_8192(maximum: int | None, window: int) -> None:
    decision = await decide(WindowRegistry(), model(maximum), previous=None)
    assert (decision.window, decision.reason) == (window, "initial_setup")


class _LockedStore(MemorySessionStore):
    async def patch(
        self,
        session_id: str,
        fields: FieldChanges,
        *,
        revision: str | None = None,
        touch: bool = True,
    ) -> ChatSession:
        del session_id, fields, revision, touch
        raise StorageBusy("Another process has locked the files.")


@pytest.mark.parametrize(
    ("store", "stored"), [(MemorySessionStore(), 8192), (_LockedStore(), None)]
)
async def test_turn_does_not_fail_if_its_window_cannot_be_stored(
    store: MemorySessionStore, stored: int | None
) -> None:
    session = await store.create(ChatSession.create(SessionCreationOptions("m:latest")))
    gateway = ModelGateway(AsyncOllamaClient("http://127.0.0.1:1"))
    window = turn_allocation(gateway, model(40960), session, session.history)
    await window.decide(100)
    await save_window(window, session, store)
    await gateway.fleet.aclose()
    assert (await store.load(session.session_id)).metadata.context_window_config[
        "current_window"
    ] == stored


async def test_window_doubles_up_to_nine_tenths_and_never_shrinks() -> None:
    registry, info = WindowRegistry(), model(40960)
    seen = [
        (await decide(registry, info, need=need))
        for need in (100, 5461, 5462, 8000, 10923, 21846, 36000, 99999, 10)
    ]
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


async def test_window_keeps_half_a_buffer_above_the_usage() -> None:
    registry, info = WindowRegistry(), model(1_048_576)
    for need in range(100, 100_000, 777):
        window = (await decide(registry, info, need=need)).window
        assert window is not None
        assert window >= need * 1.5


async def test_only_a_larger_loaded_window_is_adopted() -> None:
    registry = registry_with_models(m=20000)
    decision = await decide(registry, model(40960), previous=None)
    assert (decision.window, decision.reason) == (20000, "adopted_loaded")
    assert (await decide(registry_with_models(m=4096), model(40960))).window == 8192
    assert (await decide(registry_with_models(other=20000), model(40960))).window == 8192
    assert (await decide(registry_with_models(m=40960), model(40960))).window == 40960


async def test_new_session_begins_with_the_initial_window_unless_the_model_is_loaded() -> None:
    loaded: dict[str, int] | None = {}

    async def windows() -> dict[str, int] | None:
        return loaded

    registry, info, config = WindowRegistry(windows), model(40960), default_window_config()
    grown = config | {"current_window": (await decide(registry, info, need=7000)).window}
    assert grown["current_window"] == 16384
    loaded = {"m:latest": 0}  # an old version of Ollama does not send the size
    assert (await decide(registry, info, previous=None)).window == 16384
    loaded = None
    assert (await decide(registry, info, previous=None)).window == 16384
    loaded = {"other:latest": 4096}
    assert registry.initial_config(info)["current_window"] == 8192
    first = await decide(registry, info, previous=None)
    assert (first.window, first.reason) == (8192, "initial_setup")
    assert (await decide(registry, info, config=grown)).window == 16384
    assert (await decide(WindowRegistry(), info, config=grown)).window == 16384
    loaded = {"m:latest": 16384}
    assert (await decide(registry, info, previous=None)).reason == "adopted_loaded"


async def test_window_of_the_modelfile_is_the_minimum() -> None:
    assert (await decide(WindowRegistry(), model(131072, num_ctx=65536))).window == 65536
    assert (await decide(WindowRegistry(), model(40960, num_ctx=2048))).window == 8192
    assert (await decide(WindowRegistry(), model(8192, num_ctx=131072))).window == 8192
    assert (await decide(WindowRegistry(), model(None, num_ctx=131072))).window == 131072


async def test_window_belongs_to_the_model_not_the_session() -> None:
    registry, info = WindowRegistry(), model(40960)
    await decide(registry, info, need=7000)
    decision = await decide(
        registry, info, need=10, config=default_window_config() | {"current_window": 8192}
    )
    assert (decision.window, decision.reason) == (16384, "adopted_loaded")
    assert (await decide(registry, model(40960, "other"), previous="other")).window == 8192


async def test_first_window_is_that_of_ollama_for_another_model_of_this_size() -> None:
    loaded: dict[str, int] = {}
    sizes = {"a:latest": 5.0, "b:latest": 4.0, "small:latest": 4.0, "large:latest": 6.0}

    async def windows() -> dict[str, int]:
        return loaded

    registry = WindowRegistry(windows, size_of=sizes.get)
    new = {
        name: ModelInfo(f"{name}:latest", size, context_length=40960)
        for name, size in (("small", 4), ("large", 6))
    }
    loaded |= {"a:latest": 20000, "b:latest": 30000}
    registry.record_request("b", 30000)
    assert (await decide(registry, new["small"], previous=None)).window == 20000
    assert (await decide(registry, new["large"], previous=None)).window == 8192
    loaded.clear()
    assert (await decide(registry, new["small"], previous=None)).window == 20000
    loaded["a:latest"] = 1_000_000
    tiny = ModelInfo("tiny:latest", 1.0, context_length=10_000)
    assert (await decide(registry, tiny, previous=None)).window == 9000
    assert registry.step_down(new["small"], 20000)
    assert (await decide(registry, new["small"], previous=None)).window == 10000


async def test_window_that_an_earlier_process_has_requested_is_not_that_of_ollama() -> None:
    async def windows() -> dict[str, int]:
        return {"a:latest": 16_384}

    new = model(40_960, "small:latest")
    for stored, first in ((16_384, 8192), (8192, 16_384)):
        registry = WindowRegistry(windows, size_of=lambda _: 5.0)
        config = default_window_config() | {"current_window": stored}
        assert (
            await decide(registry, model(40_960, "a:latest"), previous="a", config=config)
        ).window == 16_384
        assert (await decide(registry, new, previous=None)).window == first


@pytest.mark.parametrize(("maximum", "window"), [(131_072, 20_000), (8192, 7372)])
async def test_initial_window_can_be_set(maximum: int, window: int) -> None:
    registry = WindowRegistry(initial=20_000)
    decision = await decide(registry, model(maximum), previous=None)
    assert (decision.window, decision.reason) == (window, "initial_setup")
    assert registry.initial_config(model(maximum))["current_window"] == window


async def test_initial_window_never_exceeds_a_size_that_ran_out_of_memory() -> None:
    registry, info = WindowRegistry(initial=32_768), model(131_072)
    assert (await decide(registry, info, previous=None)).window == 32_768
    assert registry.step_down(info, 32_768)
    registry.lower_ceiling(info, 16_384)
    assert (await decide(registry, info, previous=None)).window == 8_192


async def test_out_of_memory_lowers_the_window_once() -> None:
    registry, info = WindowRegistry(), model(40960)
    await decide(registry, info, need=12000)
    assert registry.step_down(info, registry.size("m"))
    assert registry.current(info, "load_failed_step_down") == WindowDecision(
        16384, "load_failed_step_down"
    )
    assert (await decide(registry, info, need=30000)).window == 16384


async def test_smaller_loaded_window_that_ran_out_of_memory_is_halved() -> None:
    registry, info = registry_with_models(m=8192), model(40960)
    assert (await decide(registry, info, need=12000)).window == 32768
    decision = await registry.decide_without_session(info, 100)
    assert decision.window == 8192
    assert registry.step_down(info, decision.window)
    assert registry.size("m") == 4096


async def test_failed_smallest_window_is_not_halved_if_the_window_of_the_model_is_larger() -> None:
    registry, info = WindowRegistry(), model(40960)
    assert (await decide(registry, info, need=12000)).window == 32768
    assert not registry.step_down(info, 512)
    assert registry.size("m") is None


async def test_window_has_a_lower_limit() -> None:
    registry, info = WindowRegistry(), model(1024)
    await decide(registry, info)
    assert not registry.step_down(info, registry.size("m"))


async def test_failure_of_the_smallest_window_ends_the_limit() -> None:
    registry, info = WindowRegistry(), model(40960)
    for window in (8192, 2048):
        assert (await decide(registry, info)).window == window
        assert registry.step_down(info, window)
        registry.lower_ceiling(info, window // 2)
    assert (await decide(registry, info)).window == 512
    assert not registry.step_down(info, 512)
    assert (await decide(registry, info, need=7000)).window == 16384


async def test_failed_window_that_no_session_has_chosen_is_halved() -> None:
    registry, info = registry_with_models(m=8192), model(40960)
    decision = await registry.decide_without_session(info, 100)
    assert registry.step_down(info, decision.window)
    assert registry.size("m") == 4096


async def test_two_failed_windows_limit_the_growth_of_the_window() -> None:
    registry, info = WindowRegistry(), model(131072)
    await decide(registry, info, need=30000)
    registry.step_down(info, registry.size("m"))
    registry.lower_ceiling(info, registry.size("m"))
    assert (await decide(registry, info, need=10)).window == 8192
    assert (await decide(registry, info, need=30000)).window == 16384


@cases(("previous", "largest"), [("m", 8192), ("other", 7372), (None, 7372)])
def test_largest_window_includes_the_window_that_a_session_has_for_the_model(
    previous: str | None, largest: int
) -> None:
    config = default_window_config() | {"current_window": 16_384}
    assert WindowRegistry().largest(model(8192), config, previous) == largest


def test_largest_window_is_at_most_the_ceiling() -> None:
    registry, info = WindowRegistry(), model(131_072)
    config = default_window_config() | {"current_window": 65_536}
    registry.lower_ceiling(info, 65_536)
    assert registry.largest(info, config, "m") == 32_768


def test_impossible_token_ratios_are_not_learned() -> None:
    estimate = TokenEstimate()
    estimate.observe(PromptSize(40), 5000)
    assert estimate.tokens(PromptSize(1000)) < 400
    estimate.observe(PromptSize(500), 5000)
    assert estimate.tokens(PromptSize(1000)) == 2001


def test_count_without_cached_tokens_does_not_change_the_estimate() -> None:
    estimate = TokenEstimate()
    before = estimate.tokens(PromptSize(20_000))
    estimate.observe(PromptSize(20_000), 50)
    assert estimate.tokens(PromptSize(20_000)) == before


def test_token_estimate_uses_counts_of_ollama() -> None:
    registry = WindowRegistry()
    assert 250 <= registry.estimate("m").tokens(PromptSize(1000)) <= 350
    registry.estimate("m").observe(PromptSize(1000), 900)
    assert registry.estimate("M:latest").tokens(PromptSize(2000)) == 1801
    assert registry.estimate("other").tokens(PromptSize(1000)) < 400


async def test_reasons_depend_on_the_model_of_the_last_answer() -> None:
    registry = WindowRegistry()
    assert (await decide(registry, model(40960))).reason == "no_adjustment"
    assert (await decide(registry, model(40960), previous="other")).reason == "model_change"


def manual(window: int) -> dict[str, Any]:
    return default_window_config() | {"manual_override": True, "current_window": window}


async def test_without_dynamic_windows_only_manual_windows_apply() -> None:
    registry = WindowRegistry(dynamic=False)
    assert (await decide(registry, model(40960))).window is None
    allocation = Allocation(registry, model(40960))
    await allocation.decide(10)
    assert not allocation.grow(99999)
    config = registry.initial_config(model(40960))
    assert (config["dynamic_enabled"], config["current_window"]) == (False, None)
    decision = await decide(registry, model(40960), config=manual(4096))
    assert (decision.window, decision.reason) == (4096, "manual_override")
    assert (await decide(registry, model(40960))).window is None


async def test_manual_window_applies_to_its_session_only() -> None:
    registry = WindowRegistry()
    decision = await decide(registry, model(40960), need=10, config=manual(99999))
    assert (decision.window, decision.reason) == (40960, "manual_override")
    assert registry.initial_config(model(40960))["current_window"] == 8192
    assert (await decide(registry, model(40960))).window == 8192


@cases(
    ("maximum", "name", "window"),
    [(40960, "m:latest", 2048), (1536, "m:latest", 1536), (40960, "m:cloud", 1024)],
)
async def test_stored_manual_window_is_at_least_the_minimum_of_a_model_with_vision(
    maximum: int, name: str, window: int
) -> None:
    info = ModelInfo(name, 1.0, capabilities=("completion", "vision"), context_length=maximum)
    decision = await decide(registry_with_models(m=window), info, config=manual(1024))
    assert (decision.window, decision.is_loaded, decision.differs) == (window, True, False)


async def test_window_loaded_for_a_manual_window_is_not_adopted() -> None:
    registry, info = registry_with_models(m=20000), model(40960)
    decision = await decide(registry, info, config=manual(20000))
    assert (decision.is_loaded, decision.differs) == (True, False)
    other = await decide(registry, info, previous=None)
    assert (other.window, other.reason, other.is_loaded, other.differs) == (
        8192,
        "initial_setup",
        False,
        True,
    )
    assert (await decide(registry, info, need=11_000)).window == 32768


async def test_window_that_grows_to_a_manual_window_is_the_common_window() -> None:
    registry, info = registry_with_models(m=16384), model(40960)
    await decide(registry, info, config=manual(16384))
    decision = await decide(registry, info, need=8000)
    assert (decision.window, decision.is_loaded, decision.differs) == (16384, True, False)


async def test_manual_window_steps_down_for_the_turn_only() -> None:
    gateway = ModelGateway(AsyncOllamaClient("http://127.0.0.1:1"))
    turns = [gateway.allocate(model(40960), manual(16384), "m") for _ in range(2)]
    for turn in turns:
        await turn.decide()
    assert turns[0].step_down()
    assert not turns[0].step_down()
    for turn in turns:
        await turn.decide()
    await gateway.fleet.aclose()
    assert [(turn.decision and turn.decision.reason, turn.size) for turn in turns] == [
        ("load_failed_step_down", 8192),
        ("manual_override", 16384),
    ]
    assert gateway.windows.size("m") is None


@cases("name", ["m:latest", "m:cloud"])
async def test_window_that_the_registry_does_not_choose_is_never_halved(name: str) -> None:
    info = model(40960, name)
    allocation = Allocation(WindowRegistry(), info, default_window_config())
    await allocation.decide()
    requests = allocation if info.is_cloud else allocation.fixed(16384)
    size = requests.size
    assert not requests.step_down()
    assert requests.size == size


async def test_window_that_an_answer_fills_grows() -> None:
    registry = WindowRegistry()
    allocation = Allocation(registry, model(40960), default_window_config())
    await allocation.decide()
    filled = {"prompt_eval_count": 5000, "eval_count": 3192, "done_reason": "length"}
    _, _, is_cut = allocation.record(filled, PromptSize(15_000), limit=3192)
    assert is_cut
    assert registry.size("m") == 16384


async def test_history_keeps_the_last_ten_changes() -> None:
    registry, config = WindowRegistry(), default_window_config()
    for maximum in range(1000, 3000, 100):
        decision = await decide(
            registry, model(maximum, f"m{maximum}"), previous="other", config=config
        )
        config = registry.adjusted(config, decision, NOW)
    history = config["adjustment_history"]
    assert len(history) == 10
    assert history[-1] == {"window": 2610, "reason": "model_change", "timestamp": NOW}
    same = await decide(registry, model(2900, "m2900"), previous="m2900", config=config)
    assert registry.adjusted(config, same, NOW) == config
