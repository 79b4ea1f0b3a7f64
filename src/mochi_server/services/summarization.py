"""Summaries of sessions. A new turn cancels the background summary of its session."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints, ValidationError

from mochi_server.errors import MochiError, NothingToSummarize, OllamaError, SessionConflict
from mochi_server.ollama.async_client import AsyncInstructorOllamaClient, AsyncOllamaClient
from mochi_server.ollama.types import ChatMessage
from mochi_server.services.context_window import WindowRegistry
from mochi_server.services.summary_model import SummaryModelManager
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import Message
from mochi_server.tools.schema import explain

_INSTRUCTION = (
    "You summarize conversations. Write `summary`: two to five sentences that say what was talked about and what came "
    "of it, in the language of the conversation. Write `topics`: a few short topics. Answer with JSON alone."
)
_MAX_SUMMARY_CHARS = 4000
_MAX_PROMPT_RATIO = 0.6
_ANSWER_TOKENS = 600
_UNKNOWN_WINDOW = 4096
_MAX_SESSIONS = 10_000
"""Limit of sessions with state in memory. Other sessions are summarized from their start."""

logger = logging.getLogger(__name__)


class ConversationSummary(BaseModel):
    """Structured answer that the model must return."""

    summary: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=_MAX_SUMMARY_CHARS)]
    topics: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=20)]


@dataclass(frozen=True, slots=True)
class SummaryResult:
    summary: str
    topics: list[str]
    model_used: str


@dataclass
class _SummaryTask:
    """State of the background summaries of one session."""

    task: "asyncio.Task[None] | None" = None
    covered: str | None = None
    """ID of the last message that the stored summary covers."""
    failed: set[str] = field(default_factory=set)
    """Models that failed. Background summaries do not use them again."""

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()
        self.task = None


@dataclass(eq=False)
class SummarizationService:
    """Service that summarizes sessions on request, and in the background ``interval`` seconds after a turn."""

    store: SessionStore
    client: AsyncOllamaClient
    instructor: AsyncInstructorOllamaClient
    windows: WindowRegistry
    models: SummaryModelManager
    enabled: bool = True
    interval: float = 3
    _states: dict[str, _SummaryTask] = field(default_factory=dict, init=False)

    def turn_starting(self, session_id: str) -> None:
        """Cancel the background summary of the session."""
        if (state := self._states.get(session_id)) is not None:
            state.cancel()

    def turn_ended(self, session_id: str) -> None:
        """Schedule a background summary of the session."""
        if self.enabled:
            state = self._state_of(session_id)
            state.cancel()
            state.task = asyncio.get_running_loop().create_task(self._run_in_background(session_id, state))

    def session_deleting(self, session_id: str) -> None:
        """Cancel the summary of a session and drop its state."""
        if (state := self._states.pop(session_id, None)) is not None:
            state.cancel()

    async def summarize(self, session_id: str, model: str | None = None) -> SummaryResult:
        """Summarize a session now. ``model`` is stored as the session's ``summary_model``.

        Raises:
            SessionNotFound, NothingToSummarize: The session does not exist or has no messages.
            ModelNotFound, OllamaUnreachable: The model cannot be found.
            OllamaError: The model returned no valid summary.
        """
        if not any(map(_has_text, (await self.store.load(session_id)).history)):
            raise NothingToSummarize(session_id)
        if model is not None:
            await self.client.find_model(model)
            await self.store.patch(session_id, {"summary_model": model})
        session = await self.store.load(session_id)
        self.turn_starting(session_id)
        chosen = model or self.models.choose(session.metadata) or session.model
        state = self._state_of(session_id)
        summary = await self._update_summary(session, chosen, state, revision=None)
        return SummaryResult(summary.summary, summary.topics, chosen)

    async def aclose(self) -> None:
        tasks = [state.task for state in self._states.values() if state.task is not None]
        for state in self._states.values():
            state.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _state_of(self, session_id: str) -> _SummaryTask:
        """Return the state of a session. Drop the states of the least recently used sessions."""
        state = self._states[session_id] = self._states.pop(session_id, _SummaryTask())
        while len(self._states) > _MAX_SESSIONS and next(iter(self._states.values())).task is None:
            del self._states[next(iter(self._states))]
        return state

    async def _run_in_background(self, session_id: str, state: _SummaryTask) -> None:
        model: str | None = None
        try:
            await asyncio.sleep(self.interval)
            session = await self.store.load(session_id)
            model = self.models.choose(session.metadata)
            if model is not None and model not in state.failed and is_due(session, state.covered):
                await self._update_summary(session, model, state, revision=session.revision)
        except SessionConflict:
            pass  # the session has changed, and its next turn schedules a summary
        except MochiError as error:
            # The error message is not logged, because it may quote the conversation.
            logger.info("Background summary failed session_id=%s code=%s", session_id, error.code)
            if model is not None and isinstance(error, OllamaError):
                state.failed.add(model)
        except Exception:
            logger.exception("Background summary failed unexpectedly session_id=%s", session_id)
        state.task = None
        if state.covered is None and not state.failed:
            del self._states[session_id]

    async def _update_summary(
        self, session: ChatSession, name: str, state: _SummaryTask, *, revision: str | None
    ) -> ConversationSummary:
        """Request and store a summary. After an invalid answer, retry once with the error."""
        model = await self.client.find_model(name)
        window = await self.windows.borrow(model, _ANSWER_TOKENS)
        max_tokens = int((window or _UNKNOWN_WINDOW) * _MAX_PROMPT_RATIO)
        messages = _request(session, state.covered, lambda text: self.windows.estimate(model, len(text)) <= max_tokens)
        options = {} if window is None else {"num_ctx": window, "num_predict": _ANSWER_TOKENS}
        error = ""
        for _ in range(2):
            try:
                answer = await self.instructor.structured_response(
                    name,
                    messages,
                    ConversationSummary,
                    options=options,
                    keep_alive=session.metadata.keep_alive,
                    think=False if model.can("thinking") else None,
                )
                summary = ConversationSummary.model_validate_json(answer.message["content"])
                break
            except ValidationError as invalid:
                error = explain(invalid)
                correction = f"That was not the JSON asked for: {error}. Answer again, with JSON alone."
                messages.append({"role": "user", "content": correction})
        else:
            raise OllamaError(f"Model {name!r} returned no valid summary ({error}). Choose another summary_model.")
        await self.store.patch(session.session_id, {"summary": summary.model_dump()}, revision=revision)
        state.covered = session.history[-1]["message_id"] if session.history else None
        return summary


def is_due(session: ChatSession, covered: str | None) -> bool:
    """Return whether the session ends with a complete answer that the summary does not cover."""
    if len(session.history) < 2:
        return False
    last = session.history[-1]
    is_complete = last["role"] == "assistant" and not last.get("tool_calls") and not last.get("interrupted")
    return is_complete and last["message_id"] != covered


def _request(session: ChatSession, covered: str | None, fits: Callable[[str], bool]) -> list[ChatMessage]:
    """Return the prompt with the previous summary and the newer messages. Cut their start if they do not fit."""
    start = next((i + 1 for i, m in enumerate(session.history) if m["message_id"] == covered), 0)
    earlier = session.metadata.summary if start else None
    before = f"Summary so far: {earlier.get('summary')}\n\n" if earlier else ""
    text = "\n\n".join(f"{m['role']}: {m['content']}" for m in session.history[start:] if _has_text(m))
    while not fits(before + text) and len(text) > 200:
        text = text[len(text) // 4 :]
    return [
        {"role": "system", "content": _INSTRUCTION},
        {"role": "user", "content": f"{before}Summarize this conversation:\n\n{text}"},
    ]


def _has_text(message: Message) -> bool:
    return message["role"] in ("user", "assistant")
