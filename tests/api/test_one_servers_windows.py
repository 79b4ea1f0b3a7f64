"""Context windows, slots and hosts that one server knows of its own turns."""

from mochi_stub import StubServer
from tests.support.api import Api, error_of


def test_manual_window_does_not_affect_other_sessions(private_api: Api) -> None:
    tiny, other = (
        private_api.create_session("mochi")["session_id"],
        private_api.create_session("mochi")["session_id"],
    )
    private_api.ok(
        private_api.http.patch(f"/sessions/{tiny}", json={"context_window": {"current_window": 1}})
    )
    assert error_of(private_api.http.post(f"/chat/{tiny}", json={"message": "Hi"})) == (
        422,
        "CONTEXT_OVERFLOW",
    )
    assert private_api.send_message(other, "Hi")["context_window"]["current_window"] == 8192
    private_api.http.delete(f"/sessions/{tiny}")
    status = private_api.ok(private_api.http.get(f"/sessions/{other}/status"))["context_window"]
    assert (status["current_window"], status["manual_override"]) == (8192, False)


def test_manual_window_is_capped_used_and_released(
    private_api: Api, private_stub: StubServer
) -> None:
    session_id = private_api.create_session("mochi")["session_id"]
    patch = f"/sessions/{session_id}"

    config = private_api.ok(
        private_api.http.patch(patch, json={"context_window": {"current_window": 99999}})
    )["context_window_config"]
    assert (config["current_window"], config["manual_override"]) == (40960, True)
    answer = private_api.send_message(session_id, "Hello!")
    assert answer["context_window"]["current_window"] == 40960
    assert answer["context_window"]["reason"] == "manual_override"
    status = private_api.ok(private_api.http.get(f"{patch}/status"))["context_window"]
    assert (status["manual_override"], status["last_adjustment_reason"]) == (
        True,
        "manual_override",
    )

    config = private_api.ok(private_api.http.patch(patch, json={"context_window": None}))[
        "context_window_config"
    ]
    assert (config["current_window"], config["manual_override"]) == (8192, False)
    assert (
        private_api.send_message(session_id, "Hello!")["context_window"]["reason"]
        == "no_adjustment"
    )


def test_status_has_every_field_of_the_specification(api: Api, stub: StubServer) -> None:
    session_id = api.create_session(
        "mochi",
        system_prompt="Be brief.",
        system_prompt_source_file="brief.md",
        tool_settings={"tools": ["now"]},
        agent_settings={"enabled_agents": ["coder"]},
    )["session_id"]
    answer = api.send_message(session_id, "Hello!")

    status = api.ok(api.http.get(f"/sessions/{session_id}/status"))

    usage, stored = answer["context_window"]["usage_tokens"], api.messages(session_id)[-1]
    assert status == {
        "session_id": session_id,
        "model": "mochi",
        "message_count": 3,
        "context_window": {
            "dynamic_enabled": True,
            "current_window": 8192,
            "model_max_context": 40960,
            "last_adjustment_reason": "initial_setup",
            "manual_override": False,
            "manual_override_session_id": None,
            "usage_tokens": usage,
            "usage_ratio": round(usage / 8192, 4),
        },
        "prompt_evaluation": {
            "prompt_eval_count": stored["prompt_eval_count"],
            "prompt_eval_duration": stored["prompt_eval_duration"],
            "prompt_eval_cached_count": None,
            "evaluated_tokens": None,
            "cached_share": None,
        },
        "tools_enabled": True,
        "active_tools": [],
        "missing_tools": ["now"],
        "execution_policy": "always_confirm",
        "agents_enabled": True,
        "enabled_agents": [],
        "missing_agents": ["coder"],
        "system_prompt_file": "brief.md",
        "summary": None,
        "summary_model": None,
        "ollama_host": None,
        "last_host": {"name": stub.url.removeprefix("http://"), "reason": "only_host"},
    }
