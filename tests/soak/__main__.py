"""The soak: streams that go on for minutes, and a server that must be in the end as it was in the beginning.

Ended runs stay in memory for a while, up to a bound. A warm-up fills it, so that from then on every run that ends
drives out an older one, and memory that grows is memory that is lost.
"""

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory

from mochi_server.chat.shelf import MAX_KEPT_BYTES
from tests.benchmarks.processes import python
from tests.soak.load import Job, Result
from tests.soak.stage import FAST, PACED, allow_descriptors, mochi, said, stub
from tests.soak.verdict import Measured, missed, problems, table
from tests.soak.watch import Watch, descriptors, percentile, settled_descriptors, typical_memory

_WORDS_PER_TOKEN = 0.6
_BYTES_PER_EVENT = 70
"""At least; what an ended run takes up in memory."""
_AT_ONCE = 50
"""Streams of the warm-up."""
_IDLE_SECONDS = 30
"""Within which both servers have given up idle connections."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the soak; the exit code tells whether every bound held."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.seconds < 3 * arguments.turn:  # they begin during one turn's time and end during another's
        parser.error("--seconds: three times as long as --turn at the least")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that every process is ended on the way out
    if not allow_descriptors(4 * arguments.streams + 200):
        sys.stdout.write(f"The system allows too few open files for {arguments.streams} streams.\n")
        return 1
    measured, complaints = _soak(arguments)
    if measured is not None:
        sys.stdout.write(table(measured) + "\n")
        complaints += problems(measured)
        sys.stdout.writelines(f"MISSED: {line}\n" for line in missed(measured))
    sys.stdout.writelines(f"BROKEN: {line}\n" for line in complaints)
    return 1 if complaints else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--streams", type=int, default=1000, help="at the same time (default: 1000)")
    parser.add_argument("--seconds", type=float, default=60, help="of load, without the warm-up (default: 60)")
    parser.add_argument("--rate", type=float, default=5, help="tokens per second of each stream (default: 5)")
    parser.add_argument("--turn", type=float, default=10, help="seconds that a turn takes (default: 10)")
    parser.add_argument("--warm-up", type=int, help="turns (default: as many as fill the memory for ended ones)")
    return parser


def _soak(arguments: argparse.Namespace) -> tuple[Measured | None, list[str]]:
    """What was measured, unless the server could not be watched to the end; and what went wrong."""
    words = round(arguments.rate * arguments.turn * _WORDS_PER_TOKEN)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="mochi-soak-")))
        ollama = stack.enter_context(stub(directory, arguments.rate))
        server = stack.enter_context(mochi(directory, ollama))
        middle, tokens = said(ollama, words)
        _perform(Job(server.port, FAST, words, middle, streams=1, turns=1))  # what is opened once is open now
        before = descriptors(server.pid)
        warm = _perform(Job(server.port, FAST, words, middle, _AT_ONCE, turns=_warm_up(arguments, tokens)))
        turn = tokens / arguments.rate
        job = Job(server.port, PACED, words, middle, arguments.streams, spread=turn, seconds=arguments.seconds - turn)
        watch = Watch(server, {"server": server.pid, "stub": ollama.pid})
        with watch:
            result = _perform(job)
        after = settled_descriptors(server.pid, before, _IDLE_SECONDS)
    complaints = [*warm.complaints, *result.complaints]
    if watch.failure is not None:
        return None, [*complaints, watch.failure]
    planned = job.streams * job.seconds / turn
    return _measured(job, result, watch, (before, after), result.turns / planned), complaints


def _warm_up(arguments: argparse.Namespace, tokens: int) -> int:
    turns: float = arguments.warm_up or MAX_KEPT_BYTES / (tokens * _BYTES_PER_EVENT)
    return ceil(turns / _AT_ONCE)


def _perform(job: Job) -> Result:
    done = subprocess.run(
        python("tests.soak.load"), input=json.dumps(asdict(job)), stdout=subprocess.PIPE, text=True, check=True
    )
    return Result(**json.loads(done.stdout))


def _measured(job: Job, result: Result, watch: Watch, open_files: tuple[int, int], pace: float) -> Measured:
    """All streams are under way from the end of the spread until no more turns begin; that time's ends are compared."""
    stretch = (job.seconds - job.spread) / 3
    first = watch.between(job.spread, job.spread + stretch)
    last = watch.between(job.seconds - stretch, job.seconds)
    health = [sample.health for sample in watch.samples]
    return Measured(
        streams=job.streams,
        turns=result.turns,
        events=result.events,
        broken=result.broken,
        pace=pace,
        memory_first=typical_memory(first),
        memory_last=typical_memory(last),
        descriptors_before=open_files[0],
        descriptors_after=open_files[1],
        health_p50=percentile(health, 50),
        health_p99=percentile(health, 99),
        health_worst=max(health),
        late_p99=percentile([sample.late for sample in watch.samples], 99),
        cpu=watch.cpu,
    )


if __name__ == "__main__":
    sys.exit(main())
