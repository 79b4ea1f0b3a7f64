"""Scripted model whose replies suit screenshots."""

from collections.abc import Callable

from mochi_stub import Model
from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.reply import Gate, Part, Reasoning, Reply, Text, ToolCalls

_CAN = ("completion", "tools", "thinking")
MODELS = [
    Model("qwen3:14b", _CAN, context_length=40_960, chars_per_token=4),
    Model("gemma3:12b", ("completion", "vision"), context_length=131_072, chars_per_token=4),
    Model("llama3.2:3b", ("completion", "tools"), context_length=131_072, chars_per_token=4),
]
WHY = {
    "qwen3:14b": "Sunlight is a mixture of all colours. Air molecules scatter short waves far more than long "
    "ones, so the blue part of the light reaches us from every direction: the sky looks blue.",
    "gemma3:12b": "Because of Rayleigh scattering. The shorter the wavelength, the more strongly air deflects "
    "light; blue is deflected about five times as much as red.",
    "llama3.2:3b": "The air scatters blue light more than red light. That is why the sky is blue by day, and "
    "red at sunset, when the light has had a longer way.",
}
CODE = "print('Hello, sky')"
MARKDOWN = f"""A **short** program:

```python
{CODE}
```

| Language | Typing |
|---|---|
| Python | dynamic |
"""
ATTACK = """<img src=x onerror="document.title='attacked'"> <b>bold</b>

[link](javascript:document.title='attacked') ![picture](http://127.0.0.1:9/picture.png)

[site](https://example.com/)
"""


def _describe(prompt: Prompt) -> str:
    """Return the model, the system prompt and the number of images of the prompt."""
    first = prompt.messages[0]
    system = first.content if first.role == "system" else "none"
    images = sum(message.images for message in prompt.messages)
    return (
        f"Model {prompt.model}; system prompt {system}; images {images}; tools {len(prompt.tools)}."
    )


SUMMARY = '{"summary": "The user asks about the sky.", "topics": ["sky"]}'
TEXTS: dict[str, Callable[[Prompt], str]] = {
    "Summarize": lambda _: SUMMARY,
    "attack": lambda _: ATTACK,
    "program": lambda _: MARKDOWN,
    "describe": _describe,
}


class Scene:
    """Scripted model. An answer to "hold" waits in the middle until `gate` opens."""

    def __init__(self) -> None:
        self.gate = Gate()

    def reply(self, prompt: Prompt) -> Reply | None:
        if any("You are librarian" in message.content for message in prompt.messages[:1]):
            return self._librarian(prompt)
        results = [
            message.content
            for message in prompt.messages[prompt.last_user_index :]
            if message.role == "tool"
        ]
        text = prompt.user_text
        for word, reply in TEXTS.items():
            if word in text:
                return Reply.of(reply(prompt))
        if "dice" in text:
            return _dice(results)
        if "librarian" in text:
            return _delegating(results, times=2 if "twice" in text else 1)
        if "sky" in text:
            return Reply.of(
                WHY[prompt.model],
                reasoning="Rayleigh, in plain words." if prompt.includes_reasoning else "",
            )
        held = Reply([Text(["One, ", "two, ", "three, "]), self.gate, Text("four.")])
        return held if "hold" in text else None

    def _librarian(self, prompt: Prompt) -> Reply:
        if any(message.role == "tool" for message in prompt.messages):
            return Reply.of("I have noted the three books.")
        if any(message.role == "assistant" for message in prompt.messages):
            return Reply.of(
                tool_calls=[ToolCall("note", {"text": "Three books by Ursula K. Le Guin"})]
            )
        return Reply.of("1. Choose three books. 2. Note them. 3. Report.")


def _dice(results: list[str]) -> Reply:
    if results:
        return Reply.of(f"The dice have fallen. {results[-1]}, a good throw to begin with!")
    parts: list[Part] = [
        Reasoning(
            "The user wants two dice thrown. I have a tool for that, so I need not make the "
            "numbers up."
        ),
        Text("I will throw them for you."),
        ToolCalls([ToolCall("roll_dice", {"sides": 6, "count": 2})]),
    ]
    return Reply(parts)


def _delegating(results: list[str], *, times: int) -> Reply:
    if results:
        return Reply.of("The librarian has put three books by Le Guin on your list.")
    arguments = {
        "agent": "librarian",
        "instruction": "Put three books by Ursula K. Le Guin on the reading list.",
    }
    return Reply.of(tool_calls=[ToolCall("agent", arguments)] * times)
