"""Model calls of a turn: requests with the session's settings and the turn's generation options."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mochi_server.chat.compaction import Compactor
from mochi_server.chat.prompt_cache import shows_images
from mochi_server.chat.prompt_fitting import Checkpoint
from mochi_server.chat.turn_input import GenerationOptions
from mochi_server.chat.turn_prompt import PromptFitter
from mochi_server.chat.turn_window import allocate_window, save_window
from mochi_server.chat.turn_writer import TurnWriter
from mochi_server.constants import RELOADING_OPTIONS
from mochi_server.events import ChatEvent, Publish, Status, TurnWarning
from mochi_server.inference.gateway import ModelGateway
from mochi_server.inference.request import Answer, ModelRequest
from mochi_server.inference.slots import Exchange
from mochi_server.inference.windows import WindowDecision
from mochi_server.ollama.payloads import chat_payload
from mochi_server.ollama.transport import OnLines
from mochi_server.ollama.types import ModelInfo
from mochi_server.sessions.history import History
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import SessionStore

_WARNINGS = {
    "PROMPT_TRUNCATED": "Ollama truncated the prompt, because its version ignores `truncate`. Update Ollama.",
    "ANSWER_CUT": "The answer was cut at the end of the context window.",
}


@dataclass(eq=False)
class ModelCall:
    """Sender of one turn's requests to the model."""

    gateway: ModelGateway
    writer: TurnWriter
    publish: Publish
    model: ModelInfo
    session: ChatSession
    generation: GenerationOptions

    def __post_init__(self) -> None:
        defaults, generation = self.session.metadata, self.generation
        self.name = self.session.model
        self._think = generation.think if generation.think is not None else defaults.think
        options = {**(defaults.options or {}), **(generation.options or {})}
        # Imported sessions may have options that would reload the model.
        self._options = {name: value for name, value in options.items() if name not in RELOADING_OPTIONS}
        answer_format = defaults.format if generation.format is None else generation.format
        self._format = None if answer_format == "" else answer_format
        self._keep_alive = generation.keep_alive if generation.keep_alive is not None else defaults.keep_alive
        self._began = time.monotonic()
        self._window = allocate_window(self.gateway, self.model, self.session, self.writer.history)
        self._fitter = PromptFitter(
            self.gateway,
            self._window,
            self.writer,
            self.publish,
            self._report,
            self.session.session_id,
            Compactor(self.gateway, self._window, self.name, self._keep_alive),
            Checkpoint.from_dict(defaults.compaction),
        )

    @property
    def window(self) -> WindowDecision | None:
        """Context window of the turn, or None before the first request."""
        return self._window.decision

    async def save_window(self, store: SessionStore) -> None:
        """Store the context window with the session."""
        await save_window(self._window, self.session, store)

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
            if is_wanted and not self.model.has_capability(feature)
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
        tools = tools if self.model.has_capability("tools") else []
        prompt = self._fitter.prompt(history, turn_start, tools)
        payload = chat_payload(
            self.name,
            (),
            tools=tools,
            think=self._think_value(),
            options=self._options,
            format=self._format if format is None else format,
            keep_alive=self._keep_alive,
            logprobs=self.generation.logprobs,
        )

        def exchange(body: Any, tokens: int) -> Exchange:
            sent, first = prompt.prompt.history, self.writer.history[0]
            return Exchange(self.session.session_id, body, sent, first, answer_id, prompt.size, tokens)

        request = ModelRequest(
            allocation=self._window, payload=payload, prompt=prompt, exchange=exchange, report=self._report
        )
        self._publish_warnings(await self.gateway.send(request, on_lines))

    def _publish_warnings(self, answer: Answer) -> None:
        found = (("PROMPT_TRUNCATED", answer.is_prompt_truncated), ("ANSWER_CUT", answer.is_cut))
        if warnings := [TurnWarning(code, _WARNINGS[code]) for code, is_found in found if is_found]:
            self.publish([*warnings])

    def _report(self, status: str) -> None:
        self.publish([Status(status, round(time.monotonic() - self._began, 3))])

    def _think_value(self) -> bool | str | None:
        if not self.model.has_capability("thinking"):
            return None
        if self._think is None and not self.generation.thinks_by_default:
            return False
        return self._think
