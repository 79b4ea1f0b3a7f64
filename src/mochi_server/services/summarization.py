"""Summaries of sessions. A new turn cancels the background summary of its session."""

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints, ValidationError

from mochi_server.errors import (
    MochiError,
    NothingToSummarize,
    OllamaBusy,
    OllamaError,
    OllamaUnreachable,
    SessionConflict,
)
from mochi_server.inference.gateway import ModelGateway
from mochi_server.inference.requests import FixedPrompt, ModelRequest, payload_without_thinking
from mochi_server.inference.slots import Exchange
from mochi_server.inference.structured import StructuredRequest
from mochi_server.inference.token_estimate import PromptSize
from mochi_server.inference.waiting import Ticket
from mochi_server.inference.window_allocation import Allocation
from mochi_server.inference.window_registry import manual_window
from mochi_server.ollama.injected_client import StructuredClient
from mochi_server.ollama.payloads import qualified_name
from mochi_server.ollama.types import ChatMessage, ModelInfo
from mochi_server.services.keys import KeyRing
from mochi_server.services.summary_model import SummaryModelSelector
from mochi_server.services.usage import TurnLimiter
from mochi_server.sessions.audit import audit
from mochi_server.sessions.caller import CALLER, UNRESTRICTED
from mochi_server.sessions.session import ChatSession, revision_at
from mochi_server.sessions.store import SessionStore
from mochi_server.sessions.types import Message
from mochi_server.tools.schema import explain
from mochi_server.util.tasks import cancel_and_wait

_INSTRUCTION = (
    "You summarize conversations. Write `summary`: two to five sentences that say what was "
    "talked about and what came of it, in the language of the conversation. Write `topics`: a "
    "few short topics. Answer with JSON alone."
)
_CONTINUATION = (
    "Summarize our conversation in its language, as JSON: `summary`, two to five sentences, and "
    "`topics`, a few short topics."
)
_MAX_SUMMARY_CHARS = 800
_MAX_TOPICS = 8
_MAX_TOPIC_CHARS = 40
_MAX_PROMPT_RATIO = 0.6
_ANSWER_TOKENS = 1200  # the longest JSON of the schema fits even if each character is a token
_UNKNOWN_WINDOW = 4096
_MAX_STATES = 10_000
_MAX_POSTPONEMENTS = 5  # by turns of other sessions; a busy server must also write summaries

logger = logging.getLogger(__name__)

_Topic = Annotated[str, Field(json_schema_extra={"maxLength": _MAX_TOPIC_CHARS})]


class ConversationSummary(BaseModel):
    """Summary in the JSON format that the model must return."""

    # The maxima are only in the schema. A longer summary is valid, because some models ignore them.
    summary: Annotated[
        str,
        StringConstraints(strip_whitespace=True, min_length=1),
        Field(json_schema_extra={"maxLength": _MAX_SUMMARY_CHARS}),
    ]
    topics: Annotated[list[_Topic], Field(json_schema_extra={"maxItems": _MAX_TOPICS})]


_SCHEMA = ConversationSummary.model_json_schema()


_MIN_CHECK_SECONDS = 0.1
"""Shortest time between two checks whether the host is idle, also with an interval of 0."""


@dataclass
class _SummaryState:
    task: "asyncio.Task[None] | None" = None
    answer_id: str | None = None
    """Last answer of this process. Other servers summarize after their own answers."""
    failed: set[str] = field(default_factory=set)
    """Qualified names of models that failed in this session.

    The background does not use a model until it has written a summary that a client requested.
    """
    postponements: int = 0
    """Number of postponements by turns of other sessions, since the latest turn of this one."""


@dataclass(eq=False)
class SummarizationService:
    """Service that summarizes sessions on request, and in the background ``interval`` seconds after
    a turn.
    """

    store: SessionStore
    gateway: ModelGateway
    selector: SummaryModelSelector
    limiter: TurnLimiter
    enabled: bool
    interval: float
    idle_seconds: float = 60
    """Time without a turn on the host after which a summary may load a model that the user has
    chosen.
    """
    keys: KeyRing = field(default_factory=KeyRing)
    instructor: StructuredClient | None = None
    """Client that writes the summaries in place of Ollama, if any."""
    _states: dict[str, _SummaryState] = field(default_factory=dict, init=False)
    _writing_in_background: set[str] = field(default_factory=set, init=False)
    """Sessions whose background summary the model is writing."""
    _running_turns: set[str] = field(default_factory=set, init=False)

    def turn_starting(self, session_id: str) -> None:
        """Cancel the session's summary and postpone summaries of other sessions that a model is
        writing, so that the turn need not wait.
        """
        self._running_turns.add(session_id)
        self._postpone_for(session_id)

    def _postpone_for(self, session_id: str) -> None:
        """Cancel the session's background summary, and start other ones that a model is writing
        anew, up to ``_MAX_POSTPONEMENTS`` times.
        """
        self._cancel(session_id)
        for other in tuple(self._writing_in_background):
            state = self._states[other]
            if state.postponements < _MAX_POSTPONEMENTS:
                state.postponements += 1
                self._schedule(other, state)

    def release_turn(self, session_id: str) -> None:
        """Let summaries of other sessions run, because the turn may wait for days."""
        self._running_turns.discard(session_id)

    def turn_ended(self, session_id: str, answer_id: str | None) -> None:
        """Schedule a summary of the session, if background summaries are enabled.

        ``answer_id`` is None if the turn stored no answer.
        """
        self.release_turn(session_id)
        if self.enabled:
            state = self._states.setdefault(session_id, _SummaryState())
            state.postponements = 0
            state.answer_id = answer_id or state.answer_id
            self._schedule(session_id, state)
            self._discard_oldest()

    def _discard_oldest(self) -> None:
        """Discard the oldest states above the limit, except those with a scheduled summary."""
        excess = len(self._states) - _MAX_STATES
        if excess <= 0:
            return
        ended = [session_id for session_id, state in self._states.items() if state.task is None]
        for session_id in ended[:excess]:
            del self._states[session_id]

    def _cancel(self, session_id: str) -> None:
        state = self._states.get(session_id)
        if state is not None and state.task is not None:
            state.task.cancel()
            state.task = None
            self._writing_in_background.discard(session_id)

    def _schedule(self, session_id: str, state: _SummaryState) -> None:
        self._cancel(session_id)
        work = self._run_in_background(session_id, state)
        state.task = asyncio.get_running_loop().create_task(work)

    def drop_session(self, session_id: str) -> None:
        """Cancel the background summary of a session that is deleted or is never summarized, and
        discard its state.
        """
        self._running_turns.discard(session_id)
        self._cancel(session_id)
        self._states.pop(session_id, None)
        self.gateway.discard_session(session_id)

    async def summarize(self, session_id: str, model: str | None = None) -> ChatSession:
        """Store a summary and return the changed session.

        ``model`` then becomes its ``summary_model``. Raises ``MochiError``.
        """
        async with self.limiter.turn() as count_start:
            return await self._summarize(session_id, model, count_start)

    async def _summarize(
        self, session_id: str, model: str | None, count_start: Callable[[], None]
    ) -> ChatSession:
        session = await self.store.load(session_id)
        if not any(_is_dialogue(message) for message in session.history):
            raise NothingToSummarize(session_id)
        ticket = self.gateway.admit()
        chosen = model or self.selector.choose(session.metadata) or session.model
        gateway = await self.gateway.pinned(session.metadata.ollama_host)
        await gateway.find_model(chosen)
        count_start()
        self._postpone_for(session_id)
        state = self._states.setdefault(session_id, _SummaryState())
        had_failed = qualified_name(chosen) in state.failed
        session = await self._update_on_request(session, chosen, state, ticket)
        if had_failed:  # a first failure in this request, of the continuation, remains
            state.failed.discard(qualified_name(chosen))
        if model is not None:
            session = await self.store.patch(session_id, {"summary_model": model})
            audit("Session settings changed", session_id=session_id, fields="summary_model")
        return session

    async def _update_on_request(
        self, session: ChatSession, name: str, state: _SummaryState, ticket: Ticket
    ) -> ChatSession:
        """Store a summary and return the changed session.

        If a host fails, try the next one that has the model. Raises the error of the last one.
        """
        gateway = await self._gateway_of(session, name)
        tried = set[str]()
        while True:
            tried.add(gateway.host.name)
            try:
                return await self._update_summary(
                    gateway, session, name, state, in_background=False, ticket=ticket
                )
            except (OllamaUnreachable, OllamaError):
                gateway = await self._gateway_of(session, name)
                if gateway.host.name in tried or not gateway.host.has(name):
                    raise

    async def _gateway_of(self, session: ChatSession, model: str) -> ModelGateway:
        """Return the gateway to the host that writes the session's summary with ``model``."""
        pinned = await self.gateway.pinned(session.metadata.ollama_host)
        return pinned.of_session(session.session_id, model)

    async def aclose(self) -> None:
        tasks = [state.task for state in self._states.values() if state.task is not None]
        await cancel_and_wait(tasks)

    async def _run_in_background(self, session_id: str, state: _SummaryState) -> None:
        """Wait for the interval and for running turns, and store a summary if one is due.

        Raises no ``MochiError``. After an ``OllamaError`` other than ``OllamaBusy``, the background
        does not use the model. Discard the state at the end, unless a model has failed.
        """
        model: str | None = None
        CALLER.set(UNRESTRICTED)  # a turn of another owner may have scheduled the summary
        try:
            await asyncio.sleep(self.interval)
            while self._running_turns and state.postponements < _MAX_POSTPONEMENTS:
                # Between two tool rounds, a summary would delay the turn and overwrite its cached
                # prompt.
                state.postponements += 1
                await asyncio.sleep(self.interval)
            session = await self.store.load(session_id)
            CALLER.set(self.keys.caller_inside(session.metadata.owner))
            model = self.selector.choose(session.metadata)
            if (
                model is not None
                and qualified_name(model) not in state.failed
                and _is_due(session, state)
            ):
                await self._summarize_in_background(session, model, state)
        except (SessionConflict, _ModelNotLoaded, OllamaBusy):
            pass  # the next turn of the session schedules a summary
        except MochiError as error:
            # The error message is not logged, because it may quote the conversation.
            logger.info("Background summary failed session_id=%s code=%s", session_id, error.code)
            if model is not None and isinstance(error, OllamaError):
                state.failed.add(qualified_name(model))
        # Not after a cancellation, because the state may already have another task
        state.task = None
        self._writing_in_background.discard(session_id)
        if not state.failed:
            self._states.pop(session_id, None)

    async def _summarize_in_background(
        self, session: ChatSession, model: str, state: _SummaryState
    ) -> None:
        """Store a summary.

        If the user has chosen another model than that of the session, load it when no turn needs
        the memory.
        """
        self._writing_in_background.add(session.session_id)
        gateway = await self._gateway_of(session, model)
        try:
            await self._update_summary(gateway, session, model, state, in_background=True)
        except _ModelNotLoaded:
            if qualified_name(model) == qualified_name(session.model):
                raise
            self._writing_in_background.discard(session.session_id)
            gateway = await self._idle_gateway_of(session, model)
            self._writing_in_background.add(session.session_id)
            await self._update_summary(
                gateway, session, model, state, in_background=True, may_load=True
            )

    async def _idle_gateway_of(self, session: ChatSession, model: str) -> ModelGateway:
        """Wait until no turn needs the memory of the host, and return the gateway to the host."""
        while True:
            gateway = await self._gateway_of(session, model)
            host = gateway.host
            wait = self.idle_seconds - host.tracker.seconds_without_turn()
            if wait <= 0 and not self._has_running_turn(host.name):
                return gateway
            await asyncio.sleep(max(wait, self.interval, _MIN_CHECK_SECONDS))

    def _has_running_turn(self, host: str) -> bool:
        """Return whether a turn runs that has sent its latest request to ``host``, or none yet."""
        for session_id in self._running_turns:
            latest = self.gateway.hosts_of_turns.get(session_id)
            if latest is None or latest.name == host:
                return True
        return False

    async def _update_summary(
        self,
        gateway: ModelGateway,
        session: ChatSession,
        name: str,
        state: _SummaryState,
        *,
        in_background: bool,
        may_load: bool = False,
        ticket: Ticket | None = None,
    ) -> ChatSession:
        """Store a summary and return the changed session.

        In the background, raise ``_ModelNotLoaded`` instead of loading, unloading or reloading a
        model of Ollama, and ``SessionConflict`` if the session has changed. ``may_load`` permits
        loading. ``ticket`` is that of an admitted request.
        """
        model = await gateway.find_model(name)
        loaded = (await gateway.host.client.loaded_windows() or {}).get(qualified_name(name))
        manual = None
        if qualified_name(session.model) == qualified_name(model.name):
            manual = manual_window(model, session.metadata.context_window_config)
        if in_background:
            wanted = manual or gateway.windows.size(name)
            needs_reload = loaded and wanted not in (None, loaded)
            changes_models = not may_load
            if loaded:
                changes_models = _unloads_model(session.metadata.keep_alive)
            loads_models = gateway.host.client.loads_models and not model.is_cloud
            if needs_reload or (changes_models and loads_models):
                raise _ModelNotLoaded(name)
        ticket = ticket or Ticket()
        summary = await self._continue_prompt(gateway, session, model, loaded, state, ticket=ticket)
        if summary is None:
            window = loaded if in_background and loaded else manual
            summary = await self._request_separately(
                gateway, session, model, name, window, is_manual=manual is not None, ticket=ticket
            )
        changes = {
            "summary": summary.model_dump(),
            "summarized_by": name,
            "summarized_revision": session.revision,
        }
        revision = session.revision if in_background else None
        return await self.store.patch(
            session.session_id, changes, revision=revision, touch=not in_background
        )

    async def _request_separately(
        self,
        gateway: ModelGateway,
        session: ChatSession,
        model: ModelInfo,
        name: str,
        window: int | None,
        *,
        is_manual: bool,
        ticket: Ticket,
    ) -> ConversationSummary:
        """Request a summary with a prompt of its own.

        If ``window`` is None, choose the window.
        """
        allocation = gateway.allocate(model)
        if window is None:
            await allocation.decide(_ANSWER_TOKENS)
            window = allocation.size
        prompt = _SummaryPrompt(
            allocation=allocation, session=session, window=window or _UNKNOWN_WINDOW
        )
        payload = payload_without_thinking(
            model,
            name,
            max_tokens=_ANSWER_TOKENS,
            keep_alive=session.metadata.keep_alive,
            format=_SCHEMA,
        )
        sets_window = gateway.windows.dynamic or is_manual
        request = ModelRequest(
            allocation=allocation.fixed(window if sets_window else None),
            payload=payload,
            prompt=prompt,
            ticket=ticket,
        )
        return await self._request_summary(gateway, request)

    async def _continue_prompt(
        self,
        gateway: ModelGateway,
        session: ChatSession,
        model: ModelInfo,
        loaded: int | None,
        state: _SummaryState,
        *,
        ticket: Ticket,
    ) -> ConversationSummary | None:
        """Request a summary by continuing the session's cached prompt.

        Return None if this is not possible, or after an ``OllamaError``. Unless that is
        ``OllamaBusy``, the background does not use the model any more. Other errors are raised.
        """
        exchange, is_held = gateway.host.slots(model.name).exchange_of(session.session_id)
        if exchange is None or loaded is None or not _is_current(exchange, session):
            return None
        allocation = gateway.allocate(model)
        answer = session.history[-1]["content"]
        separate = _SummaryPrompt(allocation=allocation, session=session, window=loaded)
        uncached = exchange.size.characters + len(answer) + len(_CONTINUATION)
        if not is_held and uncached > separate.characters:
            return None  # if no slot holds the prompt any more, the continuation would cost more
        if _unloads_model(exchange.payload.get("keep_alive")):
            return None  # the model has been loaded again since
        options = dict(exchange.payload.get("options") or {})
        window = options.get("num_ctx")
        request_tokens = allocation.estimate.tokens(PromptSize(len(_CONTINUATION)))
        needed = exchange.tokens + request_tokens + _ANSWER_TOKENS
        if window not in (None, loaded) or needed > loaded:
            return None
        options.pop("stop", None)  # a stop sequence such as "." would end the JSON too early
        options["num_predict"] = _ANSWER_TOKENS
        prompt = FixedPrompt(exchange.payload["messages"], exchange.size)
        request = ModelRequest(
            allocation=allocation.fixed(window),
            payload={**exchange.payload, "format": _SCHEMA, "options": options},
            prompt=prompt.extended(answer, _CONTINUATION),
            limits_answer=False,
            exchange=lambda *_: exchange,
            session_id=session.session_id,
            ticket=ticket,
        )
        try:
            return await self._request_summary(gateway, request)
        except OllamaError as error:
            logger.info(
                "Summary by continuation failed session_id=%s code=%s",
                session.session_id,
                error.code,
            )
            if not isinstance(error, OllamaBusy):
                # A separate summary after each turn would remove the prompt from the cache.
                state.failed.add(qualified_name(model.name))
            return None

    async def _request_summary(
        self, gateway: ModelGateway, request: ModelRequest
    ) -> ConversationSummary:
        """Request a summary.

        If the answer is invalid, send the validation error to the model and retry once. Raises
        ``OllamaError`` if the second answer is invalid too.
        """
        error = ""
        for _ in range(2):
            structured = StructuredRequest(gateway, request, self.instructor)
            try:
                answer = await structured.send(ConversationSummary)
                return ConversationSummary.model_validate_json(answer.message["content"])
            except ValidationError as invalid:
                error = explain(invalid)
                correction = (
                    f"That was not the JSON asked for: {error}. Answer again, with JSON alone."
                )
                prompt = structured.sent.extended(structured.text, correction)
                request = replace(request, prompt=prompt)
        text = f"Model {request.payload['model']!r} returned no valid summary ({error})."
        raise OllamaError(f"{text} Send another model in the field `model`.")


@dataclass(eq=False)
class _SummaryPrompt:
    """Prompt with the previous summary and the newer messages.

    The oldest text is cut until the prompt fits.
    """

    allocation: Allocation
    session: ChatSession
    window: int
    size: PromptSize = field(default_factory=PromptSize)

    async def fit(self, refused_tokens: int | None) -> FixedPrompt | None:
        """Return a prompt that fits by the estimate.

        A refusal has raised the estimate. Return None if the prompt is not shorter then.
        """
        previous = self.size
        self.size = PromptSize(self.characters)
        if refused_tokens is not None and self.size.characters >= previous.characters:
            return None
        return FixedPrompt(self._messages(), self.size)

    @property
    def characters(self) -> int:
        return sum(len(message["content"]) for message in self._messages())

    def _messages(self) -> list[ChatMessage]:
        newer = self._newer_messages()
        earlier = ""
        summary = self.session.metadata.summary
        if summary and len(newer) < len(self.session.history):
            earlier = str(summary.get("summary"))[:_MAX_SUMMARY_CHARS]
            earlier = f"Summary so far: {earlier}\n\n"
        dialogue = filter(_is_dialogue, newer)
        text = "\n\n".join(f"{message['role']}: {message['content']}" for message in dialogue)
        while len(text) > 200 and self._is_too_long(earlier + text):
            text = text[len(text) // 4 :]
        return [
            {"role": "system", "content": _INSTRUCTION},
            {"role": "user", "content": f"{earlier}Summarize this conversation:\n\n{text}"},
        ]

    def _newer_messages(self) -> Sequence[Message]:
        """Return the messages after the previous summary.

        If there are none, return all messages: a client requests the summary again, for example
        from another model. The same applies if the last message that the summary covers has
        changed or moved.
        """
        history = self.session.history
        metadata = self.session.metadata
        if not metadata.summary:
            return history
        for number, message in enumerate(history, 1):
            if revision_at(number, message) == metadata.summarized_revision:
                return history[number:] or history
        return history

    def _is_too_long(self, text: str) -> bool:
        tokens = self.allocation.estimate.tokens(PromptSize(len(text)))
        return tokens > int(self.window * _MAX_PROMPT_RATIO)


class _ModelNotLoaded(Exception):
    """Refusal of a background summary that would load or unload a model, or change its window."""


def _unloads_model(keep_alive: str | float | None) -> bool:
    """Return whether Ollama unloads the model after a request with this ``keep_alive``, such as 0
    or ``0s``.
    """
    return keep_alive is not None and not re.search("[1-9]", str(keep_alive))


def _is_current(exchange: Exchange, session: ChatSession) -> bool:
    """Return whether the session contains exactly the history of ``exchange``, followed by the
    exchange's answer.
    """
    history = session.history
    if len(history) < 2 or history[0] != exchange.first_stored:
        return False
    if history[-1]["message_id"] != exchange.answer_id:
        return False
    return _without_system_prompt(history[:-1]) == _without_system_prompt(exchange.history)


def _without_system_prompt(history: Sequence[Message]) -> list[Message]:
    start = 1 if history[0]["role"] == "system" else 0
    return list(history[start:])


def _is_due(session: ChatSession, state: _SummaryState) -> bool:
    """Return whether the last message is a complete answer of this process that no summary
    covers.
    """
    if len(session.history) < 2:
        return False
    last = session.history[-1]
    if last["role"] != "assistant" or last.get("tool_calls") or last.get("interrupted"):
        return False
    is_covered = session.metadata.summarized_revision == session.revision
    return last["message_id"] == state.answer_id and not is_covered


def _is_dialogue(message: Message) -> bool:
    return message["role"] in ("user", "assistant")
