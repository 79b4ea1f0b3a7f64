"""One shell for all blocks of a page, like a reader's terminal."""

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

SECONDS = 60
"""Maximum duration of one block."""

_SETUP = """
curl() { command curl --fail-with-body -sS "$@"; }
uv() { if [ "$1" = run ]; then shift; if [ "$1" = --no-dev ]; then shift; fi; "$@"; fi; }
pip() { :; }
git() { :; }
sleep() {
    until grep -qsE "^event: (content_delta|tool_call_confirmation)" answer.txt; do command sleep 0.05; done
}
set -eu -o pipefail
"""


class Shell:
    """Bash process that continues from block to block and ends at the first failing command."""

    def __init__(self, directory: Path, cwd: Path, environment: dict[str, str]) -> None:
        self._output, self._script, self._done = (
            directory / name for name in ("output", "script", "done")
        )
        with self._output.open("wb") as output:
            self._bash = subprocess.Popen(
                ["bash"],
                cwd=cwd,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        self.run(_SETUP)

    def run(self, script: str) -> str:
        """Run a script and return its output. Fail if any of its commands fails."""
        before = self._output.stat().st_size
        self._script.write_text(script)
        self._done.unlink(missing_ok=True)
        self._say(f". '{self._script}' < /dev/null; : > '{self._done}'\n")
        deadline = time.monotonic() + SECONDS
        while not self._done.exists() and self._bash.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        output = self._output.read_bytes()[before:].decode(errors="replace")
        assert self._done.exists(), (
            f"failed, or went on for more than {SECONDS} s:\n{script}\n{output}"
        )
        return output

    def close(self) -> None:
        """End the shell and every process that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()
        assert self._bash.stdin is not None
        self._bash.stdin.close()

    def _say(self, line: str) -> None:
        assert self._bash.stdin is not None
        self._bash.stdin.write(line)
        self._bash.stdin.flush()
