"""Command that loads each server in turn, prints a table with the ratios and saves the figures on
request.
"""

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.benchmarks.processes import Server, python
from tests.benchmarks.stub.load import NUMBER, Job, Result
from tests.benchmarks.stub.servers import CHUNKS, PACED_SECONDS, aimock, missing, mochi, resident

Figures = dict[str, float]
"""Values by name; names include the unit."""

_CONNECTIONS = (1, 16, 64)
_AT_ONCE = 8
_PATIENCE_SECONDS = 60


def main(argv: Sequence[str] | None = None) -> None:
    arguments = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that every process is ended on exit
    reason = missing()
    starters = {"mochi-stub": mochi} if reason else {"mochi-stub": mochi, "aimock": aimock}
    with TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        servers = {of: stack.enter_context(start(folder)) for of, start in starters.items()}
        table = {of: memory(server) for of, server in servers.items()}
        rounds = [
            {of: speeds(server, arguments.seconds) for of, server in servers.items()}
            for _ in range(arguments.rounds)
        ]
        for of, figures in table.items():
            figures |= {
                figure: statistics.median(one[of][figure] for one in rounds)
                for figure in rounds[0][of]
            }
        table["mochi-stub"] |= pacing(stack.enter_context(mochi(folder, speed=1)))
    sys.stdout.write(f"{_table(table)}\n{reason or ''}\n")
    if arguments.save:
        machine = {"python": platform.python_version(), "cpus": len(os.sched_getaffinity(0))}
        arguments.save.write_text(
            json.dumps({**machine, **table}, indent=1) + "\n", encoding="utf-8"
        )


def memory(server: Server) -> Figures:
    """Return the memory of a new server after eight concurrent long replies."""
    _streams(server, _AT_ONCE, 0)
    return {f"MB after {_AT_ONCE} replies": resident(server)}


def speeds(server: Server, seconds: float) -> Figures:
    """Return the rate of short replies and the speed of a long one."""
    figures = {}
    for connections in _CONNECTIONS:
        result = _load(server, connections, seconds)
        figures[f"requests/s at {connections}"] = result.replies / result.seconds
    result = _load(server, connections, seconds, fresh=True)
    figures[f"no two alike, at {connections}"] = result.replies / result.seconds
    result = _streams(server, 1, seconds)
    figures["chunks/s"] = result.chunks / result.seconds
    figures["first byte ms"] = result.first * 1000
    return figures


def pacing(server: Server) -> Figures:
    """Return by how much the duration of a reply differs from its planned time."""
    took = _load(server, 1, 0, model="paced", stream=True).whole
    return {"pacing error %": abs(took / PACED_SECONDS - 1) * 100}


def _streams(server: Server, connections: int, seconds: float) -> Result:
    result = _load(server, connections, seconds, text="long", stream=True)
    if result.chunks < CHUNKS * result.replies:
        raise RuntimeError(f"{result.replies} replies of {CHUNKS} chunks came in {result.chunks}.")
    return result


def _load(
    server: Server,
    connections: int,
    seconds: float,
    *,
    model: str = "mochi",
    text: str = "short",
    stream: bool = False,
    fresh: bool = False,
) -> Result:
    messages = [{"role": "user", "content": text}]
    body = json.dumps({"model": model, "messages": messages, "stream": stream, "seed": int(NUMBER)})
    job = Job(server.port, "/v1/chat/completions", body, connections, seconds, fresh)
    done = subprocess.run(
        python("tests.benchmarks.stub.load"),
        input=json.dumps(asdict(job)),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=seconds + _PATIENCE_SECONDS,
    )
    return Result(**json.loads(done.stdout))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.stub", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=3, help="figures are medians of so many rounds (default: 3)"
    )
    parser.add_argument("--seconds", type=float, default=2, help="length of each load (default: 2)")
    parser.add_argument("--save", type=Path, metavar="PATH", help="write the figures as JSON, too")
    return parser


def _table(table: dict[str, Figures]) -> str:
    """Return a table with one line per figure, one column per server and, for two servers, their
    ratio.
    """
    lines = [["", *table, *(["ratio"] if len(table) > 1 else [])]]
    for figure in table["mochi-stub"]:
        values = [figures[figure] for figures in table.values() if figure in figures]
        ratio = [f"{values[0] / values[1]:.2f}"] if len(values) > 1 else []
        lines.append(
            [
                figure,
                *(f"{value:,.0f}" if value >= 100 else f"{value:.2f}" for value in values),
                *ratio,
            ]
        )
    return "\n".join(
        f"{name:<22}" + "".join(f"{text:>12}" for text in texts) for name, *texts in lines
    )


if __name__ == "__main__":
    main()
