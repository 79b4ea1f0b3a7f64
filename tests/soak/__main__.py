"""The soak: many streams at the same time, after which the server must use what it used before.

Ended runs stay in memory for a while, up to a bound. A warm-up fills it. From then on every run
that ends replaces an older one. The same load then runs twice. If memory is higher the second time,
the load runs again, because a busy machine can need more memory for a while. Lost memory grows in
every round, so the smallest growth is what counts.
"""

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory

from mochi_server.chat.run_table import MAX_BYTES
from tests.benchmarks.processes import python
from tests.soak.load import Job, Result
from tests.soak.stage import FAST, PACED, allow_descriptors, expected_answer, mochi, stub
from tests.soak.verdict import Measured, grows, missed, problems, table
from tests.soak.watch import Watch, descriptors, percentile, settled_descriptors, typical_memory

_WORDS_PER_TOKEN = 0.6
_BYTES_PER_EVENT = 35
_MEBIBYTE = 1024 * 1024
_BYTES_PER_RUN = 4096
"""Lower bound of the memory that the server counts for an ended run: a part per event and a fixed
part.
"""
_AT_ONCE = 50
"""Number of concurrent streams in the warm-up."""
_IDLE_SECONDS = 30
"""Time after which both servers have closed idle connections."""
_MAX_ROUNDS = 4


@dataclass(frozen=True)
class Round:
    """One run of the load, with the server's memory in MiB while all streams were under way and
    turns still began.
    """

    result: Result
    memory: float


def main(argv: Sequence[str] | None = None) -> int:
    """Run the soak. Return 1 if a bound is broken."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.seconds < 3 * arguments.turn:  # in each round, all streams start within one turn
        parser.error("--seconds: at least three times as long as --turn")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that every process is ended on exit
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
    parser.add_argument(
        "--streams", type=int, default=1000, help="at the same time (default: 1000)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=60,
        help="in which turns begin, in two rounds together (default: 60)",
    )
    parser.add_argument(
        "--rate", type=float, default=5, help="tokens per second of each stream (default: 5)"
    )
    parser.add_argument(
        "--turn", type=float, default=20, help="seconds that a turn takes (default: 20)"
    )
    parser.add_argument(
        "--cache",
        type=int,
        default=MAX_BYTES // _MEBIBYTE,
        help="MiB for ended turns (default: %(default)s)",
    )
    parser.add_argument(
        "--warm-up", type=int, help="turns (default: as many as fill the memory for ended ones)"
    )
    return parser


def _soak(arguments: argparse.Namespace) -> tuple[Measured | None, list[str]]:
    """Run the load.

    Return the figures, or None if the server stopped answering, and the complaints.
    """
    words = round(arguments.rate * arguments.turn * _WORDS_PER_TOKEN)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="mochi-soak-")))
        ollama = stack.enter_context(stub(directory, arguments.rate))
        server = stack.enter_context(mochi(directory, ollama, arguments.cache * _MEBIBYTE))
        middle, tokens = expected_answer(ollama, words)
        _perform(
            Job(server.port, FAST, words, middle, streams=1, turns=1)
        )  # opens files that stay open
        before = descriptors(server.pid)
        warm = _perform(
            Job(server.port, FAST, words, middle, _AT_ONCE, turns=_warm_up(arguments, tokens))
        )
        turn = tokens / arguments.rate
        job = Job(
            server.port,
            PACED,
            words,
            middle,
            arguments.streams,
            spread=turn,
            seconds=arguments.seconds / 2,
        )
        _perform(
            replace(job, seconds=turn)
        )  # the first time with all streams, for which the memory grows once
        watch = Watch(server, {"server": server.pid, "stub": ollama.pid})
        with watch:
            rounds = [_round(job, watch), _round(job, watch)]
            while grows([each.memory for each in rounds]) and len(rounds) < _MAX_ROUNDS:
                rounds.append(_round(job, watch))
        after = settled_descriptors(server.pid, before, _IDLE_SECONDS)
    complaints = [
        *warm.complaints,
        *(complaint for each in rounds for complaint in each.result.complaints),
    ]
    if watch.failure is not None:
        return None, [*complaints, watch.failure]
    return _measured(job, rounds, watch, (before, after)), complaints


def _warm_up(arguments: argparse.Namespace, tokens: int) -> int:
    turns: float = arguments.warm_up or arguments.cache * _MEBIBYTE / (
        tokens * _BYTES_PER_EVENT + _BYTES_PER_RUN
    )
    return ceil(turns / _AT_ONCE)


def _perform(job: Job) -> Result:
    done = subprocess.run(
        python("tests.soak.load"),
        input=json.dumps(asdict(job)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Result(**json.loads(done.stdout))


def _round(job: Job, watch: Watch) -> Round:
    begin = watch.seconds()
    result = _perform(job)
    return Round(result, typical_memory(watch.between(begin + job.spread, begin + job.seconds)))


def _measured(
    job: Job, rounds: Sequence[Round], watch: Watch, open_files: tuple[int, int]
) -> Measured:
    results = [each.result for each in rounds]
    turns = sum(result.turns for result in results)
    health = [sample.health for sample in watch.samples]
    return Measured(
        streams=job.streams,
        turns=turns,
        events=sum(result.events for result in results),
        broken=sum(result.broken for result in results),
        pace=turns * job.spread / (len(rounds) * job.streams * job.seconds),
        memory=[each.memory for each in rounds],
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
