"""What the server learns from cached tokens about the prompts that a host keeps."""

from mochi_server.inference.placement import HostModel

TOKENS = 100


def send(model: HostModel, session_id: str, *, is_cached: bool) -> None:
    last = {"prompt_eval_count": TOKENS, "prompt_eval_cached_count": TOKENS if is_cached else 0}
    model.record(session_id, model.begin(session_id), last, 1.0)


def with_five_kept_prompts() -> HostModel:
    model = HostModel()
    for session_id in "abcde":
        send(model, session_id, is_cached=False)
    send(model, "a", is_cached=True)
    return model


def test_cached_prompt_shows_the_number_of_kept_prompts() -> None:
    assert with_five_kept_prompts().capacity == 5


def test_one_miss_does_not_discard_what_earlier_hits_have_shown() -> None:
    model = with_five_kept_prompts()
    send(model, "e", is_cached=False)
    assert model.capacity == 4
    assert {*model.kept(1)} == {*"abcde"}


def test_miss_after_more_prompts_limits_the_kept_ones() -> None:
    model = with_five_kept_prompts()
    for session_id in "fgb":
        send(model, session_id, is_cached=False)
    assert [*model.kept(1)] == [*"deafgb"]
