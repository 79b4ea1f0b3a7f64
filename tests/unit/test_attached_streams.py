"""Streams of clients that connect to a run."""

from mochi_server.chat.turn_result import TurnResult
from mochi_server.web.sse import attach_response
from tests.support.runs import run_of


async def test_turn_that_goes_on_at_the_next_server_has_not_ended() -> None:
    """An `EventSource` stops at 204. After the end of a stream, it connects again."""
    run = run_of()
    run.suspend("running", TurnResult())
    run.release_clients()
    response = attach_response(run, run.run_id, run.log.last)
    assert response.status_code == 200
