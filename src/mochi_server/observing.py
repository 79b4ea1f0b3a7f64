"""What is told of a turn when it has ended: to metrics, to traces, and to the log where it failed."""

import logging
import time

from mochi_server.chat.run import Run
from mochi_server.errors import OllamaUnreachable
from mochi_server.services.metrics import Metrics
from mochi_server.tracing import trace_turn

logger = logging.getLogger(__name__)


def turn_ended(metrics: Metrics, run: Run) -> None:
    """Count it. Of a failure only the code is logged: Ollama's own texts may quote a conversation."""
    failure = run.failure
    seconds, ended = time.monotonic() - run.began, time.time_ns()
    metrics.turn_ended(run.state, seconds, run.result.stored, failure.code if failure else None)
    trace_turn(run, ended - int(seconds * 1e9), ended)
    if failure is not None:
        said = failure.message if isinstance(failure, OllamaUnreachable) else failure.code
        logger.warning("A turn of session %s has failed: %s", run.session_id, said)
