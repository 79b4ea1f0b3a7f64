"""Compaction: the summary that replaces the oldest turns of a prompt that is too long."""

import orjson

from mochi_server.chat.prompt import (
    HEADING,
    TRIMMED_CHARS,
    Budget,
    Prompt,
    checkpoint_tokens,
)
from mochi_server.constants import MIN_ANSWER_TOKENS
from mochi_server.inference.gateway import ModelGateway
from mochi_server.inference.requests import FixedPrompt, ModelRequest, payload_without_thinking
from mochi_server.inference.token_estimate import PromptSize
from mochi_server.inference.window_allocation import Allocation
from mochi_server.ollama.transport import Line
from mochi_server.ollama.types import ChatMessage
from mochi_server.sessions.checkpoint import Checkpoint
from mochi_server.sessions.types import Message, attachments_of, images_of, tool_calls_of

_INSTRUCTION = (
    "Write a summary of the conversation so far that lets you continue it. Keep facts, names, "
    "numbers, decisions, open questions and what the user wants. Answer with the summary alone."
)


class CompactionPrompt:
    """Prompt that requests a summary of the messages from ``start`` to ``end``: as many as fit, up
    to ``limit``.
    """

    def __init__(self, window: Allocation, prompt: Prompt, budget: Budget) -> None:
        self._window = window
        self._prompt = prompt
        self.budget = budget
        self.summary = prompt.checkpoint.text if prompt.checkpoint and prompt.covered else None
        self.start = self.end = max(prompt.covered, prompt.system_count)
        self.length = checkpoint_tokens(budget.window)
        self.size = PromptSize()
        self.limit = 0
        self._set_limit()

    def _set_limit(self) -> None:
        """Calculate how many messages the summary must cover.

        Raise ``ContextOverflow`` if no summary is enough.
        """
        boundary = self.budget.boundary(self._prompt)
        if boundary is None:
            raise self.budget.overflow(self._prompt)
        self.limit = max(self.limit, boundary)

    async def summarize(
        self, gateway: ModelGateway, model: str, keep_alive: str | float | None
    ) -> Checkpoint:
        """Request summaries until one covers all messages up to ``limit``. Return the last one."""
        payload = payload_without_thinking(self._window.model, model, self.length, keep_alive)
        window = self._window.fixed(self.budget.window)
        request = ModelRequest(allocation=window, payload=payload, prompt=self)
        while self.end < self.limit:
            lines: list[Line] = []
            await gateway.send(request, lines.extend)
            self.proceed("".join(map(_text, lines)).strip())
        last = self._prompt.history[self.end - 1]["message_id"]
        return Checkpoint(self.summary or "-", last, model)

    def proceed(self, summary: str) -> None:
        """Continue with a summary of the messages so far.

        Shorten it if all other messages then fit.
        """
        self.start, self.summary = self.end, summary
        rest = "\n\n".join(map(_line, self._prompt.history[self.start : self.limit]))
        self._make_room(rest, self.length // 4)

    async def fit(self, refused: int | None) -> FixedPrompt:
        """Return a prompt with as many messages as fit into the window.

        A refusal has improved the estimate.
        """
        before = self.size
        if refused is not None:
            self._set_limit()
        messages = _compaction_messages(self._take_text(), self.summary)
        self.size = PromptSize.of(messages)
        if refused is not None and self.size.characters >= before.characters:
            raise self.budget.overflow(self._prompt)
        return FixedPrompt(messages, self.size)

    def _take_text(self) -> str:
        """Join messages into a text that fits, and set ``end``.

        The middle of a message that does not fit is cut.
        """
        text = ""
        for index in range(self.start, self.limit):
            self.end = index
            line = _line(self._prompt.history[index])
            if text and not self._fits(f"{text}\n\n{line}", self.length // 4):
                return text
            text = f"{text}\n\n{line}" if text else self._cut(line)
        self.end = self.limit
        return text

    def _cut(self, line: str) -> str:
        """Cut the middle of a message that does not fit, even without the earlier summary."""
        self._make_room(line, MIN_ANSWER_TOKENS)
        while not self._fits(line, MIN_ANSWER_TOKENS) and len(line) > TRIMMED_CHARS:
            third = len(line) // 3
            line = line[:third] + "\n[...]\n" + line[-third:]
        return line

    def _make_room(self, text: str, summary_tokens: int) -> None:
        """Shorten the earlier summary, or drop it, if the text then fits.

        Otherwise leave it as it is.
        """
        earlier = self.summary or ""
        for divisor in (1, 2, 4, 8, len(earlier) + 1):
            self.summary = earlier[: len(earlier) // divisor]
            if self._fits(text, summary_tokens):
                return
        self.summary = earlier

    def _fits(self, text: str, summary_tokens: int) -> bool:
        """Return whether a text leaves room for a summary, which may be shorter than its maximum
        length.
        """
        size = PromptSize.of(_compaction_messages(text, self.summary or ""))
        room = self._window.estimate.room(size, self.budget.window)
        return room >= max(summary_tokens, MIN_ANSWER_TOKENS)


def _compaction_messages(text: str, earlier: str | None) -> list[ChatMessage]:
    before = f"{HEADING}{earlier}\n\n" if earlier else ""
    return [
        {"role": "system", "content": _INSTRUCTION},
        {"role": "user", "content": f"{before}Conversation:\n\n{text}"},
    ]


def _line(message: Message) -> str:
    author: str = message["role"]
    if message["role"] == "tool":
        author = f"tool {message.get('tool_name')}"
    line = f"{author}: {message['content']}"
    calls = tool_calls_of(message)
    if calls:
        line += f" [called {orjson.dumps(calls).decode()}]"
    images = images_of(message)
    if images:
        line += f" [showed images: {len(images)}]"
    for attachment in attachments_of(message):
        line += f" [attached the file {attachment['name']!r}]"
    return line


def _text(line: Line) -> str:
    message = line.get("message") or {}
    return str(message.get("content") or "")
