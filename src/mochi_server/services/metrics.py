"""Metrics of a server, in the format of Prometheus.

The methods are called when something has ended, never per token. The number of names from outside that become labels
is limited.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from mochi_server import __version__
from mochi_server.errors import ConfirmationTimeout, ToolExecutionDenied, ToolNotFound
from mochi_server.ollama.requests import qualified
from mochi_server.services.context_window import WindowWatch
from mochi_server.sessions.types import Message
from mochi_server.tools.execution import ThreadWatch

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


class Metrics(WindowWatch, ThreadWatch):
    """The metrics of one server, in their own registry. Belongs to one event loop."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.described: list[tuple[str, str, tuple[str, ...], str]] = []
        """Name, kind, labels and description of each metric, for the documentation."""
        self._models, self._tools = _Names(), _Names()
        self._turns = self._counter("turns", "Turns that have ended, by how.", "outcome")
        self._turn_seconds = self._histogram("turn_duration_seconds", "From a turn's begin to its end.", _TURNS)
        self._requests = self._counter(
            "model_requests", "Answers of models that came to their end, those to agents included.", "model"
        )
        self._tokens = self._counter(
            "tokens", "Tokens, as Ollama counted them: `in` of prompts, `out` of answers.", "model", "direction"
        )
        self._first_token = self._histogram(
            "time_to_first_token_seconds", "From a request to a model to its first words.", _FIRST_TOKEN, "model"
        )
        self._loads = self._histogram(
            "model_load_duration_seconds", "Loads of models that a request had to wait for.", _LOADS, "model"
        )
        self._adjustments = self._counter("context_adjustments", "Changes of a session's window, by why.", "reason")
        self._compactions = self._counter("context_compactions", "Times the oldest turns were summed up to fit.")
        self._calls = self._counter("tool_calls", "Calls of tools that have ended, by how.", "tool", "outcome")
        self._lost = self._counter("tool_threads_lost", "Threads of tools whose call ended before they returned.")
        self._refused = self._counter("tool_calls_refused", "Calls of tools that found no free thread.")
        self._errors = self._counter(
            "errors", "Errors by code: a `turn` that failed, or a `request` that was answered with one.", "code", "of"
        )
        self._answered = self._counter("http_requests", "Requests that were answered.", "method", "status")
        self._running = self._gauge("running_turns", "Turns under way.")
        self._listeners = self._gauge("open_streams", "Requests that wait for what a running turn brings.")
        self._store = self._gauge("store_connected", "1; 0 while the database of the sessions cannot be reached.")
        self._gauge("build_info", "Always 1; the label says which version.", "version").labels(__version__).set(1)
        ProcessCollector(registry=self.registry)

    def text(self) -> bytes:
        """Return all metrics in the text format."""
        return generate_latest(self.registry)

    def watch(self, running: Callable[[], int], listeners: Callable[[], int], store: Callable[[], bool]) -> None:
        """Set the functions that return current values."""
        self._running.set_function(running)
        self._listeners.set_function(listeners)
        self._store.set_function(store)

    def turn_ended(self, outcome: str, seconds: float, messages: Sequence[Message], error: str | None) -> None:
        """Count a turn, with the messages that it stored and the code of its error."""
        self._turns.labels(outcome).inc()
        self._turn_seconds.observe(seconds)
        self.called(messages)
        if error is not None:
            self._errors.labels(error, "turn").inc()

    def called(self, messages: Sequence[Message]) -> None:
        """Count the tool results among some messages."""
        for message in messages:
            if message["role"] == "tool":
                self._calls.labels(*self._tool_end(message)).inc()

    def thread_lost(self) -> None:
        """Count a call that ended before its thread."""
        self._lost.inc()

    def call_refused(self) -> None:
        """Count a call that found no free thread."""
        self._refused.inc()

    def answered(self, last: Mapping[str, Any]) -> None:
        """Count an answer of a model by its last line."""
        model = self._model(str(last.get("model") or ""))
        self._requests.labels(model).inc()
        for name, direction in (("prompt_eval_count", "in"), ("eval_count", "out")):
            self._tokens.labels(model, direction).inc(_number(last.get(name)))
        if (seconds := _number(last.get("load_duration")) * _NANO) >= _LOAD_SECONDS:
            self._loads.labels(model).observe(seconds)

    def first_words(self, model: str, seconds: float) -> None:
        """Record the time to the first token of an answer."""
        self._first_token.labels(self._model(model)).observe(seconds)

    def context_adjusted(self, reason: str) -> None:
        """Count a change of a session's window."""
        self._adjustments.labels(reason).inc()

    def compacted(self) -> None:
        """Count a compaction of a prompt."""
        self._compactions.inc()

    def request_ended(self, method: str, status: int | None, error: str | None) -> None:
        """Count a request with the code of its error. Without a status no response was sent."""
        self._answered.labels(method if method in _METHODS else _OTHER, str(status or "none")).inc()
        if error is not None:
            self._errors.labels(error, "request").inc()

    def _model(self, name: str) -> str:
        return self._models.label(qualified(name)) if name else _OTHER

    def _tool_end(self, message: Message) -> tuple[str, str]:
        code = message.get("error_code")
        if code == ToolNotFound.code:
            return "unknown", "failed"
        end = "succeeded" if message.get("success") else _TOOL_ENDS.get(code or "", "failed")
        return self._tools.label(message["tool_name"]), end

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        self._describe(f"{name}_total", "counter", labels, text)
        return Counter(f"mochi_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        self._describe(name, "gauge", labels, text)
        return Gauge(f"mochi_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float], *labels: str) -> Histogram:
        self._describe(name, "histogram", labels, text)
        return Histogram(f"mochi_{name}", text, labels, registry=self.registry, buckets=buckets)

    def _describe(self, name: str, kind: str, labels: tuple[str, ...], text: str) -> None:
        self.described.append((f"mochi_{name}", kind, labels, text))


class _Names:
    """A limited set of label values. Prometheus keeps every label, so further names share one."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def label(self, name: str) -> str:
        if name not in self._known and len(self._known) >= _MAX_NAMES:
            return _OTHER
        self._known.add(name)
        return name


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and value > 0 else 0.0
