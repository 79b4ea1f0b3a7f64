"""Status events of a request that waits behind another."""

from pathlib import Path

from mochi_stub import Machine, StubServer
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Gate, Reply, Text
from tests.api.test_waiting import QUICK
from tests.support.api import types_of
from tests.support.server import RunningServer


def test_request_behind_another_emits_queued_status(tmp_path: Path) -> None:
    gate = Gate()

    def resolve(prompt: Prompt) -> Reply | None:
        return (
            Reply([Text("Well, "), gate, Text("yes.")])
            if prompt.user_text == "hold"
            else Reply.of("Fine.")
        )

    machine = Machine(parallel=1)
    with (
        StubServer(speed=0, models=[QUICK], resolve=resolve, machine=machine) as stub,
        RunningServer(tmp_path, stub.url) as server,
    ):
        api, other = server.api(), server.api()
        first, second = (api.create_session("quick")["session_id"] for _ in range(2))
        with api.open_stream(first, "hold") as holding:
            next(holding)
            with other.open_stream(second, "Hi") as events:
                status = next(events)
                gate.open()
                rest = list(events)
            list(holding)
    assert (status.type, status.data["state"]) == ("status", "queued")
    assert types_of(rest) == ["content_delta", "message_complete", "done"]
