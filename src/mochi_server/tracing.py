"""What is recorded of a turn when it has ended: metrics, a log line if it failed, and spans of OpenTelemetry.

Nothing of OpenTelemetry is imported unless its SDK has been set up. No span holds text of a conversation.
"""

import logging
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING

from mochi_server import __version__
from mochi_server.chat.run import Run
from mochi_server.errors import OllamaUnreachable
from mochi_server.services.metrics import Metrics
from mochi_server.sessions.types import Message

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

_SDK = "opentelemetry.sdk.trace"


logger = logging.getLogger(__name__)


def turn_ended(metrics: Metrics, run: Run) -> None:
    """Record a turn. Of a failure only the code is logged, because Ollama's own texts may quote a conversation."""
    failure = run.failure
    seconds, ended = time.monotonic() - run.began, time.time_ns()
    metrics.turn_ended(run.state, seconds, run.result.stored, failure.code if failure else None)
    if _SDK in sys.modules:
        _trace(run, ended - int(seconds * 1e9), ended)
    if failure is not None:
        text = failure.message if isinstance(failure, OllamaUnreachable) else failure.code
        logger.warning("A turn of session %s has failed: %s", run.session_id, text)


def _trace(run: Run, began: int, ended: int) -> None:
    """Make a span for a turn, in that of the request that began it, and one for each answer. Times are in ns."""
    from opentelemetry.trace import StatusCode, get_tracer  # noqa: PLC0415 - an optional package

    tracer = get_tracer("mochi_server", __version__)
    attributes = {"gen_ai.conversation.id": run.session_id, "mochi.run_id": run.run_id, "mochi.outcome": run.state}
    turn = tracer.start_span("mochi.turn", start_time=began, attributes=attributes)
    if run.failure is not None:
        turn.set_attribute("error.type", run.failure.code)
        turn.set_status(StatusCode.ERROR)
    for message in run.result.stored:
        if message["role"] == "assistant":
            _trace_answer(tracer, turn, message, began)
    turn.end(ended)


def _trace_answer(tracer: "Tracer", turn: "Span", message: Message, earliest: int) -> None:
    from opentelemetry.trace import SpanKind, set_span_in_context  # noqa: PLC0415 - an optional package

    ended = int(datetime.fromisoformat(message["timestamp"].replace("Z", "+00:00")).timestamp() * 1e9)
    span = tracer.start_span(
        f"chat {message.get('model', '')}".rstrip(),
        context=set_span_in_context(turn),
        kind=SpanKind.CLIENT,
        start_time=max(ended - message.get("total_duration", 0), earliest),
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "ollama",
            "gen_ai.request.model": message.get("model", ""),
            "gen_ai.usage.input_tokens": message.get("prompt_eval_count", 0),
            "gen_ai.usage.output_tokens": message.get("eval_count", 0),
            "mochi.load_seconds": message.get("load_duration", 0) / 1e9,
        },
    )
    span.end(ended)
