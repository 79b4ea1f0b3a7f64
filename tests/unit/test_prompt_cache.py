"""Prompts with cached blocks equal newly encoded ones."""

import random
from collections.abc import Sequence
from typing import Any

import orjson

from mochi_server.chat.compaction import RecentSummaries, recall_summary, remember_summary
from mochi_server.chat.prompt import (
    HIDDEN_IMAGES,
    TRIMMED_CHARS,
    Prompt,
)
from mochi_server.inference.messages import shows_images, to_ollama_messages
from mochi_server.inference.token_estimate import PromptSize
from mochi_server.ollama.payloads import chat_payload
from mochi_server.ollama.types import Encoded
from mochi_server.sessions import AssistantMessage, Message, ToolMessage
from mochi_server.sessions.checkpoint import Checkpoint
from mochi_server.sessions.history import History
from mochi_server.sessions.session import system_message, user_message
from mochi_server.sessions.types import ImageReference, with_unreadable_images
from mochi_server.util.clock import new_id, now
from tests.support.cases import cases

IMAGE: ImageReference = {"sha256": "0" * 64, "media_type": "image/png"}


def conversation(seed: int, turns: int = 200) -> list[Message]:
    """Return turns of every kind: with thinking, tools, calls without results, empty answers and
    images.
    """
    chance = random.Random(seed)
    messages: list[Message] = [system_message("Be brief.")] if chance.random() < 0.5 else []
    for number in range(turns):
        question = user_message(f"question {number}")
        messages.append(question)
        if chance.random() < 0.1:
            question["images"] = [{"sha256": "a" * 64, "media_type": "image/png"}]
        for _ in range(chance.choice([0, 0, 0, 1, 3])):
            messages += _round(chance)
        messages.append(
            _said(
                "" if chance.random() < 0.1 else f"answer {number}", thinking=chance.random() < 0.5
            )
        )
    return messages[: -chance.randint(1, 8)]


def _said(content: str, *, thinking: bool = False) -> AssistantMessage:
    message: AssistantMessage = {
        "role": "assistant",
        "content": content,
        "model": "m",
        "message_id": new_id(),
        "timestamp": now(),
    }
    return {**message, "thinking": "hm"} if thinking else message


def _round(chance: random.Random) -> list[Message]:
    ids = [new_id() for _ in range(chance.randint(1, 3))]
    calls: Any = [
        {"id": one, "function": {"index": 0, "name": "add", "arguments": {"a": 1}}} for one in ids
    ]
    results: list[ToolMessage] = [
        {
            "role": "tool",
            "content": "r" * chance.choice([5, TRIMMED_CHARS * 3]),
            "tool_name": "add",
            "tool_call_id": one,
            "message_id": new_id(),
            "timestamp": now(),
        }
        for one in ids[: chance.choice([1, 2, 3])]
    ]
    answer = _said("", thinking=True)
    answer["tool_calls"] = calls
    return [answer, *results]


def sent(prompt: Prompt) -> Any:
    return orjson.loads(orjson.dumps(chat_payload("m", prompt.messages)["messages"]))


def last_user_index(messages: Sequence[Message]) -> int:
    return max(i for i, message in enumerate(messages) if message["role"] == "user")


@cases("seed", range(3))
def test_cached_blocks_equal_their_messages(seed: int) -> None:
    messages = conversation(seed)
    prompt, plain = (
        Prompt(History.of(messages), last_user_index(messages)),
        to_ollama_messages(messages, last_user_index(messages)),
    )
    assert sent(prompt) == plain
    assert prompt.size_with([]) == PromptSize.of(plain)
    assert any(isinstance(part, Encoded) for part in prompt.messages)
    assert shows_images(prompt.history) == any("images" in message for message in plain)


@cases("seed", range(3))
def test_model_without_vision_gets_no_images(seed: int) -> None:
    messages = conversation(seed)
    blind = Prompt(History.of(messages), last_user_index(messages), shows_images=False)
    plain = to_ollama_messages(messages, last_user_index(messages))
    for message in plain:
        if message.pop("images", None):
            message["content"] = f"{message['content']}\n{HIDDEN_IMAGES}".strip()
    assert sent(blind) == plain
    assert blind.size_with([]) == PromptSize.of(plain)


def test_history_with_only_unreadable_images_shows_none() -> None:
    messages: list[Message] = [{**user_message("Look"), "images": [IMAGE]}]
    assert shows_images(History.of(messages))
    assert not shows_images(History.of([with_unreadable_images(messages[0])]))


def test_invalid_references_are_not_marked_as_unreadable() -> None:
    invalid: list[Any] = ["dot.png", {"sha256": "dot"}]
    message: Message = {**user_message("Look"), "images": [*invalid, IMAGE]}
    marked = with_unreadable_images(message)
    assert dict(marked)["images"] == [*invalid, {**IMAGE, "unreadable": True}]


def test_answer_with_only_an_image_is_part_of_the_prompt() -> None:
    drawn: AssistantMessage = {
        "role": "assistant",
        "content": "",
        "message_id": new_id(),
        "timestamp": now(),
        "images": [{"sha256": "0" * 64, "media_type": "image/png"}],
    }
    messages: list[Message] = [user_message("Draw."), drawn, user_message("Make it darker.")]
    _, answer, _ = to_ollama_messages(messages, 2)
    assert (answer["content"], answer["images"]) == ("", ["0" * 64])


def test_trimming_removes_images_of_old_results() -> None:
    result: ToolMessage = {
        "role": "tool",
        "content": "A dot",
        "message_id": new_id(),
        "timestamp": now(),
        "images": [{"sha256": "0" * 64, "media_type": "image/png"}],
    }
    history = History.of([user_message("Look"), result, user_message("Again")])
    whole, trimmed = Prompt(history, 2), Prompt(history, 2, trim_end=2)
    assert sent(whole)[1] == {"role": "tool", "content": "A dot", "images": ["0" * 64]}
    assert sent(trimmed)[1] == {
        "role": "tool",
        "content": "A dot\n[The images of this old result are left out.]",
    }
    assert (whole.size_with([]).images, trimmed.size_with([]).images, trimmed.trimmed) == (1, 0, 1)


def test_reused_summary_trims_no_result_of_the_current_turn() -> None:
    """A user of a coding agent goes back and asks something else."""
    result: ToolMessage = {
        "role": "tool",
        "content": "x" * 5000,
        "message_id": new_id(),
        "timestamp": now(),
    }
    begin = [user_message("One"), user_message("Two")]
    end = [user_message("Three"), user_message("Four")]
    covered = Checkpoint("Summary", begin[1]["message_id"], "mochi")
    summaries: RecentSummaries = {}
    longer = Prompt(History.of([*begin, *end]), 3, covered, trim_end=3)
    remember_summary(summaries, longer, "mochi")
    shorter = Prompt(History.of([*begin, user_message("Look"), result]), 2)
    recalled = recall_summary(summaries, shorter, "mochi")
    assert (recalled.covered, recalled.trimmed) == (2, 0)
    assert recall_summary(summaries, shorter, "other") == shorter


@cases("seed", range(3))
def test_trimming_shortens_old_tool_results(seed: int) -> None:
    messages = conversation(seed)
    whole = Prompt(History.of(messages), last_user_index(messages))
    trimmed = Prompt(whole.history, whole.turn_start, trim_end=whole.turn_start)
    old = [
        i
        for i, m in enumerate(messages[: whole.turn_start])
        if m["role"] == "tool" and len(m["content"]) > 400
    ]
    assert trimmed.trimmed == len(old) > 0
    assert (
        whole.size_with([]).characters - trimmed.size_with([]).characters > len(old) * TRIMMED_CHARS
    )
    assert [m["role"] for m in sent(trimmed)] == [m["role"] for m in sent(whole)]
    assert trimmed.size_with([]) == PromptSize.of(sent(trimmed))


@cases("seed", range(3))
def test_checkpoint_replaces_the_messages_it_covers(seed: int) -> None:
    messages = conversation(seed)
    system = 1 if messages[0]["role"] == "system" else 0
    ends = [i for i, message in enumerate(messages) if message["role"] == "user" and i > system]
    for end in random.Random(seed).sample(ends, 5):
        checkpoint = Checkpoint("what was said", messages[end - 1]["message_id"], "m")
        prompt = Prompt(History.of(messages), last_user_index(messages), checkpoint)
        assert prompt.dropped == end - system
        found = sent(prompt)
        assert "what was said" in found[system]["content"]
        assert found[system + 2 :] == to_ollama_messages(
            messages[end:], last_user_index(messages) - end
        )
        assert prompt.size_with([]) == PromptSize.of(found)
