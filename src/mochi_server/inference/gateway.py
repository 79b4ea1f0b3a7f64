"""Gateway to the models. It sends every request that generates text or embeddings.

``ModelGateway.send`` takes three steps, each in a method of its own:

1. ``_on_best_host`` chooses a host, and the next one if it fails before the first token.
   ``_send_to_host`` chooses the window of the host.
2. ``_until_accepted`` fits the prompt into the window. If Ollama refuses the prompt or runs out of
   memory, it changes the window or requests a shorter prompt, and sends the request again.
3. ``_post_chat`` waits for a slot of the host, sends the request once and records what the answer
   shows.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from copy import copy
from functools import partial
from math import inf
from operator import methodcaller
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from weakref import WeakSet

import anyio
from cachetools import LRUCache, TTLCache

from mochi_server.config import HostAddress
from mochi_server.errors import (
    ContextOverflow,
    HostsUnreachable,
    MochiError,
    ModelNotFound,
    OllamaBusy,
    OllamaError,
    OllamaUnreachable,
)
from mochi_server.inference.hosts import Fleet, Host, may_succeed_elsewhere, no_host_left
from mochi_server.inference.permitted_models import request_permitted
from mochi_server.inference.placement import choose
from mochi_server.inference.requests import AnswerReport, FixedPrompt, ModelRequest
from mochi_server.inference.token_estimate import PromptSize
from mochi_server.inference.waiting import (
    FairQueue,
    RequestTracker,
    State,
    Ticket,
    TrackedRequest,
    reporting_status,
)
from mochi_server.inference.window_allocation import Allocation
from mochi_server.inference.window_registry import WindowRegistry
from mochi_server.ollama.async_client import AsyncOllamaClient
from mochi_server.ollama.errors import (
    is_context_refusal,
    is_out_of_memory,
    refused_feature,
    refused_tokens,
    refusing_window,
)
from mochi_server.ollama.payloads import qualified_name
from mochi_server.ollama.transport import Line, OnLines
from mochi_server.ollama.types import ModelInfo
from mochi_server.sessions.usage import Usage

_MAX_PASSES = 3  # through all hosts for one request, because hosts can be restarted meanwhile
_MAX_ATTEMPTS = 8  # for one answer; after a refused prompt, the prompt or the window changes
_MAX_MISSED_PROBES = 2  # of a host that does not begin to answer
_MAX_TURNS = 10_000  # sessions whose latest host is recorded
_MAX_SUMMARIES = 1000
_SUMMARY_SECONDS = 3600

_Result = TypeVar("_Result")

logger = logging.getLogger(__name__)


class HostOfTurn(NamedTuple):
    """Host of a session's latest turn at this server and why it was chosen."""

    name: str
    reason: str
    run_id: str
    model: str
    digest: str | None
    """Digest of the model with which the conversation began, so that later turns can use it."""


class GatewayObserver:
    """Observer of the gateway. The methods do nothing."""

    def first_token(self, model: str, seconds: float) -> None:
        """Observe the time in seconds from a request to the first token of its answer."""

    def response_ended(self, last: Mapping[str, Any], host: str = "") -> None:
        """Observe the last line of an answer of the host with the name ``host``."""

    def tokens_used(self, model: str, usage: Usage) -> None:
        """Observe the tokens that an answer, or embeddings, have used for the current caller."""

    def context_adjusted(self, reason: str) -> None:
        """Observe that the context window of a session has changed."""

    def context_compacted(self) -> None:
        """Observe that a summary has replaced the oldest turns of a prompt."""


class ModelGateway:
    """Gateway to the models of the Ollama hosts.

    If ``dynamic`` is false, only users set context windows. ``initial`` is the first window of a
    model, in tokens. ``slots`` is the number of requests that each host takes at a time, and
    ``max_queue`` of those that may wait.
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
        """``client`` is the only client, or returns the client for a URL.

        ``hosts`` is called again as in ``Fleet``.
        """

        def connect(address: HostAddress) -> Host:
            own = client if isinstance(client, AsyncOllamaClient) else client(address.url)
            windows = WindowRegistry(
                own.loaded_windows, dynamic, observer.context_adjusted, initial, own.size_of
            )
            tracker = RequestTracker(observer.first_token)
            return Host(address.name, own, windows=windows, tracker=tracker, queue=FairQueue(slots))

        self.fleet = Fleet(hosts, connect, hosts_file)
        self.observer = observer
        self.max_queue = max_queue
        self.hosts_of_turns = LRUCache[str, HostOfTurn](_MAX_TURNS)  # by session ID
        # window and last trimmed message, by session ID
        self.trims = LRUCache[str, tuple[int, str]](_MAX_TURNS)
        # text of a summary and number of trimmed messages, by the hash of the summarized messages
        self.recent_summaries: TTLCache[bytes, tuple[str, int]] = TTLCache(
            _MAX_SUMMARIES, _SUMMARY_SECONDS
        )
        self._tickets: WeakSet[Ticket] = WeakSet()
        """Tickets that count as waiting requests, until they are removed or not referenced."""
        self._thinking_refusals: set[tuple[str, str | None]] = set()
        """Names and digests of models that Ollama lists with thinking, and that refuse it."""
        self._only: Host | None = None
        """Host to which all requests go, or None to choose a host for each request."""
        self._is_pinned = False
        """Whether ``_only`` is the host to which a session is pinned."""

    @property
    def host(self) -> Host:
        """The host of this gateway, or the first one of ``fleet.up``."""
        return self._only or self.fleet.up[0]

    @property
    def windows(self) -> WindowRegistry:
        return self.host.windows

    def _at(self, host: Host) -> "ModelGateway":
        """Return this gateway for requests to one host only."""
        only = copy(self)
        only._only = host
        return only

    async def pinned(self, name: str | None) -> "ModelGateway":
        """Return the gateway to the host of this name, or this one for None.

        Raises ``HostsUnreachable`` if the list of hosts does not contain it.
        """
        if name is None:
            return self
        await self.fleet.refresh()
        for host in self.fleet.active:
            if host.name == name:
                pinned = self._at(host)
                pinned._is_pinned = True
                return pinned
        message = (
            f"The session is pinned to the Ollama host {name}, which is not in MOCHI_OLLAMA_HOSTS. "
            "Add it, or set the session's `ollama_host` to null."
        )
        raise HostsUnreachable(message, ollama_host=name)

    def of_session(self, session_id: str, model: str) -> "ModelGateway":
        """Return the gateway to the host that suits a request for a session best.

        Prefer a host that has ``model``, then the host of the session's latest turn, and then a
        host that has loaded the model. Return this gateway if it has one host only.
        """
        if self.fleet.is_single or self._only:
            return self
        latest = self.hosts_of_turns.get(session_id)
        name = qualified_name(model)

        def rank(host: Host) -> tuple[bool, bool, bool]:
            return (
                host.has(model),
                latest is not None and host.name == latest.name,
                name in (host.client.last_windows or ()),
            )

        return self._at(max(self.fleet.up, key=rank))

    def discard_session(self, session_id: str) -> None:
        """Discard what is recorded about a session that is about to be deleted."""
        self.hosts_of_turns.pop(session_id, None)
        self.trims.pop(session_id, None)
        for host in self.fleet.hosts:
            for slots in host.models.values():
                slots.discard(session_id)

    async def find_model(self, name: str) -> ModelInfo:
        """Return the installed chat model ``name``.

        Raises ``ModelNotFound`` and the errors of ``send``.
        """
        if self._only is None:
            return await self.fleet.find_model(name)
        find = methodcaller("find_model", name)
        try:
            return await request_permitted(self._only.client, name, find)
        except ModelNotFound as missing:
            others = [host.name for host in self.fleet.active if host.has(name)]
            if not self._is_pinned or missing.is_other_kind or not others:
                raise
            raise missing.on_pinned_host(self._only.name, others) from None

    def allocate(
        self,
        model: ModelInfo,
        config: Mapping[str, Any] | None = None,
        previous_model: str | None = None,
        answer_tokens: int = 0,
    ) -> Allocation:
        return Allocation(self.windows, model, config, previous_model, answer_tokens=answer_tokens)

    def admit(self) -> Ticket:
        """Admit a turn and return its ticket.

        The ticket counts as a waiting request until the turn's first request enters a queue. Keep a
        reference to it until then. Raises ``OllamaBusy`` if too many turns wait.
        """
        requests = len(self._tickets)
        limit: float = self.max_queue
        for host in self.fleet.up:
            requests += host.queue.waiting + host.queue.running
            limit += host.queue.limit or inf
        if requests >= limit:
            raise OllamaBusy(
                f"{self.max_queue} requests wait already, which is the limit of MOCHI_MAX_QUEUE"
            )
        ticket = Ticket()
        self._tickets.add(ticket)
        return ticket

    async def send(self, request: ModelRequest, on_lines: OnLines) -> AnswerReport:
        """Send a request and pass batches of lines to ``on_lines``.

        Raises ``OllamaError``, ``OllamaUnreachable``, ``ModelNotFound`` and ``ContextOverflow``.
        """
        return await self._on_best_host(request, partial(self._post_chat, request, on_lines))

    async def embed(self, request: ModelRequest) -> Mapping[str, Any]:
        """Request embeddings of the texts in the payload and return Ollama's response.

        Raise the errors of ``send``.
        """
        return await self._on_best_host(request, partial(self._post_embed, request))

    async def _on_best_host(
        self,
        request: ModelRequest,
        post: Callable[[Host, TrackedRequest, FixedPrompt], Awaitable[_Result]],
    ) -> _Result:
        """Send a request to the best host.

        If the host fails before the first token, try the next one.
        """
        failures: dict[Host, MochiError] = {}
        revived: Sequence[Host] = ()
        is_turn = request.report is not None
        is_cloud = request.allocation.model.is_cloud
        await self.fleet.wait_for_loaded()
        for _ in range(_MAX_PASSES):
            for host in revived:
                del failures[host]
            while (best := self._choose(request, failures)) is not None:
                if failures and request.report is not None:
                    request.report("failover", None, best.name)
                try:
                    with best.tracker.request(request.model, is_turn=is_turn) as tracked:
                        post_once = partial(post, best, tracked)
                        result = await self._send_to_host(best, request, tracked, post_once)
                except (OllamaUnreachable, OllamaError, ModelNotFound) as error:
                    is_answering = tracked.answering
                    self.fleet.record_failure(
                        best, error, is_answering=is_answering, is_cloud=is_cloud
                    )
                    if is_answering or not may_succeed_elsewhere(error):
                        raise
                    failures[best] = error.with_traceback(None)
                else:
                    best.record_success()
                    return result
            revived = await self.fleet.revived(failures)
            if not revived:
                break
        raise no_host_left(failures)

    async def _send_to_host(
        self,
        host: Host,
        request: ModelRequest,
        tracked: TrackedRequest,
        post: Callable[[FixedPrompt], Awaitable[_Result]],
    ) -> _Result:
        """Choose the window for a request at a host, and send the request."""
        allocation = request.allocation
        allocation.windows = host.windows  # `request.tokens` depends on it
        await allocation.decide(request.tokens)
        with host.windows.in_use(allocation.model.name, allocation.size):
            return await self._until_accepted(host, request, tracked, post)

    async def _until_accepted(
        self,
        host: Host,
        request: ModelRequest,
        tracked: TrackedRequest,
        post: Callable[[FixedPrompt], Awaitable[_Result]],
    ) -> _Result:
        """Send a request to a host until Ollama accepts its prompt and has memory for its window.

        If the model refuses to think, send the request once more without ``think``.
        """
        allocation = request.allocation
        size = PromptSize()
        refused: int | None = None  # tokens of the last prompt, if it must be shorter
        refusal: OllamaError | None = None
        may_refuse_thinking = "think" in request.payload
        for _ in range(_MAX_ATTEMPTS):
            prompt = await request.prompt.fit(refused)
            if prompt is None:
                raise refusal or _overflow(allocation, refused or 0)
            allocation.windows.record_request(allocation.model.name, allocation.num_ctx)
            size = prompt.size
            logger.debug(
                "Request to Ollama host=%s model=%s window=%s prompt_tokens=%d session_id=%s",
                host.name,
                request.model,
                allocation.num_ctx,
                allocation.estimate.tokens(size),
                request.session_id or "-",
            )
            try:
                return await post(prompt)
            except OllamaError as error:
                if tracked.answering:
                    raise
                if may_refuse_thinking and refused_feature(error) == "thinking":
                    may_refuse_thinking = False
                    # From now on, `_post_chat` omits `think`.
                    self._thinking_refusals.add(_model_version(host, request.model))
                    continue
                refused = _adapt_window(request, size, error)
                refusal = error.with_traceback(None)
        raise _overflow(allocation, allocation.estimate.tokens(size))

    async def _post_chat(
        self,
        request: ModelRequest,
        on_lines: OnLines,
        host: Host,
        tracked: TrackedRequest,
        prompt: FixedPrompt,
    ) -> AnswerReport:
        """Send a request to a host once.

        After an error, ``tracked`` shows whether the answer had begun.
        """
        allocation = request.allocation
        slots = host.slots(request.model)
        scope = anyio.CancelScope()
        body, answer_limit = request.body(prompt)
        if _model_version(host, request.model) in self._thinking_refusals:
            wanted_thinking = body.pop("think", None)
            if wanted_thinking and request.thinking_refused is not None:
                request.thinking_refused()
        last: Line = {}
        tracked.started = time.monotonic()
        tracked.sent = None
        status = partial(self._status, host, tracked, request, scope)
        with reporting_status(status, request.report) as end_reports:

            def receive(lines: list[Line]) -> None:
                if not tracked.answering:
                    end_reports()
                    host.tracker.record_first_token(tracked)
                on_lines(lines)
                if lines[-1].get("done"):
                    nonlocal last
                    last = lines[-1]
                    self.observer.response_ended(last, host.name)
                    self.observer.tokens_used(request.model, Usage.of_answer(last))

            async with self._slot(host, request):
                tracked.sent = time.monotonic()
                held = slots.begin(request.session_id, allocation.num_ctx)
                with scope:
                    await host.client.post_chat(body, receive)
            if scope.cancelled_caught:
                raise OllamaError(
                    f"Ollama at {host.client.endpoint.url} stopped responding before its answer."
                )
        tokens, is_truncated, is_cut = allocation.record(last, prompt.size, answer_limit)
        exchange = request.exchange and request.exchange(body, prompt.size, tokens)
        slots.record(held, last, time.monotonic() - tracked.sent, exchange)
        return AnswerReport(prompt, tokens, is_truncated, is_cut, host.name)

    async def _post_embed(
        self, request: ModelRequest, host: Host, tracked: TrackedRequest, _: FixedPrompt
    ) -> Mapping[str, Any]:
        window = request.allocation.num_ctx
        options = {"options": {"num_ctx": window}} if window else {}
        async with self._slot(host, request):
            tracked.sent = time.monotonic()
            host.slots(request.model).begin(request.session_id, window)
            embed = methodcaller("embed", {**request.payload, **options})
            body: Mapping[str, Any] = await request_permitted(
                host.client, request.model, embed, "embedding"
            )
            self.observer.tokens_used(request.model, Usage.of_answer(body))
            return body

    def _slot(self, host: Host, request: ModelRequest) -> AbstractAsyncContextManager[None]:
        """Return a context with a slot of the host.

        From the entry into its queue, the request needs no ticket.
        """
        return host.queue.slot(request.session_id, lambda: self._tickets.discard(request.ticket))

    async def _status(
        self, host: Host, tracked: TrackedRequest, request: ModelRequest, scope: anyio.CancelScope
    ) -> State:
        """Return the status of a waiting request.

        Cancel ``scope`` if there are other hosts and this one does not respond.
        """
        if tracked.sent is None:
            return "queued", host.queue.position(request.session_id)
        if not self.fleet.is_single:
            is_reachable = await host.client.is_reachable()
            tracked.missed_probes = 0 if is_reachable else tracked.missed_probes + 1
            if tracked.missed_probes >= _MAX_MISSED_PROBES and not tracked.answering:
                scope.cancel()
        decision = request.allocation.decision
        is_loaded = decision is not None and decision.is_loaded
        is_queued = host.tracker.is_queued(tracked, is_loaded=is_loaded)
        if is_loaded:
            return "queued" if is_queued else "processing_prompt", None
        if is_queued:
            # Ollama lists a model as soon as it begins to load it.
            listed = (await host.client.loaded_windows() or {}).get(tracked.model)
            if listed is None or request.allocation.size not in (None, listed):
                return "queued", None
        return "loading_model", None

    def _choose(self, request: ModelRequest, failures: Mapping[Host, MochiError]) -> Host | None:
        """Choose the host for a request, and record the choice for a turn.

        Return None if all hosts have failed.
        """
        fleet = self.fleet
        allocation = request.allocation
        hosts = [self._only] if self._only else fleet.active
        if allocation.is_fixed and allocation.size is not None:  # the window is that of one host
            hosts = [host for host in fleet.hosts if host.windows is allocation.windows] or hosts
        rest = [host for host in hosts if host not in failures]
        # Use hosts that are left out, or lack the model, only if there are no others.
        rest = [host for host in rest if host.failure is None] or rest
        rest = [host for host in rest if host.has(request.model)] or rest
        if not rest:
            return None
        if len(rest) > 1:
            host, reason = choose(rest, request, self._digest_of_conversation(request))
        else:
            host = rest[0]
            reason = "pinned" if self._only else "only_up"
            if len(fleet.active) == 1:
                reason = "only_host"
        if request.report is not None:
            self._record_turn(request, host, "failover" if failures else reason)
        return host

    def _record_turn(self, request: ModelRequest, host: Host, reason: str) -> None:
        self.hosts_of_turns[request.session_id] = HostOfTurn(
            host.name,
            reason,
            request.run_id,
            model=qualified_name(request.model),
            digest=self._digest_of_conversation(request) or host.client.digest(request.model),
        )

    def _digest_of_conversation(self, request: ModelRequest) -> str | None:
        """Return the digest of the session's latest turn, or None unless it had the same model."""
        turn = self.hosts_of_turns.get(request.session_id)
        if turn is None or turn.model != qualified_name(request.model):
            return None
        return turn.digest


def _model_version(host: Host, model: str) -> tuple[str, str | None]:
    """Return the full name of a model, and the digest of what a host has under this name."""
    return qualified_name(model), host.client.digest(model)


def _overflow(allocation: Allocation, tokens: int) -> ContextOverflow:
    """Return the error for a prompt of ``tokens`` tokens that does not fit into the window."""
    window = allocation.size
    return ContextOverflow(window, tokens, is_manual=allocation.is_manual(window))


def _adapt_window(request: ModelRequest, size: PromptSize, error: OllamaError) -> int | None:
    """Change the window after an error, or return the tokens of a prompt that must be shorter.

    Return None if the window has changed and the same prompt can be sent again.

    Raises ``error`` if it is neither a refused prompt nor a lack of memory that a smaller window
    can mend.
    """
    allocation = request.allocation
    if is_context_refusal(error):
        tokens = refused_tokens(error) or allocation.estimate.tokens(size) * 2
        allocation.estimate.observe(size, tokens)
        allocation.refusing_window = refusing_window(error)
        # If the prompt cannot be shortened and exceeds the model's maximum, Ollama must not reload
        # the model.
        maximum = allocation.model.context_length or inf
        is_too_long = isinstance(request.prompt, FixedPrompt) and tokens >= maximum
        if not is_too_long and allocation.grow(tokens):
            return None
        return tokens
    if is_out_of_memory(error) and allocation.step_down():
        return None
    raise error
