"""Summaries of conversations: made when a session rests, never in the user's way, never over newer data."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, ValidationError

from mochi_server.errors import MochiError, NothingToSummarize, OllamaError, SessionConflict
from mochi_server.ollama.async_client import AsyncInstructorOllamaClient, AsyncOllamaClient
from mochi_server.ollama.types import ChatMessage
from mochi_server.services.context_window import WindowRegistry
from mochi_server.services.summary_model import SummaryModelManager
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import Message

_INSTRUCTION = (
    "You summarize conversations. Write `summary`: two to five sentences that say what was talked about and what came "
    "of it, in the language of the conversation. Write `topics`: a few short topics. Answer with JSON alone."
)
_MAX_SUMMARY_CHARS = 4000
_SHARE_OF_WINDOW = 0.6
_ANSWER_TOKENS = 600
_UNKNOWN_WINDOW = 4096
_REMEMBERED = 10_000
"""Sessions of which is known what their summaries cover; others are summarized from their beginning."""

logger = logging.getLogger(__name__)


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text.strip()


class ConversationSummary(BaseModel):
    """What a model is asked for."""

    summary: Annotated[str, Field(max_length=_MAX_SUMMARY_CHARS), AfterValidator(_not_blank)]
    topics: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=20)]


@dataclass(frozen=True, slots=True)
class Summarized:
    """A summary and who made it."""

    summary: str
    topics: list[str]
    model_used: str


@dataclass
class _Work:
    """What is planned or under way for one session."""

    timer: asyncio.TimerHandle | None = None
    task: "asyncio.Task[None] | None" = None
    covered: str | None = None
    """Id of the last message that the stored summary knows."""
    failed: set[str] = field(default_factory=set)
    """Models that are not tried again by themselves."""

    @property
    def is_planned(self) -> bool:
        return self.timer is not None or self.task is not None

    @property
    def knows_something(self) -> bool:
        return self.covered is not None or bool(self.failed)


class SummarizationService:
    """Summarizes sessions after their turns, ``interval`` seconds after the last; and when asked to."""

    def __init__(
        self,
        store: SessionStore,
        client: AsyncOllamaClient,
        instructor: AsyncInstructorOllamaClient,
        windows: WindowRegistry,
        models: SummaryModelManager,
        *,
        enabled: bool = True,
        interval: float = 3,
    ) -> None:
        self._store = store
        self._client = client
        self._instructor = instructor
        self._windows = windows
        self._models = models
        self._enabled = enabled
        self._interval = interval
        self._work: dict[str, _Work] = {}

    def turn_begins(self, session_id: str) -> None:
        """The user speaks: whatever is planned or under way for the session yields."""
        if (work := self._work.get(session_id)) is not None:
            _cancel(work)

    def turn_ended(self, session_id: str) -> None:
        """The session rests: look, after a while, whether there is anything to summarize."""
        if not self._enabled:
            return
        work = self._of(session_id)
        _cancel(work)
        work.timer = asyncio.get_running_loop().call_later(self._interval, self._begin, session_id, work)

    def session_goes(self, session_id: str) -> None:
        """The session is about to be deleted: nothing of it need be known."""
        if (work := self._work.pop(session_id, None)) is not None:
            _cancel(work)

    async def summarize(self, session_id: str, model: str | None = None) -> Summarized:
        """Summarize now. A given model is remembered as the session's ``summary_model``.

        Raises ``SessionNotFound``; ``NothingToSummarize``; ``ModelNotFound``, ``OllamaUnreachable``; ``OllamaError``
        when the model gives no summary.
        """
        if not any(map(_was_said, (await self._store.load(session_id)).history)):
            raise NothingToSummarize(session_id)
        if model is not None:
            await self._client.find_model(model)
            await self._store.patch(session_id, {"summary_model": model})
        session = await self._store.load(session_id)
        self.turn_begins(session_id)
        chosen = model or self._models.choose(session.metadata) or session.model
        work = self._of(session_id)
        summary = await self._make(session, chosen, work)
        await self._keep(session, summary, work, revision=None)
        return Summarized(summary.summary, summary.topics, chosen)

    async def aclose(self) -> None:
        """Give up what is planned or under way."""
        tasks = [work.task for work in self._work.values() if work.task is not None]
        for work in self._work.values():
            _cancel(work)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _of(self, session_id: str) -> _Work:
        """The session's, as the one used last; of those that rest only the latest are remembered."""
        work = self._work.pop(session_id) if session_id in self._work else _Work()
        self._work[session_id] = work
        while len(self._work) > _REMEMBERED and not next(iter(self._work.values())).is_planned:
            del self._work[next(iter(self._work))]
        return work

    def _begin(self, session_id: str, work: _Work) -> None:
        work.timer = None
        work.task = asyncio.get_running_loop().create_task(self._by_itself(session_id, work))
        work.task.add_done_callback(lambda task: self._ended(session_id, work, task))

    def _ended(self, session_id: str, work: _Work, task: "asyncio.Task[None]") -> None:
        if work.task is task:
            work.task = None
            if not work.knows_something:
                del self._work[session_id]

    async def _by_itself(self, session_id: str, work: _Work) -> None:
        model: str | None = None
        try:
            session = await self._store.load(session_id)
            model = self._models.choose(session.metadata)
            if model is None or model in work.failed or not is_due(session, work.covered):
                return
            summary = await self._make(session, model, work)
            await self._keep(session, summary, work, revision=session.revision)
        except SessionConflict:
            return  # the session has moved on, and will rest again
        except MochiError as error:
            # The message may quote what the model said.
            logger.info("Session %s has no new summary: %s", session_id, error.code)
            if model is not None and isinstance(error, OllamaError):
                work.failed.add(model)
        except Exception:
            logger.exception("Summarizing session %s failed", session_id)

    async def _make(self, session: ChatSession, name: str, work: _Work) -> ConversationSummary:
        """Ask a model for a summary, once more with the error when the first is none."""
        model = await self._client.find_model(name)
        window = await self._windows.borrow(model, _ANSWER_TOKENS)
        room = int((window or _UNKNOWN_WINDOW) * _SHARE_OF_WINDOW)
        messages = _request(session, work.covered, lambda text: self._windows.estimate(model, len(text)) <= room)
        options = {} if window is None else {"num_ctx": window, "num_predict": _ANSWER_TOKENS}
        error = ""
        for _ in range(2):
            try:
                answer = await self._instructor.structured_response(
                    name,
                    [*messages, *_correction(error)],
                    ConversationSummary,
                    options=options,
                    keep_alive=session.metadata.keep_alive,
                    think=False if model.can("thinking") else None,
                )
                return ConversationSummary.model_validate_json(answer.message["content"])
            except ValidationError as wrong:
                error = _words_of(wrong)
        raise OllamaError(f"Model {name!r} gave no summary: {error}")

    async def _keep(
        self, session: ChatSession, summary: ConversationSummary, work: _Work, *, revision: str | None
    ) -> None:
        await self._store.patch(session.session_id, {"summary": summary.model_dump()}, revision=revision)
        work.covered = session.history[-1]["message_id"] if session.history else None


def is_due(session: ChatSession, covered: str | None) -> bool:
    """Whether there is something new to summarize: a whole answer, at least the second message."""
    if len(session.history) < 2:
        return False
    last = session.history[-1]
    whole = last["role"] == "assistant" and not last.get("tool_calls") and not last.get("interrupted")
    return whole and last["message_id"] != covered


def _request(session: ChatSession, covered: str | None, fits: Callable[[str], bool]) -> list[ChatMessage]:
    """What a model is asked: the previous summary and what is new since, its latest part where all is too long."""
    start = next((i + 1 for i, m in enumerate(session.history) if m["message_id"] == covered), 0)
    earlier = session.metadata.summary if start else None
    before = f"Summary so far: {earlier.get('summary')}\n\n" if earlier else ""
    text = _transcript(session.history[start:])
    while not fits(before + text) and len(text) > 200:
        text = text[len(text) // 4 :]
    return [
        {"role": "system", "content": _INSTRUCTION},
        {"role": "user", "content": f"{before}Summarize this conversation:\n\n{text}"},
    ]


def _transcript(messages: Sequence[Message]) -> str:
    return "\n\n".join(f"{m['role']}: {m['content']}" for m in messages if _was_said(m))


def _was_said(message: Message) -> bool:
    return message["role"] in ("user", "assistant")


def _words_of(wrong: ValidationError) -> str:
    problems = wrong.errors(include_url=False, include_input=False)
    return "; ".join(": ".join([*map(str, problem["loc"]), problem["msg"]]) for problem in problems)


def _correction(error: str) -> list[ChatMessage]:
    if not error:
        return []
    return [{"role": "user", "content": f"That was not the JSON asked for: {error}. Answer again, with JSON alone."}]


def _cancel(work: _Work) -> None:
    if work.timer is not None:
        work.timer.cancel()
    if work.task is not None:
        work.task.cancel()
    work.timer = work.task = None
