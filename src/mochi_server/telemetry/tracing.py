"""Records of ended turns: metrics, a log line for a failure, and OpenTelemetry spans.

OpenTelemetry is imported only if its SDK is loaded. Spans contain no text of conversations.
"""

import logging
import sys
import time
from datetime import datetime

from mochi_server import __version__
from mochi_server.chat.run import Run
from mochi_server.errors import OllamaUnreachable
from mochi_server.telemetry.metrics import Metrics

_SDK = "opentelemetry.sdk.trace"

logger = logging.getLogger(__name__)


def record_turn(metrics: Metrics, run: Run) -> None:
    """Record an ended turn. Log only the code of most errors, because error messages may quote conversations."""
    failure = run.failure
    seconds, ended = time.monotonic() - run.began, time.time_ns()
    metrics.turn_ended(run.state, seconds, run.result.stored, failure.code if failure else None)
    if _SDK in sys.modules:
        _record_spans(run, ended - int(seconds * 1e9), ended)
    if failure is not None:
        text = failure.message if isinstance(failure, OllamaUnreachable) else failure.code
        logger.warning("Turn failed session_id=%s run_id=%s: %s", run.session_id, run.run_id, text)


def _record_spans(run: Run, began: int, ended: int) -> None:
    """Record a span for the turn and a child span for each answer. Times are Unix times in nanoseconds."""
    from opentelemetry.trace import SpanKind, StatusCode, get_tracer, set_span_in_context  # noqa: PLC0415 - optional

    tracer = get_tracer("mochi_server", __version__)
    attributes = {"gen_ai.conversation.id": run.session_id, "mochi.run_id": run.run_id, "mochi.outcome": run.state}
    turn = tracer.start_span("mochi.turn", start_time=began, attributes=attributes)
    if run.failure is not None:
        turn.set_attribute("error.type", run.failure.code)
        turn.set_status(StatusCode.ERROR)
    for message in [message for message in run.result.stored if message["role"] == "assistant"]:
        answered = int(datetime.fromisoformat(message["timestamp"].replace("Z", "+00:00")).timestamp() * 1e9)
        answer = tracer.start_span(
            f"chat {message.get('model', '')}".rstrip(),
            context=set_span_in_context(turn),
            kind=SpanKind.CLIENT,
            start_time=max(answered - message.get("total_duration", 0), began),
            attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "ollama",
                "gen_ai.request.model": message.get("model", ""),
                "gen_ai.usage.input_tokens": message.get("prompt_eval_count", 0),
                "gen_ai.usage.output_tokens": message.get("eval_count", 0),
                "mochi.load_seconds": message.get("load_duration", 0) / 1e9,
            },
        )
        answer.end(answered)
    turn.end(ended)
