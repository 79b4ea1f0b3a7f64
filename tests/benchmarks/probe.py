"""Short requests during a load, from a separate process, until its standard input closes.

Arguments are a port, a pause in seconds and paths. Prints JSON: for each response the time of the
request on the monotonic clock and its duration in milliseconds.
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
"""Time of each request and its duration in milliseconds."""


@contextmanager
def probing(server: Server, *paths: str, pause: float = 0.005) -> Iterator[Answers]:
    """Send requests while the context is open. The list is filled when the context closes."""
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
    """Send requests until standard input closes. Report when the first response has arrived."""
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
