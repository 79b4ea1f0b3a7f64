"""Prompts of a turn that fit into the context window. If necessary, the model summarizes the oldest turns."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import orjson

from mochi_server.chat.images import with_images
from mochi_server.chat.prompt_fitting import HEADING, TRIMMED_CHARS, Budget, Checkpoint, Prompt, checkpoint_tokens
from mochi_server.chat.turn_writer import TurnWriter
from mochi_server.errors import ContextOverflow
from mochi_server.events import ContextCompacted, Publish, TurnWarning
from mochi_server.inference.estimate import PromptSize
from mochi_server.inference.gateway import ModelGateway
from mochi_server.inference.request import FixedPrompt, ModelRequest
from mochi_server.inference.windows import Allocation
from mochi_server.ollama.payloads import chat_payload
from mochi_server.ollama.transport import Line
from mochi_server.ollama.types import ChatMessage
from mochi_server.sessions.history import History
from mochi_server.sessions.types import Message, images_of

_INSTRUCTION = (
    "Write a summary of the conversation so far that lets you go on with it as if you had read it all. Keep facts, "
    "names, numbers, decisions, open questions and what the user wants, each in a short sentence. Leave out small "
    "talk. Answer with the summary alone."
)
_RELOAD = (
    "Ollama reloads the model, because a session has a context window that was set by hand and differs from the window "
    "of other sessions with this model."
)


@dataclass(eq=False)
class PromptFitter:
    """Fitter of the prompts of one turn. It publishes what the prompts omit."""

    gateway: ModelGateway
    window: Allocation
    writer: TurnWriter
    publish: Publish
    report: Callable[[str], None]
    """Callback that receives the status ``compacting``."""
    session_id: str
    model: str
    keep_alive: str | float | None
    checkpoint: Checkpoint | None
    _last_compaction: tuple[int, int] = field(default=(0, 0), init=False)
    """Number of dropped messages and number of trimmed tool results in the latest compaction event."""
    _warned: set[str] = field(default_factory=set, init=False)

    def prompt(self, history: History, turn_start: int, tools: Sequence[dict[str, Any]]) -> "TurnPrompt":
        """Return the prompt that answers message ``turn_start``. Raises ``ContextOverflow`` if it cannot fit."""
        shows_images = self.window.model.has_capability("vision")
        prompt = TurnPrompt(self, Prompt(history, turn_start, self.checkpoint, shows_images=shows_images), tools)
        if largest := self.window.context_length:
            budget = prompt.budget(largest)
            if budget.is_exceeded_by(prompt.prompt):
                budget.check(prompt.prompt.shortest)  # neither a larger window nor a summary would help
        return prompt

    async def compact(self, prompt: Prompt, budget: Budget) -> Checkpoint:
        """Replace the oldest turns of a prompt by a summary, and store the summary in the session.

        Raises ``ContextOverflow`` if no summary shortens the prompt enough, and ``OllamaError``.
        """
        self.report("compacting")
        part = _SummaryPrompt(self.window, prompt, budget)
        while part.end < part.limit:
            part.summary = await self._request_summary(part)
            part.start = part.end
        last = prompt.history[part.end - 1]["message_id"]
        self.checkpoint = Checkpoint(part.summary or "-", last, self.model)
        await self.writer.conversation.patch({"compaction": asdict(self.checkpoint)})
        self.gateway.observer.context_compacted()
        return self.checkpoint

    async def _request_summary(self, part: "_SummaryPrompt") -> str:
        payload = chat_payload(
            self.model,
            (),
            think=False if self.window.model.has_capability("thinking") else None,
            options={"num_predict": part.length},
            keep_alive=self.keep_alive,
        )
        lines: list[Line] = []
        allocation = self.window.fixed(part.budget.window)
        await self.gateway.send(ModelRequest(allocation=allocation, payload=payload, prompt=part), lines.extend)
        return "".join(str((line.get("message") or {}).get("content") or "") for line in lines).strip()

    def publish_compaction(self, prompt: Prompt) -> None:
        """Publish the numbers of dropped messages and trimmed tool results, if they have changed."""
        compaction = (prompt.dropped, prompt.trimmed)
        if compaction != self._last_compaction:
            self._last_compaction = compaction
            self.publish([ContextCompacted(*compaction, summary_used=prompt.dropped > 0)])

    def warn(self, code: str, text: str) -> None:
        """Publish a warning, once in each turn."""
        if code not in self._warned:
            self._warned.add(code)
            self.publish([TurnWarning(code, text)])


@dataclass(eq=False)
class TurnPrompt:
    """Prompt of one request of a turn."""

    fitter: PromptFitter
    prompt: Prompt
    tools: Sequence[dict[str, Any]]
    _is_new: bool = field(default=True, init=False)

    @property
    def size(self) -> PromptSize:
        return self.prompt.size_with(self.tools)

    async def fit(self, window: int | None, refused: int | None) -> FixedPrompt:
        """Shorten the prompt if it is too long or has been refused. Raise ``ContextOverflow`` if that is impossible."""
        fitter, slots, history = self.fitter, self.fitter.gateway.slots, self.prompt.history
        if window is None and refused is not None:
            raise ContextOverflow(None, refused)
        if self._is_new:
            self._is_new = False
            if fitter.window.differs:
                fitter.warn("WINDOW_DIFFERS", _RELOAD)
            if trim_end := slots.trim_end(fitter.session_id, window, history):
                self.prompt = replace(self.prompt, trim_end=trim_end)
        if window is not None:
            self.prompt = await self._shorten(self.budget(window), forced=refused is not None)
        slots.record_trim(fitter.session_id, window, history, self.prompt.trim_limit)
        fitter.publish_compaction(self.prompt)
        messages, missing = await with_images(self.prompt.messages, fitter.writer.load_image)
        if missing:
            fitter.warn("IMAGE_NOT_FOUND", f"The prompt omits images that are no longer stored: {missing}.")
        return FixedPrompt(messages, self.size)

    def budget(self, window: int) -> Budget:
        """Return the budget of the prompt in a window of ``window`` tokens."""
        estimate = self.fitter.window.estimate
        return Budget(window, lambda prompt: estimate.tokens(prompt.size_with(self.tools)))

    async def _shorten(self, budget: Budget, *, forced: bool) -> Prompt:
        """Return a prompt that fits the window. If ``forced`` is true, shorten even a prompt that seems to fit."""
        prompt = self.prompt
        if not forced and not budget.is_exceeded_by(prompt):
            return prompt
        prompt = replace(prompt, trim_end=max(prompt.trim_end, prompt.turn_start))
        if (forced or budget.is_exceeded_by(prompt)) and budget.boundary(prompt) is not None:
            prompt, forced = replace(prompt, checkpoint=await self.fitter.compact(prompt, budget)), False
        return budget.fit(prompt, forced=forced)


class _SummaryPrompt:
    """Prompt that requests a summary of the messages from ``start`` to ``end``: as many as fit, up to ``limit``.

    ``summary`` is the summary of the messages before ``start``, or None.
    """

    def __init__(self, window: Allocation, prompt: Prompt, budget: Budget) -> None:
        self._window = window
        self._prompt = prompt
        self.budget = budget
        self.summary = prompt.checkpoint.text if prompt.checkpoint and prompt.covered else None
        self.start = self.end = max(prompt.covered, prompt.system_count)
        self.length = checkpoint_tokens(budget.window)
        """Maximum length of the summary in tokens."""
        self.size = PromptSize()
        """Size of the latest prompt."""
        self.limit = 0
        self._set_limit()

    def _set_limit(self) -> None:
        """Calculate how many messages the summary must cover. Raise ``ContextOverflow`` if no summary is enough."""
        boundary = self.budget.boundary(self._prompt)
        if boundary is None:
            raise self.budget.overflow(self._prompt)
        self.limit = max(self.limit, boundary)

    async def fit(self, _: int | None, refused: int | None) -> FixedPrompt:
        """Return a prompt with as many messages as fit into the window. A refusal has improved the estimate."""
        before = self.size
        if refused is not None:
            self._set_limit()
        messages = _summary_messages(self._take_text(), self.summary)
        self.size = PromptSize.of(messages)
        if refused is not None and self.size.characters >= before.characters:
            raise self.budget.overflow(self._prompt)
        return FixedPrompt(messages, self.size)

    def _take_text(self) -> str:
        """Join messages into a text that fits, and set ``end``. The middle of a message that does not fit is cut."""
        text = ""
        for index in range(self.start, self.limit):
            line, self.end = _line(self._prompt.history[index]), index
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
        return self._window.estimate.room(size, self.budget.window) >= 2 * self.length


def _summary_messages(text: str, earlier: str | None) -> list[ChatMessage]:
    before = f"{HEADING}{earlier}\n\n" if earlier else ""
    return [
        {"role": "system", "content": _INSTRUCTION},
        {"role": "user", "content": f"{before}Conversation:\n\n{text}"},
    ]


def _line(message: Message) -> str:
    calls = message.get("tool_calls")
    calls_note = f" [called {orjson.dumps(calls).decode()}]" if calls else ""
    images_note = f" [showed images: {len(images)}]" if (images := images_of(message)) else ""
    author = f"tool {message.get('tool_name')}" if message["role"] == "tool" else message["role"]
    return f"{author}: {message['content']}{calls_note}{images_note}"
