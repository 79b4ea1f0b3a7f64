"""CPU time per event of each protocol, relative to the native stream.

All protocols stream the same answers at the same speed. A separate server serves each protocol, so
that its CPU clock counts only this protocol.

*CPU per event* is measured while all streams run. The start and the end of the streams are not part
of it.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.benchmarks.driving import Load, compare
from tests.benchmarks.figures import median, ratio
from tests.benchmarks.load import Result
from tests.benchmarks.measures import Aim, Findings, Setting
from tests.benchmarks.processes import Server
from tests.benchmarks.relays import Relay, Request
from tests.benchmarks.relays.mochi import MOCHI, sessions
from tests.benchmarks.workload import adjustable

TITLE = "CPU per event of each protocol"
_CPU = "CPU per event, microseconds"
_LIMIT = 1.15
_CUT = 3
_MESSAGE = {"role": "user", "content": "Hello"}


@dataclass(frozen=True)
class Workload:
    """Streams that start evenly and then all run at the same time."""

    streams: int = adjustable(100, "streams at the same time")
    rate: int = adjustable(50, "events per second of each stream")
    seconds: float = adjustable(4.0, "seconds that each stream lasts")
    spread: float = adjustable(0.5, "seconds in which the streams start")

    def load(self) -> Load:
        model = f"paced:{self.rate}x{round(self.rate * self.seconds)}"
        window = (self.spread + 0.1 * self.seconds, 0.95 * self.seconds)
        return Load(model, self.streams, self.spread, window, _CUT * (self.spread + self.seconds))


def _under_v1(path: str, **body: Any) -> Callable[[Server, str, int], list[Request]]:
    def requests(_: Server, model: str, count: int) -> list[Request]:
        return [(f"/v1/{path}", json.dumps({"model": model, "stream": True, **body}))] * count

    return requests


def _in_sessions(path: str, **body: Any) -> Callable[[Server, str, int], list[Request]]:
    def requests(server: Server, model: str, count: int) -> list[Request]:
        return [
            (f"/api/v1/chat/{session_id}/{path}", json.dumps(body))
            for session_id in sessions(server, model, count)
        ]

    return requests


NATIVE = replace(MOCHI, name="native")
PROTOCOLS = [
    replace(MOCHI, name=name, requests=requests)
    for name, requests in {
        "chat completions": _under_v1("chat/completions", messages=[_MESSAGE]),
        "responses": _under_v1("responses", input="Hello"),
        "messages": _under_v1("messages", messages=[_MESSAGE], max_tokens=-1),
        "AI SDK": _in_sessions(
            "ai-sdk",
            messages=[_MESSAGE | {"id": "m", "parts": [{"type": "text", "text": "Hello"}]}],
        ),
        "AG-UI": _in_sessions("ag-ui", threadId="t", runId="r", messages=[_MESSAGE | {"id": "m"}]),
    }.items()
]


def measure(work: Workload, setting: Setting) -> Findings:
    """Return one row per protocol with medians over the rounds."""
    relays = [NATIVE, *PROTOCOLS]
    results = compare(relays, {"paced": work.load()}, setting.rounds, Load("burst:200", 20))
    cpu = {relay: median(results[relay]["paced"], _event_us) for relay in relays}
    aims = [Aim(_aim(relay), ratio(cpu[relay], cpu[NATIVE]), _LIMIT, "x") for relay in PROTOCOLS]
    return Findings([{"": relay.name, _CPU: cpu[relay]} for relay in relays], aims)


def _aim(relay: Relay) -> str:
    return relay.name


def _event_us(result: Result) -> float:
    return (
        1e6 * result.steady_cpu_seconds / max(result.steady_events, 1)
    )  # none, if a profiler slows the server
