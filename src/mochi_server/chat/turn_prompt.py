"""Prompts of a turn, which are shortened until they fit into the context window."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from mochi_server.chat.compaction import Compactor
from mochi_server.chat.images import with_images
from mochi_server.chat.prompt_fitting import Budget, Checkpoint, Prompt
from mochi_server.chat.turn_writer import TurnWriter
from mochi_server.errors import ContextOverflow
from mochi_server.events import ContextCompacted, Publish, TurnWarning
from mochi_server.inference.estimate import PromptSize
from mochi_server.inference.gateway import ModelGateway
from mochi_server.inference.request import FixedPrompt
from mochi_server.inference.windows import Allocation
from mochi_server.sessions.history import History

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
    compactor: Compactor
    checkpoint: Checkpoint | None
    _last_compaction: tuple[int, int] = field(default=(0, 0), init=False)
    """Number of dropped messages and number of trimmed tool results in the latest compaction event."""
    _published: set[str] = field(default_factory=set, init=False)
    """Codes of the warnings that the turn has published."""

    def prompt(self, history: History, turn_start: int, tools: Sequence[dict[str, Any]]) -> "TurnPrompt":
        """Return the prompt for a history. ``turn_start`` is the index of the user message to answer.

        Raises:
            ContextOverflow: The prompt is too long for any window, even if it is shortened.
        """
        shows_images = self.window.model.has_capability("vision")
        prompt = TurnPrompt(self, Prompt(history, turn_start, self.checkpoint, shows_images=shows_images), tools)
        if largest := self.window.context_length:
            budget = prompt.budget(largest)
            if budget.is_exceeded_by(prompt.prompt):
                budget.check(prompt.prompt.shortest)  # neither a larger window nor a summary would help
        return prompt

    async def compact(self, prompt: Prompt, budget: Budget) -> Checkpoint:
        """Replace the oldest turns of a prompt by a summary, and store the summary in the session."""
        self.report("compacting")
        self.checkpoint = await self.compactor.checkpoint(prompt, budget)
        await self.writer.patch({"compaction": asdict(self.checkpoint)})
        self.gateway.observer.context_compacted()
        return self.checkpoint

    def publish_compaction(self, prompt: Prompt) -> None:
        """Publish how many messages were dropped and how many tool results trimmed, if the numbers have changed."""
        compaction = (prompt.dropped, prompt.trimmed)
        if compaction != self._last_compaction:
            self._last_compaction = compaction
            self.publish([ContextCompacted(prompt.dropped, prompt.trimmed, summary_used=prompt.dropped > 0)])

    def warn(self, code: str, text: str) -> None:
        """Publish a warning, once in each turn."""
        if code not in self._published:
            self._published.add(code)
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
        if self._is_new and fitter.window.differs:
            fitter.warn("WINDOW_DIFFERS", _RELOAD)
        if self._is_new and (trim_end := slots.trim_end(fitter.session_id, window, history)):
            self.prompt = replace(self.prompt, trim_end=trim_end)
        self._is_new = False
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
