"""Model call of a turn: fit the prompt into the context window, send it, and retry if Ollama refuses it.

The requests forbid Ollama to truncate prompts. If Ollama refuses one, the server changes the window or the prompt.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from mochi_server.chat.compaction import Compactor
from mochi_server.chat.first_token import FirstTokenWait
from mochi_server.chat.images import with_images
from mochi_server.chat.prompt_cache import shows_images
from mochi_server.chat.prompt_fitting import Budget, Checkpoint, Prompt
from mochi_server.chat.turn_input import GenerationOptions
from mochi_server.chat.turn_window import TurnWindow
from mochi_server.chat.turn_writer import TurnWriter
from mochi_server.constants import RELOADING_OPTIONS
from mochi_server.errors import ContextOverflow, OllamaError
from mochi_server.events import ChatEvent, ContextCompacted, Publish, Status, TurnWarning
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.errors import is_context_refusal, is_out_of_memory
from mochi_server.ollama.payloads import chat_payload
from mochi_server.ollama.request_tracker import TrackedRequest
from mochi_server.ollama.slot_prompts import Exchange
from mochi_server.ollama.transport import Line, OnLines
from mochi_server.ollama.types import ModelInfo
from mochi_server.services.context_window import WindowRegistry
from mochi_server.sessions.history import History
from mochi_server.sessions.session import ChatSession

_MAX_ATTEMPTS = 8
"""Maximum number of requests for one answer. After a rejected prompt, the prompt or the window size changes."""


@dataclass(eq=False)
class ModelCall:
    """Sender of one turn's requests to the model."""

    client: AsyncOllamaClient
    windows: WindowRegistry
    writer: TurnWriter
    publish: Publish
    model: ModelInfo
    session: ChatSession
    generation: GenerationOptions

    def __post_init__(self) -> None:
        defaults, generation = self.session.metadata, self.generation
        self.name = self.session.model
        self.window = TurnWindow(self.windows, self.model, self.session, self.writer.history)
        self._think = generation.think if generation.think is not None else defaults.think
        options = {**(defaults.options or {}), **(generation.options or {})}
        # Imported sessions may have options that would reload the model.
        self._options = {name: value for name, value in options.items() if name not in RELOADING_OPTIONS}
        answer_format = defaults.format if generation.format is None else generation.format
        self._format = None if answer_format == "" else answer_format
        self._keep_alive = generation.keep_alive if generation.keep_alive is not None else defaults.keep_alive
        self._checkpoint = Checkpoint.from_dict(defaults.compaction)
        self._last_compaction: tuple[int, int] = (0, 0)
        """Number of dropped messages and number of trimmed tool results in the latest compaction event."""
        self._reported_missing = False
        self._began = time.monotonic()

    def warnings(self, tools: Sequence[Any]) -> list[ChatEvent]:
        """Return a warning event for each requested feature that the model does not support."""
        features = (
            ("thinking", self._think, "THINKING_NOT_SUPPORTED", "think"),
            ("tools", tools, "TOOLS_NOT_SUPPORTED", "use tools"),
            ("vision", shows_images(self.writer.history), "IMAGES_NOT_SUPPORTED", "see images"),
        )
        return [
            TurnWarning(code, f"Model {self.name!r} cannot {verb}. The request omits this feature.")
            for feature, is_wanted, code, verb in features
            if is_wanted and not self.model.can(feature)
        ]

    async def send(
        self,
        history: History,
        tools: list[dict[str, Any]],
        turn_start: int,
        on_lines: OnLines,
        *,
        answer_id: str,
        format: dict[str, Any] | None = None,
    ) -> None:
        """Send a history to the model and pass the lines of its answer to ``on_lines``.

        ``turn_start`` is the index of the user message to answer. ``answer_id`` is the message ID of the new answer.
        ``format`` is a JSON schema that overrides the format of the turn.

        Raises:
            ContextOverflow: The prompt is too long even after the server has shortened it.
            OllamaError: Ollama failed.
            OllamaUnreachable: Ollama did not accept the connection.
        """
        tools = tools if self.model.can("tools") else []
        prompt = Prompt(history, turn_start, self._checkpoint, shows_images=self.model.can("vision"))
        if largest := self.window.context_length:
            budget = self._budget(largest, tools)
            if budget.is_exceeded_by(prompt):
                budget.check(prompt.shortest)  # neither a larger window nor a summary would help
        await self.window.decide(prompt.size_with(tools))
        if trim_end := self.window.trim_end(history):
            prompt = replace(prompt, trim_end=trim_end)
        must_shorten = False
        for _ in range(_MAX_ATTEMPTS):
            prompt = await self._fit(prompt, tools, forced=must_shorten)
            self.window.record_trim(history, prompt.trim_limit)
            self._publish_compaction(prompt)
            refusal = await self._attempt(prompt, tools, on_lines, answer_id, format)
            if refusal is None:
                return
            must_shorten = not self.window.adapt(refusal, prompt.size_with(tools))
        raise ContextOverflow(self.window.size, self.window.estimate(prompt.size_with(tools)))

    async def _fit(self, prompt: Prompt, tools: list[dict[str, Any]], *, forced: bool) -> Prompt:
        """Return a prompt that fits the window. If ``forced`` is true, shorten even a prompt that seems to fit."""
        if self.window.size is None:
            return prompt
        budget = self._budget(self.window.size, tools)
        if not forced and not budget.is_exceeded_by(prompt):
            return prompt
        prompt = replace(prompt, trim_end=max(prompt.trim_end, prompt.turn_start))
        if (forced or budget.is_exceeded_by(prompt)) and budget.boundary(prompt) is not None:
            prompt, forced = replace(prompt, checkpoint=await self._compact(prompt, budget)), False
        return budget.fit(prompt, forced=forced)

    def _budget(self, window: int, tools: list[dict[str, Any]]) -> Budget:
        return Budget(window, lambda prompt: self.window.estimate(prompt.size_with(tools)))

    async def _compact(self, prompt: Prompt, budget: Budget) -> Checkpoint:
        self.publish([Status("compacting", round(time.monotonic() - self._began, 3))])
        can_think, keep_alive = self.model.can("thinking"), self._keep_alive
        compactor = Compactor(self.client, self.window, self.name, can_think=can_think, keep_alive=keep_alive)
        self._checkpoint = await compactor.checkpoint(prompt, budget)
        await self.writer.patch({"compaction": asdict(self._checkpoint)})
        self.windows.on_compacted()
        return self._checkpoint

    async def _attempt(
        self,
        prompt: Prompt,
        tools: list[dict[str, Any]],
        on_lines: OnLines,
        answer_id: str,
        format: dict[str, Any] | None,
    ) -> OllamaError | None:
        """Send a prompt once. If Ollama refuses the prompt and another attempt may succeed, return the error."""
        size = prompt.size_with(tools)
        limit = self.window.answer_limit(size, self._options.get("num_predict"), counted=self.window.counted)
        messages, missing = await with_images(prompt.messages, self.writer.load_image)
        if missing and not self._reported_missing:
            self._reported_missing = True
            text = f"The prompt omits images that are no longer stored: {missing}."
            self.publish([TurnWarning("IMAGE_NOT_FOUND", text)])
        payload = chat_payload(
            self.name,
            messages,
            tools=tools,
            think=self._think_value(),
            context_window=self.window.size,
            options=self._options | ({} if limit is None else {"num_predict": limit}),
            format=self._format if format is None else format,
            keep_alive=self._keep_alive,
            logprobs=self.generation.logprobs,
        )
        tokens = 0
        with (
            self.client.tracker.request(self.name) as request,
            FirstTokenWait(lambda: self._state_of(request), self.publish, self._began) as waiting,
        ):

            def receive(lines: list[Line]) -> None:
                if not request.answering:
                    waiting.end()
                    self.client.tracker.first_token(request)
                on_lines(lines)
                if lines[-1].get("done"):
                    nonlocal tokens
                    tokens = self.window.used_tokens(lines[-1], size)
                    if events := self.window.record_usage(lines[-1], size, limit):
                        self.publish(events)

            try:
                number = await self.client.post_chat(payload, receive)
            except OllamaError as error:
                if request.answering or not (is_context_refusal(error) or is_out_of_memory(error)):
                    raise
                return error
        exchange = Exchange(self.session.session_id, payload, prompt.history, self.writer.history[0], answer_id, tokens)
        self.client.slots.record(exchange, number)
        return None

    def _think_value(self) -> bool | str | None:
        if not self.model.can("thinking"):
            return None
        if self._think is None and not self.generation.thinks_by_default:
            return False
        return self._think

    async def _state_of(self, request: TrackedRequest) -> str:
        """Return the status of a waiting request: ``queued``, ``loading_model`` or ``processing_prompt``.

        Ollama lists a model as soon as it begins to load the model. A model that was not loaded before this request
        counts as loading until the first token.
        """
        if not self.client.tracker.is_queued(request, loaded=self.window.is_loaded):
            return "processing_prompt" if self.window.is_loaded else "loading_model"
        if self.window.is_loaded:
            return "queued"
        listed = (await self.client.loaded_windows() or {}).get(request.model)
        return "queued" if listed is None or self.window.size not in (None, listed) else "loading_model"

    def _publish_compaction(self, prompt: Prompt) -> None:
        """Publish how many messages were dropped and how many tool results trimmed, if the numbers have changed."""
        compaction = (prompt.dropped, prompt.trimmed)
        if compaction != self._last_compaction:
            self._last_compaction = compaction
            self.publish([ContextCompacted(prompt.dropped, prompt.trimmed, summary_used=prompt.dropped > 0)])
