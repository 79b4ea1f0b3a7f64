"""A turn as OpenTelemetry sees it: spans made when it has ended, so that nothing is traced while it runs.

Nothing of OpenTelemetry is imported unless its SDK has been set up. What was said is in no span.
"""

import sys
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from mochi_server import __version__
from mochi_server.chat.run import Run
from mochi_server.sessions.types import Message

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

_SDK = "opentelemetry.sdk.trace"


def trace_turn(run: Run, began: int, ended: int) -> None:
    """A span for a turn, in that of the request that began it, and one for each answer. Times are ns since 1970."""
    if _SDK not in sys.modules:
        return
    from opentelemetry.trace import StatusCode, get_tracer  # noqa: PLC0415 - see above

    tracer = get_tracer("mochi_server", __version__)
    turn = tracer.start_span("mochi.turn", start_time=began, attributes=_of_turn(run))
    if run.failure is not None:
        turn.set_attribute("error.type", run.failure.code)
        turn.set_status(StatusCode.ERROR)
    for message in run.result.stored:
        if message["role"] == "assistant":
            _trace_answer(tracer, turn, message, began)
    turn.end(ended)


def _trace_answer(tracer: "Tracer", turn: "Span", message: Message, earliest: int) -> None:
    from opentelemetry.trace import SpanKind, set_span_in_context  # noqa: PLC0415

    ended = int(datetime.fromisoformat(message["timestamp"].replace("Z", "+00:00")).timestamp() * 1e9)
    span = tracer.start_span(
        f"chat {message.get('model', '')}".rstrip(),
        context=set_span_in_context(turn),
        kind=SpanKind.CLIENT,
        start_time=max(ended - message.get("total_duration", 0), earliest),
        attributes=dict(_of_answer(message)),
    )
    span.end(ended)


def _of_turn(run: Run) -> dict[str, str]:
    return {"gen_ai.conversation.id": run.session_id, "mochi.run_id": run.run_id, "mochi.outcome": run.state}


def _of_answer(message: Message) -> Iterator[tuple[str, str | int | float]]:
    yield "gen_ai.operation.name", "chat"
    yield "gen_ai.provider.name", "ollama"
    yield "gen_ai.request.model", message.get("model", "")
    yield "gen_ai.usage.input_tokens", message.get("prompt_eval_count", 0)
    yield "gen_ai.usage.output_tokens", message.get("eval_count", 0)
    yield "mochi.load_seconds", message.get("load_duration", 0) / 1e9
