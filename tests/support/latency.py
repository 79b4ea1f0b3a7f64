"""Program: the longest health check of a server, without the time for which the processes waited
for a CPU.

Arguments: the port and the process ID of the server. The checks end with the standard input. Linux
only.
"""

import select
import sys
import time
from http.client import HTTPConnection
from pathlib import Path

_PAUSE_SECONDS = 0.05


def waited(process: str) -> float:
    """Return the seconds for which the main thread of a process was ready, but other processes used
    the CPUs.
    """
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9


def longest_check(port: int, server: str) -> float:
    """Check the server until the standard input ends.

    Return the duration of the longest check in seconds.
    """
    connection, longest = HTTPConnection("127.0.0.1", port, timeout=60), 0.0
    while not select.select([sys.stdin], [], [], _PAUSE_SECONDS)[0]:
        began = time.monotonic() - waited(server) - waited("self")
        connection.request("GET", "/api/v1/health/live")
        response = connection.getresponse()
        response.read()
        assert response.status == 200
        longest = max(longest, time.monotonic() - waited(server) - waited("self") - began)
    return longest


if __name__ == "__main__":
    sys.stdout.write(f"{longest_check(int(sys.argv[1]), sys.argv[2])}\n")
