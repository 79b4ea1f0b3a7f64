"""Loads on servers: each in a separate process, in rounds that alternate between the servers."""

import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from tempfile import TemporaryFile

from tests.benchmarks.load import Job, Result
from tests.benchmarks.processes import Server, cores, python, running, settle
from tests.benchmarks.relays import Relay

Results = dict[str, list[Result]]
"""The results of all rounds by name of the load."""

_PATIENCE_SECONDS = 60


@dataclass(frozen=True)
class Load:
    """Streams of a model; see `Job` for the fields.

    `repeats` is how often the load runs in each round.
    """

    model: str
    count: int
    spread: float | None = None
    window: tuple[float, float] = (0, 0)
    cut_after: float = 60
    repeats: int = 1

    def on(self, relay: Relay, server: Server) -> Result:
        """Run the load on a server to its end."""
        result = perform(self.job(relay, server))
        settle(server)
        return result

    def job(self, relay: Relay, server: Server) -> Job:
        """Return the load as a job and prepare what it needs."""
        requests = relay.requests(server, self.model, self.count)
        return Job(server.pid, server.port, requests, self.spread, self.window, self.cut_after)


def perform(job: Job) -> Result:
    """Run a job in a separate process and return its result."""
    done = subprocess.run(
        python("tests.benchmarks.load"),
        input=json.dumps(asdict(job)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=job.cut_after + _PATIENCE_SECONDS,
    )
    return Result.of(json.loads(done.stdout))


@contextmanager
def running_job(job: Job) -> Iterator[None]:
    """Run a job in the background and wait for its end. Its result is discarded."""
    with TemporaryFile("w+") as file:
        json.dump(asdict(job), file)
        file.seek(0)
        with subprocess.Popen(
            python("tests.benchmarks.load"), stdin=file, stdout=subprocess.DEVNULL
        ) as process:
            yield
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)


def compare(
    relays: Sequence[Relay],
    loads: Mapping[str, Load],
    rounds: int,
    warm_up: Load,
    on: tuple[set[int], set[int]] | None = None,
) -> dict[Relay, Results]:
    """Run loads on relays in front of one upstream. Each round begins with another relay.

    `on` are the CPU cores of the relays and those of all other processes.
    """
    everywhere = os.sched_getaffinity(0)
    theirs, ours = on or (everywhere, everywhere)
    models = {load.model for load in (*loads.values(), warm_up)}
    results: dict[Relay, Results] = {relay: defaultdict(list) for relay in relays}
    with ExitStack() as stack:
        stack.enter_context(cores(ours))
        upstream = stack.enter_context(
            running(python("tests.benchmarks.upstream", *sorted(models)))
        )
        with cores(theirs):
            servers = {relay: stack.enter_context(relay.running(upstream)) for relay in relays}
        for relay, server in servers.items():  # so that the first run is not measured
            warm_up.on(relay, server)
        for number in range(rounds):
            turn = number % len(relays)
            for relay in [*relays[turn:], *relays[:turn]]:
                for name, load in loads.items():
                    results[relay][name] += [
                        load.on(relay, servers[relay]) for _ in range(load.repeats)
                    ]
    return results
