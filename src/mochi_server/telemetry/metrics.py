"""Prometheus metrics of a server, and OpenTelemetry spans of its turns.

They are recorded when turns, tool calls and requests end, never per token.
"""

import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from mochi_server import __version__
from mochi_server.chat.run import Run
from mochi_server.chat.turn_result import TurnResult
from mochi_server.errors import (
    ConfirmationTimeout,
    OllamaUnreachable,
    RateLimited,
    ToolExecutionDenied,
    ToolNotFound,
)
from mochi_server.inference.gateway import GatewayObserver
from mochi_server.inference.slots import load_seconds, number
from mochi_server.ollama.payloads import qualified_name
from mochi_server.sessions.caller import CALLER
from mochi_server.sessions.types import AssistantMessage, Message, ToolMessage
from mochi_server.sessions.usage import Usage
from mochi_server.tools.toolbox import ToolInvocation
from mochi_server.util.clock import timestamp
from mochi_server.util.log_events import log_event

_Metric = TypeVar("_Metric", Counter, Gauge, Histogram)

_MAX_LABEL_VALUES = 100
_OTHER = "other"
_NANO = 1e-9
"""Seconds in a nanosecond."""
_PROMPT_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_LOAD_BUCKETS = (0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_TURN_BUCKETS = (0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_TOOL_OUTCOMES = {ToolExecutionDenied.code: "denied", ConfirmationTimeout.code: "timeout"}
_SDK = "opentelemetry.sdk.trace"

logger = logging.getLogger(__name__)


class Metrics(GatewayObserver):
    """Metrics of one server, in a registry of their own.

    They may be used on one event loop only.
    """

    def __init__(self, count_usage: Callable[[str, Usage], None] = lambda *_: None) -> None:
        """``count_usage`` receives the model and the tokens of each answer."""
        self._count_usage = count_usage
        self.registry = CollectorRegistry()
        self.described: list[tuple[str, str, tuple[str, ...], str]] = []
        """Name, kind, labels and description of each metric."""
        self._models: set[str] = set()
        self._tools: set[str] = set()
        new = self._new
        self._turns = new(Counter, "turns", "Turns that ended, by outcome.", "outcome")
        text = "Duration of turns. A suspended or interrupted turn counts from when it continued."
        self._turn_seconds = new(Histogram, "turn_duration_seconds", text, buckets=_TURN_BUCKETS)
        self._requests = new(
            Counter, "model_requests", "Complete answers of models, including summaries.", "model"
        )
        text = "Ollama's token counts: `in` for prompts, `out` for answers."
        self._tokens = new(Counter, "tokens", text, "model", "direction")
        text = (
            "Prompt tokens that were not in Ollama's cache, for versions of Ollama that report it."
        )
        self._evaluated = new(Counter, "evaluated_prompt_tokens", text, "model")
        text = "Time that Ollama needed to evaluate the prompts of a turn."
        self._evaluation = new(
            Histogram, "turn_prompt_evaluation_seconds", text, buckets=_PROMPT_BUCKETS
        )
        text = "Time from a model request to the first token of its answer."
        self._first_token = new(
            Histogram, "time_to_first_token_seconds", text, "model", buckets=_PROMPT_BUCKETS
        )
        text = "Load times of models for which a request had to wait."
        self._loads = new(
            Histogram, "model_load_duration_seconds", text, "model", buckets=_LOAD_BUCKETS
        )
        self._adjustments = new(
            Counter,
            "context_adjustments",
            "Changes of sessions' context windows, by reason.",
            "reason",
        )
        self._compactions = new(
            Counter, "context_compactions", "Prompts whose oldest turns were summarized."
        )
        self._calls = new(
            Counter, "tool_calls", "Tool calls that ended, by outcome.", "tool", "outcome"
        )
        self.lost_threads = new(
            Counter, "tool_threads_lost", "Tool threads that still ran after their call ended."
        )
        self.refused_calls = new(
            Counter, "tool_calls_refused", "Tool calls refused because no thread was free."
        )
        self._errors = new(
            Counter,
            "errors",
            "Errors by code: failed turns (`turn`) and error responses (`request`).",
            "code",
            "of",
        )
        self._responses = new(
            Counter, "http_requests", "HTTP requests that ended.", "method", "status"
        )
        self._add_host_metrics()
        self._add_key_metrics()
        self._add_gauges()
        build = new(Gauge, "build_info", "Always 1. The label is the version.", "version")
        build.labels(__version__).set(1)
        ProcessCollector(registry=self.registry)

    def _add_host_metrics(self) -> None:
        new = self._new
        self._host_requests = new(
            Counter, "ollama_host_requests", "Complete answers of each Ollama host.", "host"
        )
        text = "Time in which the host loaded models (`load`) and evaluated prompts (`evaluation`)."
        self._host_seconds = new(Counter, "ollama_host_seconds", text, "host", "of")
        text = (
            "Prompt tokens: `evaluated`, or `spared` by the cache, for versions of Ollama that "
            "report it."
        )
        self._host_tokens = new(Counter, "ollama_host_prompt_tokens", text, "host", "kind")
        self._host_queue = new(
            Gauge,
            "ollama_host_queued_requests",
            "Requests that wait in this server for a slot of the host.",
            "host",
        )
        self._host_state = new(
            Gauge, "ollama_host_state", "1 for the state of the host.", "host", "state"
        )
        self.hosts: Callable[[], Sequence[tuple[str, str, int]]] = tuple
        """Function that returns the name, the state and the number of queued requests of each
        host.
        """

    def _add_gauges(self) -> None:
        new = self._new
        self.running = new(Gauge, "running_turns", "Turns that are running.")
        self.waiting = new(
            Gauge, "waiting_turns", "Turns that wait for the first token of a model."
        )
        self.subscribers = new(
            Gauge, "open_streams", "Open requests that receive the events of a running turn."
        )
        self.store = new(
            Gauge, "store_connected", "1 if the session store is reachable, otherwise 0."
        )
        self.queue_limit = new(
            Gauge, "queue_limit", "Requests that may wait for a model: `MOCHI_MAX_QUEUE`."
        )
        self.webhooks = new(
            Gauge, "undelivered_webhooks", "Webhooks that the receiver has not accepted yet."
        )
        self.webhook_age = new(
            Gauge,
            "oldest_webhook_age",
            "Age of the oldest webhook that is not delivered, in seconds.",
        )
        self.overdue = new(
            Gauge, "overdue_turns", "Stored turns that should have continued a minute ago."
        )
        self.disk_free = new(
            Gauge, "disk_free_bytes", "Free space on the disk of the data directory."
        )
        self.disk_size = new(Gauge, "disk_size_bytes", "Size of the disk of the data directory.")
        self.ollama = new(
            Gauge, "ollama_connected", "1 if Ollama responds to this request, otherwise 0."
        )

    def _add_key_metrics(self) -> None:
        new = self._new
        self.key_turns = new(
            Counter, "key_turns", "Turns that ended, by API key.", "key", "outcome"
        )
        text = "Tokens by API key: `in` for prompts without cached tokens, `out` for answers."
        self._key_tokens = new(Counter, "key_tokens", text, "key", "direction")
        text = "Requests that a limit of the API key has refused."
        self._key_refusals = new(Counter, "key_refusals", text, "key")

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        self._host_queue.clear()
        self._host_state.clear()
        for host, state, queued in self.hosts():
            self._host_queue.labels(host).set(queued)
            self._host_state.labels(host, state).set(1)
        return generate_latest(self.registry)

    def turn_ended(
        self, outcome: str, seconds: float, messages: Sequence[Message], error: str | None
    ) -> None:
        """Record an ended turn, and the duration of its last run.

        ``messages`` are its stored messages, with tool results and evaluation times.
        """
        self._turns.labels(outcome).inc()
        self._turn_seconds.observe(seconds)
        nanoseconds = _sum("prompt_eval_duration", messages)
        if nanoseconds is not None:
            self._evaluation.observe(nanoseconds * _NANO)
        self.tool_calls_ended(messages)
        if error is not None:
            self._errors.labels(error, "turn").inc()

    def tool_calls_ended(self, messages: Sequence[Message]) -> None:
        """Count each tool result in ``messages`` as an ended tool call."""
        for message in messages:
            if message["role"] == "tool":
                tool, outcome = self._tool_labels(message)
                self._calls.labels(tool, outcome).inc()

    def response_ended(self, last: Mapping[str, Any], host: str = "") -> None:
        """Record an answer's tokens and times, by model and by host.

        ``last`` is the last line of the answer.
        """
        self._host_requests.labels(host).inc()
        nanoseconds = number(last.get("prompt_eval_duration"))
        self._host_seconds.labels(host, "evaluation").inc(nanoseconds * _NANO)
        model = self._model(str(last.get("model") or ""))
        self._requests.labels(model).inc()
        count = number(last.get("prompt_eval_count"))
        self._tokens.labels(model, "in").inc(count)
        self._tokens.labels(model, "out").inc(number(last.get("eval_count")))
        if last.get("prompt_eval_cached_count") is not None:
            cached = number(last["prompt_eval_cached_count"])
            evaluated = max(count - cached, 0)
            self._evaluated.labels(model).inc(evaluated)
            self._host_tokens.labels(host, "evaluated").inc(evaluated)
            self._host_tokens.labels(host, "spared").inc(cached)
        seconds = load_seconds(last)
        if seconds:
            self._loads.labels(model).observe(seconds)
            self._host_seconds.labels(host, "load").inc(seconds)

    def tokens_used(self, model: str, usage: Usage) -> None:
        self._count_usage(model, usage)
        key = CALLER.get().key
        if key:
            self._key_tokens.labels(key, "in").inc(usage.prompt_tokens)
            self._key_tokens.labels(key, "out").inc(usage.answer_tokens)

    def first_token(self, model: str, seconds: float) -> None:
        self._first_token.labels(self._model(model)).observe(seconds)

    def context_adjusted(self, reason: str) -> None:
        self._adjustments.labels(reason).inc()

    def context_compacted(self) -> None:
        self._compactions.inc()

    def request_ended(self, method: str, status: int | None, error: str | None) -> None:
        """Count an HTTP request and its error code.

        ``status`` is None if the server sent no response.
        """
        known_method = method if method in _METHODS else _OTHER
        self._responses.labels(known_method, str(status or "none")).inc()
        if error is not None:
            self._errors.labels(error, "request").inc()
        key = CALLER.get().key
        if error == RateLimited.code and key:
            self._key_refusals.labels(key).inc()

    def _model(self, name: str) -> str:
        """Return the label of a model."""
        return _label(qualified_name(name), self._models) if name else _OTHER

    def _tool_labels(self, message: ToolMessage) -> tuple[str, str]:
        code = message.get("error_code") or ""
        if code == ToolNotFound.code:
            return "unknown", "failed"
        tool = _label(message["tool_name"], self._tools)
        if message.get("success"):
            return tool, "succeeded"
        return tool, _TOOL_OUTCOMES.get(code, "failed")

    def _new(
        self, kind: type[_Metric], name: str, text: str, *labels: str, **options: Any
    ) -> _Metric:
        """Add a metric to the registry, and to ``described``."""
        name = f"mochi_{name}"
        full_name = f"{name}_total" if kind is Counter else name
        self.described.append((full_name, kind.__name__.lower(), labels, text))
        return kind(name, text, labels, registry=self.registry, **options)


def _label(name: str, known: set[str]) -> str:
    """Return ``name``, or ``other`` if there are too many names already."""
    if name not in known and len(known) >= _MAX_LABEL_VALUES:
        return _OTHER
    known.add(name)
    return name


def record_turn(metrics: Metrics, run: Run, *, trace_content: bool = False) -> None:
    """Record the metrics and spans of an ended turn, and log it.

    The recorded duration is that of the run, which may continue an earlier run of the turn. If
    ``trace_content`` is true, the spans contain the texts of the turn.
    """
    error = run.failure.code if run.failure else None
    seconds = time.monotonic() - run.began
    metrics.turn_ended(run.state, seconds, run.result.new_messages, error)
    if run.caller.key:
        metrics.key_turns.labels(run.caller.key, run.state).inc()
    if _SDK in sys.modules:
        ended = time.time_ns()
        began = ended - int(seconds * 1e9)
        _record_spans(run, began, ended, content=trace_content)
    _log_turn(run, seconds)


def _log_turn(run: Run, seconds: float) -> None:
    failure = run.failure
    answer = run.result.answer
    answered_by = None if answer is None else answer.get("model")
    messages = [*run.result.new_messages, *run.result.replaced]
    first_chunks = run.result.first_chunks
    first_chunk = first_chunks[0][1] if first_chunks else None
    log_event(
        logger,
        logging.WARNING if failure else logging.INFO,
        "Turn ended",
        session_id=run.session_id,
        run_id=run.run_id,
        outcome=run.state,
        key=run.caller.key or None,
        model=answered_by or run.model,
        prompt_tokens=_sum("prompt_eval_count", messages),
        answer_tokens=_sum("eval_count", messages),
        cached_tokens=_sum("prompt_eval_cached_count", messages),
        time_to_first_token_ms=None if first_chunk is None else round(first_chunk * 1000),
        duration_ms=round(seconds * 1000),
        error=failure and failure.code,
        # The messages of most errors may quote conversations.
        reason=failure.message if isinstance(failure, OllamaUnreachable) else None,
    )


def _sum(field: str, messages: Sequence[Message]) -> int | None:
    """Return the sum of a count or duration of Ollama, or None if no message has it."""
    total = None
    for message in messages:
        count = message.get(field)
        if count is not None:
            total = int(number(count)) + (total or 0)
    return total


def _record_spans(run: Run, began: int, ended: int, *, content: bool) -> None:
    """Record the spans of a turn, whose last run has begun and ended at these times."""
    from opentelemetry.trace import StatusCode, get_tracer  # noqa: PLC0415 - optional

    tracer = get_tracer("mochi_server", __version__)
    attributes = {
        "gen_ai.conversation.id": run.session_id,
        "mochi.run_id": run.run_id,
        "mochi.outcome": run.state,
    }
    if run.continues is not None:
        began = _turn_began(run.result, began)
    turn = tracer.start_span("mochi.turn", start_time=began, attributes=attributes)
    if run.failure is not None:
        turn.set_attribute("error.type", run.failure.code)
        turn.set_status(StatusCode.ERROR)
    recorder = _SpanRecorder(tracer, run.session_id, content=content)
    agent = run.input.agent
    if agent is None:
        recorder.record_steps(turn, run.input.text, run.result, began)
    else:
        recorder.record_agent(turn, agent, run.input.text, run.result, began=began, ended=ended)
    turn.end(ended)


def _turn_began(result: TurnResult, run_began: int) -> int:
    """Return when a continued turn began: with its first message, or at the latest with its run."""
    messages = _messages_by_time(result)
    if not messages:
        return run_began
    first = messages[0]
    duration = first.get("total_duration", 0) if first["role"] == "assistant" else 0
    return min(run_began, _completed_at(first) - duration)


def _messages_by_time(result: TurnResult) -> list[Message]:
    return sorted([*result.replaced, *result.new_messages], key=_completed_at)


def _completed_at(message: Message) -> int:
    return int(timestamp(message["timestamp"]) * 1e9)


@dataclass(frozen=True)
class _SpanRecorder:
    """Recorder of the spans below that of a turn. Times are in nanoseconds since 1970."""

    tracer: Any
    session_id: str
    content: bool

    def record_steps(self, parent: Any, text: str | None, result: TurnResult, began: int) -> None:
        """Record the answers and tool calls of a turn or agent.

        Messages have the time at which they were complete. A step cannot begin before the message
        of the step before.
        """
        previous = began
        calls = {outcome.call.id: outcome.call for outcome in result.outcomes}
        for message in _messages_by_time(result):
            at = _completed_at(message)
            if message["role"] == "assistant":
                started = max(at - message.get("total_duration", 0), previous)
                attributes = _chat_attributes(result, message, text, content=self.content)
                span = self._start(parent, "chat", message.get("model", ""), started, attributes)
                span.end(at)
            elif message["role"] == "tool":
                self._record_call(parent, calls[message["tool_call_id"]], message, previous, at)
            previous = at

    def _record_call(
        self, parent: Any, call: ToolInvocation, message: ToolMessage, began: int, ended: int
    ) -> None:
        from opentelemetry.trace import StatusCode  # noqa: PLC0415 - optional

        attributes = _tool_attributes(message, call.arguments, content=self.content)
        span = self._start(parent, "execute_tool", call.name, began, attributes)
        result = call.progress.agent_result
        if result is not None:
            agent = str(call.arguments["agent"])
            task = str(call.arguments["instruction"])
            self.record_agent(span, agent, task, result, began=began, ended=ended)
        if not message.get("success"):
            span.set_status(StatusCode.ERROR)
        span.end(ended)

    def record_agent(
        self,
        parent: Any,
        agent: str,
        task: str | None,
        result: TurnResult,
        *,
        began: int,
        ended: int,
    ) -> None:
        attributes = {"gen_ai.agent.name": agent, "gen_ai.provider.name": "ollama"}
        span = self._start(parent, "invoke_agent", agent, began, attributes)
        self.record_steps(span, task, result, began)
        span.end(ended)

    def _start(
        self, parent: Any, operation: str, target: str, at: int, attributes: Mapping[str, Any]
    ) -> Any:
        from opentelemetry.trace import SpanKind, set_span_in_context  # noqa: PLC0415 - optional

        known = {name: value for name, value in attributes.items() if value is not None}
        known["gen_ai.operation.name"] = operation
        known["gen_ai.conversation.id"] = self.session_id
        return self.tracer.start_span(
            f"{operation} {target}".rstrip(),
            context=set_span_in_context(parent),
            kind=SpanKind.CLIENT if operation == "chat" else SpanKind.INTERNAL,
            start_time=at,
            attributes=known,
        )


def _chat_attributes(
    result: TurnResult, message: AssistantMessage, text: str | None, *, content: bool
) -> dict[str, Any]:
    first_chunk = None
    if message not in result.replaced:  # a replaced answer has the message ID of the next one
        first_chunk = dict(result.first_chunks).get(message["message_id"])
    attributes = {
        "gen_ai.provider.name": "ollama",
        "gen_ai.request.model": message.get("model", ""),
        "gen_ai.usage.input_tokens": message.get("prompt_eval_count", 0),
        "gen_ai.usage.cache_read.input_tokens": message.get("prompt_eval_cached_count"),
        "gen_ai.usage.output_tokens": message.get("eval_count", 0),
        "gen_ai.response.time_to_first_chunk": first_chunk,
        "mochi.load_seconds": message.get("load_duration", 0) / 1e9,
    }
    if content:
        attributes["gen_ai.input.messages"] = _messages("user", text)
        attributes["gen_ai.output.messages"] = _messages("assistant", message["content"])
    return attributes


def _messages(role: str, text: str | None) -> str:
    part = {"type": "text", "content": text or ""}
    message = {"role": role, "parts": [part]}
    return orjson.dumps([message]).decode()


def _tool_attributes(
    message: ToolMessage, arguments: Mapping[str, Any], *, content: bool
) -> dict[str, Any]:
    return {
        "gen_ai.tool.name": message["tool_name"],
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": message.get("tool_call_id"),
        "error.type": message.get("error_code"),
        "gen_ai.tool.call.arguments": orjson.dumps(arguments).decode() if content else None,
        "gen_ai.tool.call.result": message["content"] if content else None,
    }
