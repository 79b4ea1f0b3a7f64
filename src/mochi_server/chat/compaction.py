"""Compaction: replace the oldest turns of a prompt by a summary that the model writes."""

from dataclasses import dataclass, field

import orjson

from mochi_server.chat.prompt_fitting import HEADING, TRIMMED_CHARS, Budget, Checkpoint, Prompt, checkpoint_tokens
from mochi_server.inference.estimate import PromptSize
from mochi_server.inference.gateway import ModelGateway
from mochi_server.inference.request import FixedPrompt, ModelRequest
from mochi_server.inference.windows import Allocation
from mochi_server.ollama.payloads import chat_payload
from mochi_server.ollama.transport import Line
from mochi_server.ollama.types import ChatMessage
from mochi_server.sessions.images import images_of
from mochi_server.sessions.types import Message

INSTRUCTION = (
    "Write a summary of the conversation so far that lets you go on with it as if you had read it all. Keep facts, "
    "names, numbers, decisions, open questions and what the user wants, each in a short sentence. Leave out small "
    "talk. Answer with the summary alone."
)


@dataclass
class Compactor:
    """Compactor that requests summaries from the model of a turn. ``name`` is the name of the session's model."""

    gateway: ModelGateway
    window: Allocation
    name: str
    keep_alive: str | float | None

    async def checkpoint(self, prompt: Prompt, budget: Budget) -> Checkpoint:
        """Request a summary of the oldest turns. Return it as a checkpoint that shortens the prompt to fit the window.

        Raises:
            ContextOverflow: No checkpoint shortens the prompt enough, or Ollama refused every summary request.
            OllamaError: Ollama failed to write the summary.
        """
        text = prompt.checkpoint.text if prompt.checkpoint and prompt.covered else None
        part = _SummaryPrompt(self.window, prompt, budget, text, max(prompt.covered, prompt.system_count))
        part.set_limit()
        while part.end < part.limit:
            part.summary = await self._request_summary(part)
            part.start = part.end
        return Checkpoint(part.summary or "-", prompt.history[part.end - 1]["message_id"], self.name)

    async def _request_summary(self, part: "_SummaryPrompt") -> str:
        payload = chat_payload(
            self.name,
            (),
            think=False if self.window.model.has_capability("thinking") else None,
            options={"num_predict": part.length},
            keep_alive=self.keep_alive,
        )
        lines: list[Line] = []
        allocation = self.window.fixed(part.budget.window)
        await self.gateway.send(ModelRequest(allocation=allocation, payload=payload, prompt=part), lines.extend)
        return "".join(str((line.get("message") or {}).get("content") or "") for line in lines).strip()


@dataclass(eq=False)
class _SummaryPrompt:
    """Prompt that requests a summary of the messages from ``start`` to ``end``: as many as fit, up to ``limit``."""

    window: Allocation
    prompt: Prompt
    budget: Budget
    summary: str | None
    """Summary of the messages before ``start``."""
    start: int
    limit: int = 0
    end: int = field(init=False)
    size: PromptSize = field(default_factory=PromptSize)
    """Size of the latest prompt."""

    def __post_init__(self) -> None:
        self.end = self.start

    @property
    def length(self) -> int:
        """Maximum length of the summary in tokens."""
        return checkpoint_tokens(self.budget.window)

    def set_limit(self) -> None:
        """Calculate how many messages the summary must cover. Raise ``ContextOverflow`` if no summary is enough."""
        boundary = self.budget.boundary(self.prompt)
        if boundary is None:
            raise self.budget.overflow(self.prompt)
        self.limit = max(self.limit, boundary)

    async def fit(self, _: int | None, refused: int | None) -> FixedPrompt:
        """Return a prompt with as many messages as fit into the window. A refusal has improved the estimate."""
        before = self.size
        if refused is not None:
            self.set_limit()
        messages = _summary_messages(self._take_text(), self.summary)
        self.size = PromptSize.of(messages)
        if refused is not None and self.size.characters >= before.characters:
            raise self.budget.overflow(self.prompt)
        return FixedPrompt(messages, self.size)

    def _take_text(self) -> str:
        """Join messages into a text that fits, and set ``end``. The middle of a message that does not fit is cut."""
        text = ""
        for index in range(self.start, self.limit):
            line, self.end = _line(self.prompt.history[index]), index
            while not self._fits(line) and len(line) > TRIMMED_CHARS:
                third = len(line) // 3
                line = line[:third] + "\n[...]\n" + line[-third:]
            longer = f"{text}\n\n{line}" if text else line
            if text and not self._fits(longer):
                return text
            text = longer
        self.end = self.limit
        return text

    def _fits(self, text: str) -> bool:
        size = PromptSize.of(_summary_messages(text, self.summary or ""))
        return self.window.estimate.room(size, self.budget.window) >= 2 * self.length


def _summary_messages(text: str, earlier: str | None) -> list[ChatMessage]:
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
