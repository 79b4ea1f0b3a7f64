"""Compaction: replace the oldest turns of a prompt by a summary that the model writes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import orjson

from mochi_server.chat.prompt_cache import PromptSize
from mochi_server.chat.prompt_fitting import HEADING, TRIMMED_CHARS, Budget, Checkpoint, Prompt, checkpoint_tokens
from mochi_server.chat.turn_window import TurnWindow
from mochi_server.errors import OllamaError
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.errors import is_context_refusal
from mochi_server.ollama.payloads import chat_payload
from mochi_server.ollama.transport import Line
from mochi_server.ollama.types import ChatMessage
from mochi_server.sessions.images import images_of
from mochi_server.sessions.types import Message

_MAX_ATTEMPTS = 8
"""Maximum number of attempts to get a summary.

If Ollama refuses an attempt as too long, the token count in its error improves the estimate for the next attempt.
"""

INSTRUCTION = (
    "Write a summary of the conversation so far that lets you go on with it as if you had read it all. Keep facts, "
    "names, numbers, decisions, open questions and what the user wants, each in a short sentence. Leave out small "
    "talk. Answer with the summary alone."
)


@dataclass
class Compactor:
    """Compactor that requests summaries from the model. ``name`` is the name of the session's model."""

    client: AsyncOllamaClient
    window: TurnWindow
    name: str
    can_think: bool
    keep_alive: str | float | None

    async def checkpoint(self, prompt: Prompt, budget: Budget) -> Checkpoint:
        """Request a summary of the oldest turns. Return it as a checkpoint that shortens the prompt to fit the window.

        Raises:
            ContextOverflow: No checkpoint shortens the prompt enough, or Ollama refused every summary request.
            OllamaError: Ollama failed to write the summary.
        """
        for _ in range(_MAX_ATTEMPTS):
            end = budget.boundary(prompt)
            if end is None:
                break
            try:
                return await self._write(prompt, end, budget.window)
            except OllamaError as refusal:
                if not is_context_refusal(refusal):
                    raise
        raise budget.overflow(prompt)

    async def _write(self, prompt: Prompt, end: int, window: int) -> Checkpoint:
        length = checkpoint_tokens(window)
        text = prompt.checkpoint.text if prompt.checkpoint and prompt.covered else None
        start = max(prompt.covered, prompt.system_count)

        def fits(part: str) -> bool:
            return self.window.room(PromptSize.of(_summary_prompt(part, text or "")), window) >= 2 * length

        for part in _slices(prompt.history, start, end, fits):
            text = await self._request_summary(_summary_prompt(part, text), window, length)
        return Checkpoint(text or "-", prompt.history[end - 1]["message_id"], self.name)

    async def _request_summary(self, messages: list[ChatMessage], window: int, length: int) -> str:
        size = PromptSize.of(messages)
        payload = chat_payload(
            self.name,
            messages,
            think=False if self.can_think else None,
            context_window=window,
            options={"num_predict": self.window.answer_limit(size, length) or length},
            keep_alive=self.keep_alive,
        )
        lines: list[Line] = []
        try:
            await self.client.post_chat(payload, lines.extend)
        except OllamaError as refusal:
            if is_context_refusal(refusal):
                self.window.observe_refusal(refusal, size)
            raise
        return "".join(str((line.get("message") or {}).get("content") or "") for line in lines).strip()


def _slices(history: Sequence[Message], start: int, end: int, fits: Callable[[str], bool]) -> list[str]:
    """Join the messages from ``start`` to ``end`` (exclusive) into as few texts as possible.

    ``fits`` returns whether a text fits into the context window. The middle of a message that does not fit is cut out.
    """
    texts: list[str] = []
    for message in history[start:end]:
        line = _line(message)
        while not fits(line) and len(line) > TRIMMED_CHARS:
            third = len(line) // 3
            line = line[:third] + "\n[...]\n" + line[-third:]
        if texts and fits(f"{texts[-1]}\n\n{line}"):
            texts[-1] += f"\n\n{line}"
        else:
            texts.append(line)
    return texts


def _summary_prompt(text: str, earlier: str | None) -> list[ChatMessage]:
    before = f"{HEADING}{earlier}\n\n" if earlier else ""
    return [
        {"role": "system", "content": INSTRUCTION},
        {"role": "user", "content": f"{before}Conversation:\n\n{text}"},
    ]


def _line(message: Message) -> str:
    calls = message.get("tool_calls")
    calls_note = f" [called {orjson.dumps(calls).decode()}]" if calls else ""
    images_note = f" [showed images: {len(images)}]" if (images := images_of(message)) else ""
    author = f"tool {message.get('tool_name')}" if message["role"] == "tool" else message["role"]
    return f"{author}: {message['content']}{calls_note}{images_note}"
