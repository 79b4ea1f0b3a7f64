"""Supervisor of worker processes, with workers that only wait."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="several workers need a POSIX system")

PROGRAM = """
import os, signal, socket, threading
from mochi_server.cli.server import supervise
from tests.cli.test_supervisor import wait

first_handler = signal.getsignal(signal.SIGTERM)  # with coverage, this is not the default one

def interrupt():
    while signal.getsignal(signal.SIGTERM) == first_handler:
        pass
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=interrupt).start()
raise SystemExit(supervise(3, wait, socket.socket()))
"""


def wait(_listener: socket.socket, _prints_banner: bool) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    time.sleep(60)
    return 1


def test_signal_while_workers_start_stops_all_of_them() -> None:
    root = Path(__file__).parents[2]
    ended = subprocess.run([sys.executable, "-c", PROGRAM], cwd=root, timeout=30, check=False)
    assert ended.returncode == 0
