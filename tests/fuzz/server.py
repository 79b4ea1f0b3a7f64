"""Server in test mode in its own process, whose log is checked at the end."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

_READY_SECONDS = 120
_SETTINGS = {
    # Long enough for a decision, short enough to wait for the timeout.
    "MOCHI_TOOL_CONFIRMATION_TIMEOUT_SECONDS": "0.5",
    "MOCHI_SUMMARIZATION_INTERVAL_SECONDS": "0.05",
    "PYTHONUNBUFFERED": "1",
}
_COMPLAINTS = re.compile(r"Traceback|never (retrieved|awaited)|\b(ERROR|CRITICAL)\b")


class LoggedServer:
    """`mochi-server --test-mode` without delays. Use it as a context manager."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._log = data_dir / "server.log"
        self.url = ""

    def __enter__(self) -> "LoggedServer":
        clean = {name: value for name, value in os.environ.items() if not name.startswith("MOCHI_")}
        options = ["--test-mode", "--stub-all-models", "--stub-speed", "0", "--port", "0"]
        command = ["mochi_server", *options, "--data-dir", str(self._data_dir)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *command],
                env=clean | _SETTINGS,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.url = self._address()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        finally:
            self._process.kill()

    def complaints(self) -> list[str]:
        """Return log lines that report a defect, with the lines after them."""
        lines = self._log.read_text(errors="replace").splitlines()
        found = [number for number, line in enumerate(lines) if _COMPLAINTS.search(line)]
        return ["\n".join(lines[number : number + 40]) for number in found[:3]]

    def _address(self) -> str:
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            if address := re.search(r"mochi-server is at (http://\S+)", self._log.read_text()):
                return address[1]
            time.sleep(0.02)
        self._process.kill()
        raise RuntimeError(f"The server did not become ready: {self._log.read_text()}")
