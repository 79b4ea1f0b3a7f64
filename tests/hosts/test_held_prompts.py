"""What the server learns from cached tokens about the prompts that the slots of a model hold."""

from mochi_server.inference.slots import Exchange, ModelSlots
from mochi_server.inference.token_estimate import PromptSize

TOKENS = 100
EXCHANGE = Exchange({}, [], None, "", PromptSize(), TOKENS)


def send(slots: ModelSlots, session_id: str, *, is_cached: bool) -> None:
    last = {"prompt_eval_count": TOKENS, "prompt_eval_cached_count": TOKENS if is_cached else 0}
    slots.record(slots.begin(session_id, None), last, 1.0, EXCHANGE)


def with_five_held_prompts() -> ModelSlots:
    slots = ModelSlots()
    for session_id in "abcde":
        send(slots, session_id, is_cached=False)
    send(slots, "a", is_cached=True)
    return slots


def test_cached_prompt_shows_the_number_of_held_prompts() -> None:
    assert with_five_held_prompts().capacity == 5


def test_one_miss_does_not_discard_what_earlier_hits_have_shown() -> None:
    slots = with_five_held_prompts()
    send(slots, "e", is_cached=False)
    assert slots.capacity == 4


def test_prompts_are_recorded_in_the_order_of_their_requests() -> None:
    slots = ModelSlots()
    for session_id in ("a", "b", "", "a"):
        slots.begin(session_id, None)
    assert [prompt and prompt.session_id for prompt in slots.prompts] == ["b", None, "a"]


def test_miss_after_more_prompts_limits_the_held_ones() -> None:
    slots = with_five_held_prompts()
    for session_id in "fgb":
        send(slots, session_id, is_cached=False)
    assert (slots.capacity, slots.max_capacity) == (5, 6)
