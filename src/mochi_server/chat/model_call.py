"""Model calls of a turn: requests with the session's settings, context window and generation
options.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from mochi_server.chat.compaction import CompactionPrompt, recall_summary, remember_summary
from mochi_server.chat.prompt import Budget, Prompt
from mochi_server.chat.turn_input import GenerationOptions
from mochi_server.chat.writer import TurnWriter
from mochi_server.constants import API_PREFIX, RELOADING_OPTIONS
from mochi_server.errors import ContextOverflow, OllamaError, ToolsNotSupported
from mochi_server.events import ChatEvent, ContextCompacted, Publish, Status, TurnWarning
from mochi_server.inference.gateway import ModelGateway
from mochi_server.inference.messages import shows_images, with_attachments, with_images
from mochi_server.inference.requests import AnswerReport, FixedPrompt, ModelRequest
from mochi_server.inference.session_window import turn_allocation
from mochi_server.inference.slots import Exchange
from mochi_server.inference.structured import StructuredRequest
from mochi_server.inference.token_estimate import PromptSize
from mochi_server.inference.waiting import Ticket
from mochi_server.ollama.errors import refused_feature
from mochi_server.ollama.payloads import chat_payload
from mochi_server.ollama.transport import Line, OnLines
from mochi_server.ollama.types import ModelInfo
from mochi_server.sessions.checkpoint import Checkpoint
from mochi_server.sessions.history import History
from mochi_server.sessions.session import ChatSession

_CORRECTION = "That does not fit the JSON schema: {}. Answer again, only with JSON that fits."
_MAX_PROBLEM_CHARS = 2000
_ANY_OBJECT: dict[str, Any] = {"type": "object"}  # what the format "json" means
_RELOAD = (
    "Ollama reloads the model, because a session has a context window that was set by hand and "
    "differs from the window of other sessions with this model."
)
_LOADERS = (
    (with_images, "IMAGE_NOT_FOUND", "images"),
    (with_attachments, "FILE_NOT_FOUND", "files"),
)
_UNSUPPORTED = {
    "thinking": ("THINKING_NOT_SUPPORTED", "think"),
    "tools": ("TOOLS_NOT_SUPPORTED", "use tools"),
    "vision": ("IMAGES_NOT_SUPPORTED", "see images"),
}
"""Code of the warning for a feature that a model lacks, and what the model cannot do."""
_TRUNCATED = "Ollama truncated the prompt, because its version ignores `truncate`. Update Ollama."
_ANSWER_CUT = TurnWarning("ANSWER_CUT", "The answer was cut at the end of the context window.")


@dataclass(eq=False)
class ModelCall:
    """Sender of one turn's requests to the model.

    It publishes warnings, and what the prompts omit.
    """

    gateway: ModelGateway
    writer: TurnWriter
    publish: Publish
    model: ModelInfo
    session: ChatSession
    generation: GenerationOptions
    ticket: Ticket = field(default_factory=Ticket)

    def __post_init__(self) -> None:
        defaults = self.session.metadata
        generation = self.generation
        self.name = self.session.model
        self._think = generation.thinking(defaults.think)
        options = {**(defaults.options or {}), **(generation.options or {})}
        # Imported sessions may have options that would reload the model.
        self._options = {
            name: value for name, value in options.items() if name not in RELOADING_OPTIONS
        }
        self._format = generation.answer_format(defaults.format)
        self.is_cut = False
        """Whether the latest answer was cut at the end of the context window."""
        self.has_grown = False
        """Whether the window is larger since the latest answer was cut."""
        self._keep_alive = (
            generation.keep_alive if generation.keep_alive is not None else defaults.keep_alive
        )
        self._began = time.monotonic()
        self.allocation = turn_allocation(
            self.gateway,
            self.model,
            self.session,
            self.writer.history,
            generation.answer_tokens,
        )
        self._checkpoint = Checkpoint.from_dict(defaults.compaction)
        # Numbers of dropped messages and trimmed tool results in the latest event.
        self.last_compaction = (0, 0)
        self._warned: set[str] = set()
        self._latest: tuple[ModelRequest, FixedPrompt]
        """Latest request, and its prompt without tools, for `repair`.

        `send` sets it if the turn has a format.
        """

    def warnings(self, tools: Sequence[Any]) -> list[ChatEvent]:
        """Return a warning event for each requested feature that the model does not support."""
        wanted = {
            "thinking": self._think,
            "tools": tools,
            "vision": shows_images(self.writer.history),
        }
        warnings: list[ChatEvent] = []
        for feature, is_wanted in wanted.items():
            if is_wanted and not self.model.has_capability(feature):
                warnings.append(self._unsupported(feature))
        return warnings

    def _unsupported(self, feature: str) -> TurnWarning:
        code, verb = _UNSUPPORTED[feature]
        text = (
            f"Model {self.name!r} cannot {verb}. The request omits this feature. "
            f"GET {API_PREFIX}/models lists what each model can do."
        )
        return TurnWarning(code, text)

    def schema(self, *, offers_tools: bool) -> dict[str, Any] | None:
        """Return the JSON schema that the last answer must fit, or None.

        A request with tools has no format, so that also any JSON must be checked.
        """
        if isinstance(self._format, dict):
            return self._format
        return _ANY_OBJECT if self._format == "json" and offers_tools else None

    async def send(
        self,
        history: History,
        tools: list[dict[str, Any]],
        turn_start: int,
        on_lines: OnLines,
        *,
        answer_id: str,
        format: str | dict[str, Any] | None = None,
        plans: bool = False,
    ) -> None:
        """Send a history to the model and pass the lines of its answer to ``on_lines``.

        ``format`` overrides the format of the turn. A request with ``tools`` does not have the
        latter, because the model would not call them. Nor has the request for a plan (``plans``).
        Raises ``MochiError``.
        """
        if not self.model.has_capability("tools"):
            tools = []
        prompt = Prompt(
            history,
            turn_start,
            self._checkpoint,
            shows_images=self.model.has_capability("vision"),
        )
        turn_prompt = TurnPrompt(self, prompt, tools)
        context_length = self.allocation.context_length  # the largest possible window
        if context_length:
            budget = turn_prompt.budget(context_length)
            if budget.is_exceeded_by(prompt):
                budget.check(prompt.shortest)  # neither a larger window nor a summary would help
        if format is None and not tools and not plans:
            format = self._format
        payload = chat_payload(
            self.name,
            (),
            tools=tools,
            think=self._request_think(),
            options=self._options,
            format=format,
            keep_alive=self._keep_alive,
            logprobs=self.generation.logprobs,
        )

        def exchange(body: Any, size: PromptSize, tokens: int) -> Exchange:
            sent, first = turn_prompt.prompt.history, self.writer.history[0]
            return Exchange(body, sent, first, answer_id, size, tokens)

        request = ModelRequest(
            allocation=self.allocation,
            payload=payload,
            prompt=turn_prompt,
            exchange=exchange,
            report=self._report,
            thinking_refused=self._warn_of_thinking,
            session_id=self.session.session_id,
            run_id=self.writer.turn.run_id,
            ticket=self.ticket,
        )
        answer = await self._send(request, on_lines)
        if self._format:
            # Only then, because the request refers to this object. Such a reference cycle keeps
            # the turn in memory until a full collection.
            without_tools = FixedPrompt(answer.prompt.messages, turn_prompt.prompt.size_with(()))
            self._latest = (request, without_tools)
        self.is_cut = answer.is_cut
        self.has_grown = answer.is_cut and self.allocation.has_grown
        if answer.is_prompt_truncated:
            self.warn("PROMPT_TRUNCATED", _TRUNCATED)
        if answer.is_cut:
            self.publish([_ANSWER_CUT])

    def _request_think(self) -> bool | str | None:
        """Return the ``think`` of a request, or None to omit it."""
        if not self.model.has_capability("thinking"):
            return None
        if self._think is None and not self.generation.thinks_by_default:
            return False
        return self._think

    async def _send(self, request: ModelRequest, on_lines: OnLines) -> AnswerReport:
        """Send a request.

        Raises ``ToolsNotSupported`` and the errors of the gateway.
        """
        try:
            return await self.gateway.send(request, on_lines)
        except OllamaError as error:
            if refused_feature(error) == "tools":
                raise ToolsNotSupported(self.name) from error
            raise

    async def repair(self, text: str, problem: str, schema: Mapping[str, Any]) -> tuple[str, Line]:
        """Request another answer, which fits ``schema``, in place of ``text``.

        Return it and its last line. The turn must have a format, and ``send`` must have returned.
        Raises ``MochiError``.
        """
        request, prompt = self._latest
        prompt = prompt.extended(text, _CORRECTION.format(problem[:_MAX_PROBLEM_CHARS]))
        payload = dict(request.payload)
        payload.pop("tools", None)  # the model must not call one
        repair = StructuredRequest(self.gateway, replace(request, payload=payload, prompt=prompt))
        answer = await repair.send(schema)
        return answer.message["content"], repair.lines[-1]

    async def compact(self, prompt: Prompt, budget: Budget) -> Prompt:
        """Replace the oldest turns by a stored summary.

        Raises ``ContextOverflow`` if that is not enough, and the errors of the gateway and the
        store.
        """
        self._report("compacting")
        compaction = CompactionPrompt(self.allocation, prompt, budget)
        self._checkpoint = await compaction.summarize(self.gateway, self.name, self._keep_alive)
        await self.writer.conversation.patch({"compaction": asdict(self._checkpoint)})
        self.gateway.observer.context_compacted()
        compacted = replace(prompt, checkpoint=self._checkpoint)
        remember_summary(self.gateway.recent_summaries, compacted, self.name)
        return compacted

    def warn(self, code: str, text: str) -> None:
        if code not in self._warned:
            self._warned.add(code)
            self.publish([TurnWarning(code, text)])

    def _warn_of_thinking(self) -> None:
        warning = self._unsupported("thinking")
        self.warn(warning.code, warning.message)

    def _report(self, status: str, position: int | None = None, host: str | None = None) -> None:
        self.publish([Status(status, round(time.monotonic() - self._began, 3), position, host)])


@dataclass(eq=False)
class TurnPrompt:
    """Prompt of one request, which becomes shorter if it does not fit."""

    call: ModelCall
    prompt: Prompt
    tools: Sequence[dict[str, Any]]
    _is_first_fit: bool = field(default=True, init=False)

    @property
    def size(self) -> PromptSize:
        return self.prompt.size_with(self.tools)

    async def fit(self, refused_tokens: int | None) -> FixedPrompt:
        """Return the prompt to send, shortened if it is too long or has been refused.

        Raise ``ContextOverflow`` if the prompt cannot become shorter.
        """
        call = self.call
        window = call.allocation.prompt_window
        if window is None and refused_tokens is not None:
            raise ContextOverflow(None, refused_tokens)
        if self._is_first_fit:
            self._is_first_fit = False
            decision = call.allocation.decision
            if decision is not None and decision.differs:
                call.warn("WINDOW_DIFFERS", _RELOAD)
            trim_end = self._earlier_trim_end(window)
            if trim_end:
                self.prompt = replace(self.prompt, trim_end=trim_end)
        if window is not None:
            was_refused = refused_tokens is not None
            self.prompt = await self._shorten(self.budget(window), forced=was_refused)
            self._store_trim_end(window)
        compaction = (self.prompt.dropped, self.prompt.trimmed)
        if compaction != call.last_compaction:
            call.last_compaction = compaction
            call.publish([ContextCompacted(*compaction, summary_used=self.prompt.dropped > 0)])
        messages = self.prompt.messages
        for load, code, kind in _LOADERS:
            messages, missing = await load(messages, call.writer.load_image)
            if missing:
                call.warn(code, f"The prompt omits {kind} that are no longer stored: {missing}.")
        return FixedPrompt(messages, self.size)

    def _earlier_trim_end(self, window: int | None) -> int:
        """Return the number of messages that the session's latest prompt has trimmed.

        A prompt that trims them again begins with the same text, which is cached. Return 0 if that
        prompt had another window, or if the history lacks its last trimmed message.
        """
        trim = self.call.gateway.trims.get(self.call.session.session_id)
        if trim is not None:
            for number, message in enumerate(self.prompt.history, 1):
                if trim == (window, message["message_id"]):
                    return number
        return 0

    def _store_trim_end(self, window: int) -> None:
        """Store the window and the last trimmed message for the session's next prompt, if any
        message is trimmed.
        """
        prompt = self.prompt
        if prompt.trim_limit:
            last = prompt.history[prompt.trim_limit - 1]["message_id"]
            self.call.gateway.trims[self.call.session.session_id] = window, last

    def budget(self, window: int) -> Budget:
        allocation = self.call.allocation
        estimate = allocation.estimate
        return Budget(
            window,
            lambda prompt: estimate.tokens(prompt.size_with(self.tools)),
            is_manual=allocation.is_manual(window),
        )

    async def _shorten(self, budget: Budget, *, forced: bool) -> Prompt:
        """Return a prompt that fits the window.

        If ``forced`` is true, shorten even a prompt that seems to fit.
        """
        prompt = self.prompt
        if not forced and not budget.is_exceeded_by(prompt):
            return prompt
        if not prompt.covered and budget.is_exceeded_by(_trimmed(prompt)):
            prompt = recall_summary(self.call.gateway.recent_summaries, prompt, self.call.name)
            if not forced and not budget.is_exceeded_by(prompt):
                return prompt
        prompt = _trimmed(prompt)
        is_too_long = forced or budget.is_exceeded_by(prompt)
        if is_too_long and budget.boundary(prompt) is not None:
            prompt = await self.call.compact(prompt, budget)
            forced = False
        return budget.fit(prompt, forced=forced)


def _trimmed(prompt: Prompt) -> Prompt:
    """Return the prompt with the long tool results of all earlier turns trimmed."""
    return replace(prompt, trim_end=max(prompt.trim_end, prompt.turn_start))
