"""Model calls of a turn: requests with the session's settings, context window and generation options."""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mochi_server.chat.compaction import PromptFitter
from mochi_server.chat.prompt_fitting import Checkpoint
from mochi_server.chat.prompt_messages import shows_images
from mochi_server.chat.turn_input import GenerationOptions
from mochi_server.chat.turn_writer import TurnWriter
from mochi_server.constants import RELOADING_OPTIONS
from mochi_server.errors import MochiError
from mochi_server.events import ChatEvent, Publish, Status, TurnWarning
from mochi_server.inference.gateway import ModelGateway
from mochi_server.inference.request import ModelRequest
from mochi_server.inference.slots import Exchange
from mochi_server.inference.windows import Allocation, WindowDecision, manual_window
from mochi_server.ollama.payloads import chat_payload
from mochi_server.ollama.transport import OnLines
from mochi_server.ollama.types import ModelInfo
from mochi_server.sessions.history import History
from mochi_server.sessions.session import ChatSession, SessionMetadata, last_answer, previous_model, usage_tokens
from mochi_server.sessions.store import SessionStore
from mochi_server.util.clock import now

_TRUNCATED = "Ollama truncated the prompt, because its version ignores `truncate`. Update Ollama."
_PROMPT_TRUNCATED = TurnWarning("PROMPT_TRUNCATED", _TRUNCATED)
_ANSWER_CUT = TurnWarning("ANSWER_CUT", "The answer was cut at the end of the context window.")

logger = logging.getLogger(__name__)


def allocate_window(gateway: ModelGateway, model: ModelInfo, session: ChatSession, history: History) -> Allocation:
    """Return the allocation for a turn. ``history`` includes the new messages of the turn."""
    metadata, previous = session.metadata, previous_model(history)
    answer = last_answer(history)
    usage = counted = 0
    if answer is not None and previous == session.model and Checkpoint.from_dict(metadata.compaction) is None:
        usage = usage_tokens(answer) or 0
        # Thinking is not sent again.
        counted = (answer.get("prompt_eval_count") or 0) if answer.get("thinking") else usage
    return gateway.allocate(model, metadata.context_window_config, previous, usage=usage, counted=counted)


async def save_window(allocation: Allocation, session: ChatSession, store: SessionStore) -> None:
    """Store the window with the session, unless a client has changed it during the turn. Errors are logged."""
    before, decision = session.metadata.context_window_config, allocation.decision
    if decision is None or manual_window(allocation.model, before) is not None:  # a manual window is stored already
        return
    after = allocation.windows.adjusted(before, decision, now())
    if after == before:
        return

    def unless_changed(stored: SessionMetadata) -> dict[str, Any]:
        return {"context_window_config": after} if stored.context_window_config == before else {}

    try:
        await store.patch(session.session_id, unless_changed)
    except MochiError as error:  # the turn does not fail, because its answer is stored
        logger.warning("Window not stored session_id=%s: %s", session.session_id, error.message)


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
            self.name,
            self._keep_alive,
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
        ``format`` is a JSON schema that overrides the format of the turn. Raises ``ContextOverflow``, ``OllamaError``
        and ``OllamaUnreachable``.
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
        answer = await self.gateway.send(request, on_lines)
        if answer.is_prompt_truncated:
            self.publish([_PROMPT_TRUNCATED])
        if answer.is_cut:
            self.publish([_ANSWER_CUT])

    def _report(self, status: str) -> None:
        self.publish([Status(status, round(time.monotonic() - self._began, 3))])

    def _think_value(self) -> bool | str | None:
        if not self.model.has_capability("thinking"):
            return None
        if self._think is None and not self.generation.thinks_by_default:
            return False
        return self._think
