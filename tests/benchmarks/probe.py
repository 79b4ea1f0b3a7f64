"""Short requests beside a load: a process of its own that asks for one path after the other until it is told to end.

Takes a port, a pause in seconds and paths as arguments, ends when its standard input does, and prints JSON: for each
answer when it was asked for, by the monotonic clock, and how many milliseconds it took.
"""

import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import cycle

from tests.benchmarks.processes import Server, python

Answers = list[tuple[float, float]]
"""When asked, and milliseconds to the answer."""


@contextmanager
def probing(server: Server, *paths: str, pause: float = 0.005) -> Iterator[Answers]:
    """Ask while inside; the list has the answers when the context is left."""
    answers: Answers = []
    command = python("tests.benchmarks.probe", str(server.port), str(pause), *paths)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield answers
        finally:
            printed, _ = process.communicate()
            answers += [(asked, took) for asked, took in json.loads(printed)]


def main(port: int, pause: float, paths: list[str]) -> None:
    """Ask until standard input ends; say when the first answer has come."""
    connection, answers = HTTPConnection("127.0.0.1", port, timeout=60), []
    for path in cycle(paths):
        asked = time.monotonic()
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        assert response.status == 200, path
        answers.append((asked, 1000 * (time.monotonic() - asked)))
        if len(answers) == 1:
            sys.stdout.write("\n")
            sys.stdout.flush()
        if select.select([sys.stdin], [], [], pause)[0]:
            break
    sys.stdout.write(json.dumps(answers))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
