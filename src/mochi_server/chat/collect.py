"""Collects a run, for clients that want one response and no stream."""

from mochi_server.chat.run import Run
from mochi_server.chat.turn import TurnResult


async def collect(run: Run) -> TurnResult:
    """Wait for the end of a run. Raises the error that ended it."""
    async for _ in run.listen():
        pass
    if run.failure is not None:
        raise run.failure
    return run.result
