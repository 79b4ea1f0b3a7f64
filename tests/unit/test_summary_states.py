"""What the background summaries remember of sessions is limited."""

from typing import Any, cast

from mochi_server.services import summarization
from mochi_server.services.summarization import SummarizationService
from mochi_server.services.summary_model import SummaryModelManager
from mochi_server.storage.memory import MemorySessionStore


async def test_states_of_the_oldest_sessions_are_forgotten() -> None:
    gateway = cast(Any, None)  # no summary is written
    service = SummarizationService(
        MemorySessionStore(),
        gateway,
        SummaryModelManager(),
        limiter=cast(Any, None),  # a request for a summary would need it
        enabled=True,
        interval=60,
    )
    states = {
        f"{n:010x}": summarization._SummaryState(failed={"mochi"})
        for n in range(summarization._MAX_STATES + 5)
    }
    service._states.update(states)
    service.turn_ended("f" * 10, None)
    assert len(service._states) == summarization._MAX_STATES
    assert "f" * 10 in service._states
    await service.aclose()
