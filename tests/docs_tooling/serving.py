"""Replacement for a command that serves forever: it is started, must report that it is ready, and
is stopped.
"""

import os
import subprocess
import sys

_ENDS_BY_ITSELF = ("-h", "--help", "--version")


def main(module: str, arguments: list[str]) -> int:
    """Return the exit code of the command, or 0 if it serves."""
    command = [sys.executable, "-m", module]
    if not _serves(module, arguments):
        return subprocess.call([*command, *arguments])
    # The server that runs during the whole page has locked the default directories of sessions.
    environment = {
        "MOCHI_SESSIONS_DIR": "served_sessions",
        "MOCHI_AGENT_CHATS_DIR": "served_agent_chats",
        **os.environ,
    }
    run = subprocess.Popen(
        [*command, *arguments, "--port", "0"], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    ready = any("http://" in line for line in run.stdout)
    run.terminate()
    run.stdout.close()
    return 0 if ready else run.wait() or 1


def _serves(module: str, arguments: list[str]) -> bool:
    first = arguments[0] if arguments else ""
    return (
        not first or first.startswith("-") or (module, first) == ("mochi_stub", "run")
    ) and not ({*_ENDS_BY_ITSELF} & {*arguments})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
