"""Gateway to the models. It sends every request that generates text or embeddings.

It chooses a host for each request, and the next host if the first one fails before the first token.

If Ollama refuses a prompt or runs out of memory, the gateway changes the window or requests a shorter prompt, and sends
the request again. It records which exchange a model's slot in Ollama contains, and which requests wait for a slot.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar
from weakref import WeakSet

import anyio

from mochi_server.config import HostAddress
from mochi_server.errors import ContextOverflow, MochiError, ModelNotFound, OllamaBusy, OllamaError, OllamaUnreachable
from mochi_server.inference.hosts import Fleet, is_host_failure, no_host_left
from mochi_server.inference.placement import MIN_PAUSE, Host, PromptNeeds, choose
from mochi_server.inference.waiting import FairQueue, Ticket
from mochi_server.inference.windows import Allocation, PromptSize, WindowRegistry
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.errors import is_context_refusal, is_out_of_memory, refused_tokens
from mochi_server.ollama.payloads import chat_payload, qualified_name
from mochi_server.ollama.transport import Line, OnLines
from mochi_server.ollama.types import ChatMessage, Encoded, ModelInfo
from mochi_server.sessions.types import Message

_POLL_SECONDS, _REPEAT_SECONDS = 1.0, 5.0
_MAX_MISSED_PROBES = 2  # of a host that does not begin to answer
_MAX_TURNS = 10_000  # sessions whose latest host is recorded


@dataclass(frozen=True, slots=True)
class Exchange:
    session_id: str
    payload: Mapping[str, Any]
    history: Sequence[Any]  # messages of the prompt; the system message includes the instructions
    first_stored: Any
    answer_id: str
    size: PromptSize
    tokens: int  # number of tokens of the prompt and the answer: the estimate or Ollama's count, whichever is larger


_KEPT_RATIO = 0.8  # share of a session's last prompt that is still cached if Ollama has kept the prompt
_MAX_PROMPTS = 32  # number of prompts that are recorded


@dataclass(frozen=True, slots=True)
class SessionPrompt:
    """Latest exchange of a session with a model. ``tokens`` is the count of its prompt, not of a summary's."""

    exchange: Exchange
    tokens: int
    kept: int | None  # number of other prompts after which Ollama still had the session's prompt, or None if unknown


class Slots:
    """Latest exchange of each model. An exchange is discarded before a new request overwrites the model's slot.

    Ollama can keep the prompts of several sessions. If it reports cached tokens, they show whether it does.
    """

    def __init__(self) -> None:
        self._exchanges: dict[str, Exchange] = {}
        self._prompts: dict[tuple[str, str], SessionPrompt | None] = {}  # by model and session ID, the latest last
        self._requests: dict[str, int] = {}
        self._trims: dict[str, tuple[int, str]] = {}  # window and last trimmed message, by session ID

    def begin(self, model: str, *, is_other: bool = True) -> int:
        """Discard the exchange of ``model`` before a request, of a session unless ``is_other``. Return its number."""
        name = qualified_name(model)
        self._exchanges.pop(name, None)
        number = self._requests[name] = self._requests.get(name, 0) + 1
        if is_other:
            self._prompts[name, str(number)] = None
        if len(self._prompts) > _MAX_PROMPTS:
            del self._prompts[next(iter(self._prompts))]
        return number

    def record(self, exchange: Exchange, request: int, last: Mapping[str, Any]) -> None:
        """Record an exchange with the number of its request and the last line of its answer."""
        name = qualified_name(exchange.payload["model"])
        if is_latest := request == self._requests.get(name):
            self._exchanges[name] = exchange
        key = (name, exchange.session_id)
        (before, distance), cached = self.prompt_of(*key), last.get("prompt_eval_cached_count")
        self._prompts.pop(key, None)
        if not isinstance(cached, int):
            return
        kept = before.kept if before else None
        # A larger window has reloaded the model, which says nothing about the next return.
        if before and distance and _window(before.exchange) == _window(exchange):
            is_cached = cached >= before.tokens * _KEPT_RATIO
            kept = max(kept or 0, distance) if is_cached else min(kept or 0, distance - 1)
        tokens = before.tokens if before and before.exchange is exchange else last.get("prompt_eval_count") or 0
        self._prompts[key] = SessionPrompt(exchange, tokens, kept if is_latest else kept or 0)

    def prompt_of(self, model: str, session_id: str) -> tuple[SessionPrompt | None, int]:
        """Return a session's latest prompt, or None without a count, and the number of the model's prompts since."""
        name = qualified_name(model)
        latest = [key[1] for key in reversed(self._prompts) if key[0] == name]
        return self._prompts.get((name, session_id)), latest.index(session_id) if session_id in latest else 0

    def get(self, model: str) -> Exchange | None:
        return self._exchanges.get(qualified_name(model))

    def discard_session(self, session_id: str) -> None:
        """Discard the exchanges and the trim record of a session that is about to be deleted."""
        self._trims.pop(session_id, None)
        self._prompts = {key: each for key, each in self._prompts.items() if key[1] != session_id}
        self._exchanges = {name: each for name, each in self._exchanges.items() if each.session_id != session_id}

    def trim_end(self, session_id: str, window: int | None, history: Sequence[Message]) -> int:
        """Return how many messages earlier prompts have trimmed, or 0 after a change of the window."""
        trimmed_window, last = self._trims.get(session_id, (None, None))
        if last is None or trimmed_window != window:
            return 0
        return next((i + 1 for i, message in enumerate(history) if message["message_id"] == last), 0)

    def record_trim(self, session_id: str, window: int | None, history: Sequence[Message], end: int) -> None:
        """Record that a prompt trims the first ``end`` messages, so that later prompts begin with the same text."""
        if end and window is not None:
            self._trims[session_id] = window, history[end - 1]["message_id"]


def _window(exchange: Exchange) -> Any:
    return (exchange.payload.get("options") or {}).get("num_ctx")


@dataclass(eq=False, slots=True)
class TrackedRequest:
    """A running request. ``answering`` is true after the first token."""

    model: str
    answering: bool = False
    is_turn: bool = False
    started: float = field(default_factory=time.monotonic)
    sent: float | None = None  # when it left this server's queue
    missed_probes: int = 0


class RequestTracker:
    """Tracker of the requests that this process sends to one Ollama server."""

    def __init__(self, on_first_token: Callable[[str, float], None]) -> None:
        self._on_first_token = on_first_token  # receives the model and the seconds until the first token
        self._running: dict[TrackedRequest, None] = {}
        self._max_parallel: dict[str, int] = {}  # parallel answers so far, by model, as Ollama does not report slots

    @contextmanager
    def request(self, model: str, *, is_turn: bool = False) -> Iterator[TrackedRequest]:
        request = TrackedRequest(qualified_name(model), is_turn=is_turn)
        self._running[request] = None
        try:
            yield request
        finally:
            del self._running[request]

    def slots(self, model: str) -> int:
        """Return the highest number of parallel answers of a model so far, at least 1."""
        return self._max_parallel.get(qualified_name(model), 1)

    def waiting_turns(self) -> int:
        return sum(request.is_turn and not request.answering for request in self._running)

    def first_token(self, request: TrackedRequest) -> None:
        request.answering = True
        self._on_first_token(request.model, time.monotonic() - request.started)
        parallel = sum(other.answering and other.model == request.model for other in self._running)
        self._max_parallel[request.model] = max(self._max_parallel.get(request.model, 1), parallel)

    def is_queued(self, request: TrackedRequest, *, loaded: bool) -> bool:
        """Return whether a request waits because earlier requests use all slots of the model, or must load models."""
        earlier = takewhile(lambda other: other is not request, self._running)
        count = sum(not loaded or other.model == request.model for other in earlier)
        return count >= (self._max_parallel.get(request.model, 1) if loaded else 1)


State = tuple[str, int | None]  # of a waiting request, and its position in this server's queue, starting at 1
Report = Callable[..., None]  # receives a state, its position or None, and perhaps the name of a host


@contextmanager
def reporting_status(state: Callable[[], Awaitable[State]], report: Report | None) -> Iterator[Callable[[], object]]:
    """Report ``state`` after one second, on changes and every five seconds, until the yielded function is called."""
    if report is None:
        yield lambda: None
        return
    task = asyncio.get_running_loop().create_task(_report_status(state, report))
    try:
        yield task.cancel
    finally:
        task.cancel()


async def _report_status(state: Callable[[], Awaitable[State]], report: Report) -> None:
    last_status: State = "", None
    reported_at = 0.0
    while True:
        await asyncio.sleep(_POLL_SECONDS)
        status, now = await state(), time.monotonic()
        if status != last_status or now - reported_at >= _REPEAT_SECONDS:
            last_status, reported_at = status, now
            report(*status)


class PromptSource(Protocol):
    """Source of a prompt, and the way to shorten it."""

    @property
    def size(self) -> PromptSize:
        """Size of the prompt before it is shortened."""

    async def fit(self, window: int | None, refused: int | None) -> "FixedPrompt | None":
        """Return a prompt for ``window`` tokens, or None. It is shorter if one of ``refused`` tokens was refused."""


@dataclass(frozen=True, slots=True)
class FixedPrompt:
    """Messages with their size. They cannot be shortened."""

    messages: Sequence[ChatMessage | Encoded]
    size: PromptSize

    async def fit(self, window: int | None, refused: int | None) -> "FixedPrompt | None":  # noqa: ARG002 - a protocol
        return self if refused is None else None

    def extended(self, answer: str, request: str) -> "FixedPrompt":
        """Return this prompt followed by an answer of the model and a request of the user."""
        more: list[ChatMessage] = [{"role": "assistant", "content": answer}, {"role": "user", "content": request}]
        return FixedPrompt([*self.messages, *more], self.size + PromptSize.of(more))


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    allocation: Allocation
    payload: Mapping[str, Any]  # body of the request, without the prompt and the window
    prompt: PromptSource
    limits_answer: bool = True  # whether the answer must end where the window ends
    exchange: Callable[[Mapping[str, Any], PromptSize, int], Exchange] | None = None  # from body, prompt and tokens
    report: Report | None = None  # receives `queued`, `loading_model`, `processing_prompt` or `failover`
    session_id: str = ""
    avoid: Sequence[str] = ()  # names of hosts that serve other parts of the same comparison
    ticket: Ticket = field(default_factory=Ticket)

    def body(self, prompt: FixedPrompt) -> tuple[dict[str, Any], int | None]:
        """Return the body for ``/api/chat``, and the limit of the answer in tokens if the window sets one."""
        options, limit, window = dict(self.payload.get("options") or {}), None, self.allocation.size
        # If Ollama chooses the window, an answer must end where it ends. Ollama would drop the oldest messages.
        more: dict[str, Any] = {"shift": False} if window is None else {}
        if window is not None:
            options["num_ctx"] = window
            if self.limits_answer:
                limit = self.allocation.answer_limit(prompt.size, window, options.get("num_predict"))
                options |= {} if limit is None else {"num_predict": limit}
        more |= {"options": options} if options else {}
        return {**self.payload, "messages": prompt.messages, **more}, limit


@dataclass(frozen=True, slots=True)
class Answer:
    prompt: FixedPrompt
    tokens: int  # number of tokens of the prompt and the answer: the estimate or Ollama's count, whichever is larger
    is_prompt_truncated: bool
    is_cut: bool
    host: str


class HostOfTurn(NamedTuple):
    """Host of a session's latest turn and why it was chosen. ``digest`` is that of the conversation's first turn."""

    name: str
    reason: str
    model: str
    digest: str | None


class _AnswerLost(Exception):
    """Failure of a request after its first token."""


_MAX_PASSES = 3  # through all hosts for one request, because hosts can be restarted meanwhile
_MAX_ATTEMPTS = 8  # for one answer; after a refused prompt, the prompt or the window changes
_Result = TypeVar("_Result")


def payload_without_thinking(
    model: ModelInfo, name: str, max_tokens: int, keep_alive: str | float | None, format: Any = None
) -> dict[str, Any]:
    """Return the body of a request to ``model``, called ``name``, for an answer of at most ``max_tokens`` tokens."""
    think = False if model.has_capability("thinking") else None
    options = {"num_predict": max_tokens}
    return chat_payload(name, (), think=think, options=options, format=format, keep_alive=keep_alive)


class GatewayObserver:
    """Observer of the gateway. The methods do nothing."""

    def first_token(self, model: str, seconds: float) -> None:
        """Observe the time in seconds from a request to the first token of its answer."""

    def response_ended(self, last: Mapping[str, Any], host: str = "") -> None:
        """Observe the last line of an answer of the host with the name ``host``."""

    def context_adjusted(self, reason: str) -> None:
        """Observe that the context window of a session has changed."""

    def context_compacted(self) -> None:
        """Observe that a summary has replaced the oldest turns of a prompt."""


class ModelGateway:
    """Gateway to the models of the Ollama hosts.

    If ``dynamic`` is false, only users set context windows. ``initial`` is the first window of a model, in tokens.
    ``slots`` is the number of requests that each host takes at a time, and ``max_queue`` of those that may wait.
    """

    def __init__(
        self,
        client: AsyncOllamaClient | Callable[[str], AsyncOllamaClient],
        *,
        hosts: Callable[[], Sequence[HostAddress]] = lambda: [HostAddress("ollama", "")],
        hosts_file: Path | None = None,
        dynamic: bool = True,
        initial: int | None = None,
        slots: int | None = None,
        max_queue: int = 512,
        observer: GatewayObserver = GatewayObserver(),  # noqa: B008 - no state
    ) -> None:
        """``client`` is the only client, or returns the client for a URL. ``hosts`` is called again as in ``Fleet``."""

        def connect(address: HostAddress) -> Host:
            new = client if isinstance(client, AsyncOllamaClient) else client(address.url)
            windows = WindowRegistry(new.loaded_windows, dynamic, observer.context_adjusted, initial, new.size_of)
            tracker = RequestTracker(observer.first_token)
            return Host(address.name, new, windows, Slots(), tracker, FairQueue(slots))

        self.client = Fleet(hosts, connect, hosts_file)
        self.observer, self.max_queue = observer, max_queue
        self.turns: dict[str, HostOfTurn] = {}  # by session ID, the latest last
        self._tickets: WeakSet[Ticket] = WeakSet()
        self._only: Host | None = None

    @property
    def windows(self) -> WindowRegistry:
        return (self._only or self.client.up[0]).windows

    @property
    def slots(self) -> Slots:
        return (self._only or self.client.up[0]).slots

    def _at(self, host: Host) -> "ModelGateway":
        """Return this gateway for requests to one host only."""
        only = copy(self)
        only._only = host
        return only

    def pinned(self, name: str | None) -> "ModelGateway":
        """Return the gateway to the host of this name, or this one for None. Raises ``OllamaUnreachable``."""
        if name is None:
            return self
        self.client.refresh()
        if (host := next((host for host in self.client.active if host.name == name), None)) is None:
            raise OllamaUnreachable(name, "the session is pinned to this host, which is not in MOCHI_OLLAMA_HOSTS")
        return self._at(host)

    def of_session(self, session_id: str, model: str) -> "ModelGateway":
        """Return the gateway to the host of the session's latest turn, or to another one that has ``model``."""
        if self.client.is_single or self._only:
            return self
        own, name = self.turns.get(session_id), qualified_name(model)

        def rank(host: Host) -> tuple[bool, bool, bool]:
            return host.has(model), own is not None and host.name == own.name, name in (host.client.last_windows or ())

        return self._at(max(self.client.up, key=rank))

    def discard_session(self, session_id: str) -> None:
        """Discard what is recorded about a session that is about to be deleted."""
        self.turns.pop(session_id, None)
        for host in self.client.hosts:
            host.slots.discard_session(session_id)

    def admit(self) -> Ticket:
        """Admit a turn. Keep the ticket until its first request. Raises ``OllamaBusy`` if too many turns wait."""
        queues, ticket = [host.queue for host in self.client.up], Ticket()
        requests = len(self._tickets) + sum(queue.waiting + queue.running for queue in queues)
        if requests >= self.max_queue + sum(queue.limit or inf for queue in queues):
            raise OllamaBusy(f"{self.max_queue} requests wait already, which is the limit of MOCHI_MAX_QUEUE")
        self._tickets.add(ticket)
        return ticket

    async def find_model(self, name: str) -> ModelInfo:
        """Return the installed chat model ``name``. Raises ``ModelNotFound`` and the errors of ``send``."""
        return await (self._only or self).client.find_model(name)

    async def list_models(self) -> list[ModelInfo]:
        """List the installed models that can chat, in Ollama's order."""
        return await self.client.list_models()

    def prefetch_loaded(self) -> None:
        """Request the windows of loaded models in the background, for the next turn."""
        self.client.prefetch_loaded()

    async def loaded_window(self, model: str) -> int | None:
        """Return the window with which Ollama has loaded a model, or None if it is not loaded or unknown."""
        host = self._only or self.client.up[0]
        return (await host.client.loaded_windows() or {}).get(qualified_name(model))

    def allocate(
        self, model: ModelInfo, config: Mapping[str, Any] | None = None, previous_model: str | None = None
    ) -> Allocation:
        return Allocation(self.windows, model, config, previous_model)

    async def send(self, request: ModelRequest, on_lines: OnLines) -> Answer:
        """Send a request and pass batches of lines to ``on_lines``. Raises ``OllamaError`` and ``ContextOverflow``."""
        return await self._on_best_host(request, partial(self._post_chat, request, on_lines))

    async def embed(self, request: ModelRequest) -> Mapping[str, Any]:
        """Request embeddings of the texts in the payload and return Ollama's response. Raise the errors of ``send``."""

        async def attempt(host: Host, _: FixedPrompt) -> Mapping[str, Any] | OllamaError:
            size, name = request.allocation.size, request.payload["model"]
            options = {"options": {"num_ctx": size}} if size else {}
            host.slots.begin(name)
            async with host.queue.slot(request.session_id):
                with host.tracker.request(name):
                    try:
                        return await host.client.embed({**request.payload, **options})
                    except OllamaError as error:
                        return error

        return await self._on_best_host(request, attempt)

    async def _on_best_host(
        self,
        request: ModelRequest,
        attempt: Callable[[Host, FixedPrompt], Awaitable[_Result | OllamaError]],
        failed: Mapping[Host, MochiError] = MappingProxyType({}),
        passes: int = _MAX_PASSES,
    ) -> _Result:
        """Send a request to the best host. If the host fails before the first token, try the next one."""
        fleet, allocation, failures = self.client, request.allocation, dict(failed)
        while (host := self._choose(request, failures)) is not None:
            if failures and request.report is not None:
                request.report("failover", None, host.name)
            allocation.windows = host.windows
            try:
                with host.assigned(request.payload["model"]):
                    result = await self._until_accepted(request, partial(attempt, host))
                host.pause = MIN_PAUSE
                host.failure = None
                return result
            except _AnswerLost as lost:
                error = lost.args[0]
                if is_host_failure(error) and not error.upstream_text:
                    fleet.fail(host, error)
                raise error from lost.__cause__
            except (OllamaUnreachable, OllamaError, ModelNotFound) as error:
                if is_host_failure(error):
                    fleet.fail(host, error)
                elif isinstance(error, OllamaError) and not is_out_of_memory(error):
                    raise  # another host may have the model or the memory, but not another answer
                failures[host] = error.with_traceback(None)
            finally:
                fleet.drop_drained()
        if passes > 1 and (rest := await fleet.without_revived(failures)) != failures:
            return await self._on_best_host(request, attempt, rest, passes - 1)
        raise no_host_left(failures)

    def _choose(self, request: ModelRequest, failures: Mapping[Host, MochiError]) -> Host | None:
        """Return the host for a request, or None if all hosts have failed."""
        fleet, allocation, model = self.client, request.allocation, request.payload["model"]
        hosts = [self._only] if self._only else fleet.active
        if allocation.is_fixed and allocation.size is not None:  # the window is that of one host
            hosts = [host for host in fleet.hosts if host.windows is allocation.windows] or hosts
        rest = [host for host in hosts if host not in failures]
        for is_better in (lambda host: host.failure is None, lambda host: host.has(model)):
            rest = [*filter(is_better, rest)] or rest
        if not rest:
            return None
        host, reason = rest[0], "only_host" if fleet.is_single else "pinned" if len(hosts) == 1 else "only_up"
        if len(rest) > 1:
            host, reason = choose(rest, self._needs(request))
        if request.session_id:
            self._record_turn(request.session_id, model, host, "failover" if failures else reason)
        return host

    def _needs(self, request: ModelRequest) -> PromptNeeds:
        allocation, model, turn = request.allocation, request.payload["model"], self.turns.get(request.session_id)
        own = (allocation.config or {}).get("current_window") or 0
        return PromptNeeds(
            *(request.session_id, model, allocation.estimate.tokens(request.prompt.size), allocation.model.size_mb),
            window=allocation.manual or min(own, allocation.model.context_length or own),
            is_manual=allocation.manual is not None,
            digest=turn.digest if turn is not None and turn.model == qualified_name(model) else None,
            avoid=request.avoid,
        )

    def _record_turn(self, session_id: str, model: str, host: Host, reason: str) -> None:
        name, digest, before = qualified_name(model), host.client.digest(model), self.turns.pop(session_id, None)
        if before is not None and before.model == name:
            digest = before.digest or digest
        self.turns[session_id] = HostOfTurn(host.name, reason, name, digest)
        if len(self.turns) > _MAX_TURNS:
            del self.turns[next(iter(self.turns))]

    async def _until_accepted(
        self, request: ModelRequest, attempt: Callable[[FixedPrompt], Awaitable[_Result | OllamaError]]
    ) -> _Result:
        """Repeat ``attempt`` until Ollama accepts the prompt. ``attempt`` returns an error that may be a refusal."""
        allocation, size, refused = request.allocation, request.prompt.size, None
        model = allocation.model
        error: OllamaError | None = None
        await allocation.decide(allocation.estimate.tokens(size))
        for _ in range(_MAX_ATTEMPTS):
            prompt = await request.prompt.fit(allocation.size, refused)
            if prompt is None:
                raise error or ContextOverflow(allocation.size, refused or 0)
            allocation.windows.record_request(model.name, allocation.size)
            size, result = prompt.size, await attempt(prompt)
            if not isinstance(result, OllamaError):
                return result
            error, refused = result, None
            if is_context_refusal(error):
                tokens = refused_tokens(error) or allocation.estimate.tokens(size) * 2
                allocation.estimate.observe(size, tokens)
                # If the prompt cannot be shortened and exceeds the model's maximum, Ollama must not reload the model.
                is_too_long = isinstance(request.prompt, FixedPrompt) and tokens >= (model.context_length or inf)
                refused = None if not is_too_long and allocation.grow(tokens) else tokens
            elif not (is_out_of_memory(error) and allocation.step_down()):
                raise error
        raise ContextOverflow(allocation.size, allocation.estimate.tokens(size))

    async def _post_chat(
        self, request: ModelRequest, on_lines: OnLines, host: Host, prompt: FixedPrompt
    ) -> Answer | OllamaError:
        """Send a request once. If it failed before the first token, return the error."""
        allocation, name = request.allocation, request.payload["model"]
        body, limit = request.body(prompt)
        last: Line = {}
        scope, tracker, state = anyio.CancelScope(), host.tracker, host.model(name)
        with (
            tracker.request(name, is_turn=request.report is not None) as tracked,
            reporting_status(lambda: self._status(host, tracked, request, scope), request.report) as end_reports,
        ):

            def receive(lines: list[Line]) -> None:
                if not tracked.answering:
                    end_reports()
                    tracker.first_token(tracked)
                on_lines(lines)
                if lines[-1].get("done"):
                    nonlocal last
                    last = lines[-1]
                    self.observer.response_ended(last, host.name)

            async with host.queue.slot(request.session_id, lambda: self._tickets.discard(request.ticket)):
                tracked.sent = time.monotonic()
                number, begun = (
                    host.slots.begin(name, is_other=request.exchange is None),
                    state.begin(request.session_id),
                )
                try:
                    with scope:
                        await host.client.post_chat(body, receive)
                except OllamaError as error:
                    if tracked.answering:
                        raise _AnswerLost(error) from error
                    return error
                if scope.cancelled_caught:
                    return OllamaError(f"Ollama at {host.client.endpoint.url} stopped responding before its answer.")
        state.record(request.session_id, begun, last, time.monotonic() - tracked.sent)
        answer = Answer(prompt, *allocation.record(last, prompt.size, limit), host.name)
        if request.exchange is not None:
            host.slots.record(request.exchange(body, prompt.size, answer.tokens), number, last)
        return answer

    async def _status(self, host: Host, request: TrackedRequest, sent: ModelRequest, scope: anyio.CancelScope) -> State:
        """Return the status of a waiting request. Ollama lists a model as soon as it begins to load it."""
        allocation = sent.allocation
        if request.sent is None:
            return "queued", host.queue.position(sent.session_id)
        if not self.client.is_single:
            request.missed_probes = 0 if await host.client.is_reachable() else request.missed_probes + 1
            if request.missed_probes >= _MAX_MISSED_PROBES and not request.answering:
                scope.cancel()
        if not host.tracker.is_queued(request, loaded=allocation.is_loaded):
            return "processing_prompt" if allocation.is_loaded else "loading_model", None
        if allocation.is_loaded:
            return "queued", None
        listed = (await host.client.loaded_windows() or {}).get(request.model)
        is_waiting = listed is None or allocation.size not in (None, listed)
        return "queued" if is_waiting else "loading_model", None
