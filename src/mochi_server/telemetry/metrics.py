"""Metrics of a server, in the format of Prometheus. They are counted when something has ended, never per token."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from mochi_server import __version__
from mochi_server.errors import ConfirmationTimeout, ToolExecutionDenied, ToolNotFound
from mochi_server.ollama.payloads import qualified_name
from mochi_server.sessions.types import Message

M = TypeVar("M", Counter, Gauge, Histogram)

_MAX_NAMES = 100
_OTHER = "other"
_LOAD_SECONDS = 0.1
"""Ollama reports a few milliseconds of loading also for models that it has in memory."""

_NANO = 1e-9
_FIRST_TOKEN = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_LOADS = (0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_TURNS = (0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_TOOL_ENDS = {ToolExecutionDenied.code: "denied", ConfirmationTimeout.code: "timeout"}


class Metrics:
    """The metrics of one server, in their own registry. Belongs to one event loop."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.described: list[tuple[str, str, tuple[str, ...], str]] = []
        """Name, kind, labels and description of each metric, for the documentation."""
        self._models: set[str] = set()
        self._tools: set[str] = set()
        new = self._new
        self._turns = new(Counter, "turns", "Turns that have ended, by how.", "outcome")
        text = "From a turn's begin to its end."
        self._turn_seconds = new(Histogram, "turn_duration_seconds", text, buckets=_TURNS)
        text = "Answers of models that came to their end, those to agents included."
        self._requests = new(Counter, "model_requests", text, "model")
        text = "Tokens, as Ollama counted them: `in` of prompts, `out` of answers."
        self._tokens = new(Counter, "tokens", text, "model", "direction")
        text = "From a request to a model to its first words."
        self._first_token = new(Histogram, "time_to_first_token_seconds", text, "model", buckets=_FIRST_TOKEN)
        text = "Loads of models that a request had to wait for."
        self._loads = new(Histogram, "model_load_duration_seconds", text, "model", buckets=_LOADS)
        self._adjustments = new(Counter, "context_adjustments", "Changes of a session's window, by why.", "reason")
        self.compactions = new(Counter, "context_compactions", "Times the oldest turns were summed up to fit.")
        self._calls = new(Counter, "tool_calls", "Calls of tools that have ended, by how.", "tool", "outcome")
        self.lost_threads = new(Counter, "tool_threads_lost", "Threads of tools whose call ended before they returned.")
        self.refused_calls = new(Counter, "tool_calls_refused", "Calls of tools that found no free thread.")
        text = "Errors by code: a `turn` that failed, or a `request` that was answered with one."
        self._errors = new(Counter, "errors", text, "code", "of")
        self._answered = new(Counter, "http_requests", "Requests that were answered.", "method", "status")
        self._running = new(Gauge, "running_turns", "Turns under way.")
        self._subscribers = new(Gauge, "open_streams", "Requests that wait for what a running turn brings.")
        self._store = new(Gauge, "store_connected", "1; 0 while the database of the sessions cannot be reached.")
        new(Gauge, "build_info", "Always 1; the label says which version.", "version").labels(__version__).set(1)
        ProcessCollector(registry=self.registry)

    def render(self) -> bytes:
        """Return all metrics in the text format."""
        return generate_latest(self.registry)

    def set_sources(
        self, running: Callable[[], int], subscribers: Callable[[], int], store: Callable[[], bool]
    ) -> None:
        """Set the functions that return current values."""
        self._running.set_function(running)
        self._subscribers.set_function(subscribers)
        self._store.set_function(store)

    def turn_ended(self, outcome: str, seconds: float, messages: Sequence[Message], error: str | None) -> None:
        """Count a turn, with the messages that it stored and the code of its error."""
        self._turns.labels(outcome).inc()
        self._turn_seconds.observe(seconds)
        self.tool_calls_ended(messages)
        if error is not None:
            self._errors.labels(error, "turn").inc()

    def tool_calls_ended(self, messages: Sequence[Message]) -> None:
        """Count the tool results among some messages."""
        for message in messages:
            if message["role"] == "tool":
                self._calls.labels(*self._tool_end(message)).inc()

    def response_ended(self, last: Mapping[str, Any]) -> None:
        """Count an answer of a model by its last line."""
        model = self._model(str(last.get("model") or ""))
        self._requests.labels(model).inc()
        for name, direction in (("prompt_eval_count", "in"), ("eval_count", "out")):
            self._tokens.labels(model, direction).inc(_number(last.get(name)))
        if (seconds := _number(last.get("load_duration")) * _NANO) >= _LOAD_SECONDS:
            self._loads.labels(model).observe(seconds)

    def first_token(self, model: str, seconds: float) -> None:
        """Record the time to the first token of an answer."""
        self._first_token.labels(self._model(model)).observe(seconds)

    def context_adjusted(self, reason: str) -> None:
        """Count a change of a session's window."""
        self._adjustments.labels(reason).inc()

    def request_ended(self, method: str, status: int | None, error: str | None) -> None:
        """Count a request with the code of its error. Without a status no response was sent."""
        self._answered.labels(method if method in _METHODS else _OTHER, str(status or "none")).inc()
        if error is not None:
            self._errors.labels(error, "request").inc()

    def _model(self, name: str) -> str:
        return _label(qualified_name(name), self._models) if name else _OTHER

    def _tool_end(self, message: Message) -> tuple[str, str]:
        code = message.get("error_code")
        if code == ToolNotFound.code:
            return "unknown", "failed"
        end = "succeeded" if message.get("success") else _TOOL_ENDS.get(code or "", "failed")
        return _label(message["tool_name"], self._tools), end

    def _new(self, kind: type[M], name: str, text: str, *labels: str, **options: Any) -> M:
        suffix = "_total" if kind is Counter else ""
        self.described.append((f"mochi_{name}{suffix}", kind.__name__.lower(), labels, text))
        return kind(f"mochi_{name}", text, labels, registry=self.registry, **options)


def _label(name: str, known: set[str]) -> str:
    """Return the label value for a name. Prometheus keeps every label, so names beyond a maximum share one."""
    if name not in known and len(known) >= _MAX_NAMES:
        return _OTHER
    known.add(name)
    return name


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and value > 0 else 0.0
