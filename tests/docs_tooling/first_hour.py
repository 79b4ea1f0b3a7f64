"""Run of the tutorial with only the wheel, in an empty environment.

uv run python -m tests.docs_tooling.first_hour [--seconds SECONDS]
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.docs_tooling.pages import ROOT, blocks
from tests.docs_tooling.shell import Shell

TUTORIAL = ROOT / "docs" / "tutorial.md"
REACHED = "Sunny in Oslo"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, help="limit until the first own tool answers")
    follow(parser.parse_args().seconds)


def follow(limit: float | None) -> None:
    """Follow the tutorial.

    Fail if a command fails, or if the first own tool answers later than ``limit`` seconds after the
    beginning.
    """
    with TemporaryDirectory(prefix="mochi-first-hour-") as name:
        place = Path(name)
        subprocess.run(["uv", "build", "--quiet", "--wheel", "--out-dir", place, ROOT], check=True)
        (wheel,) = place.glob("*.whl")
        begun = time.monotonic()
        environment = _environment(place / "env")
        _run(
            "uv",
            "pip",
            "install",
            "--quiet",
            "--python",
            place / "env",
            wheel,
            environment=environment,
        )
        print(f"{time.monotonic() - begun:5.1f} s  installed")
        data = place / "mochi-tutorial"
        _run("mochi-server", "init", "--with-code-agents", data, environment=environment)
        with (
            _test_mode(data, environment) as address,
            closing(Shell(place, data, environment)) as shell,
        ):
            print(f"{time.monotonic() - begun:5.1f} s  at {address}")
            for block in blocks(TUTORIAL):
                if block.title:
                    (data / block.title).write_text(block.text)
                elif block.language == "bash" and "mochi-server" not in block.text:
                    shell.run(block.text.replace("http://127.0.0.1:5099", address))
                    taken = time.monotonic() - begun
                    print(f"{taken:5.1f} s  line {block.line}")
                    if limit is not None and REACHED in block.text:
                        assert taken < limit


def _environment(place: Path) -> dict[str, str]:
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MOCHI_", "PYTHON", "VIRTUAL_"))
    }
    return inherited | {"PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def _run(*command: str | Path, environment: dict[str, str]) -> None:
    subprocess.run([*command], env=environment, check=True)


@contextmanager
def _test_mode(data: Path, environment: dict[str, str]) -> Iterator[str]:
    """Start a server in test mode and yield the address that it prints."""
    command = ["mochi-server", "--test-mode", "--port", "0", "--log-level", "WARNING"]
    with subprocess.Popen(
        command, cwd=data, env=environment, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            yield server.stdout.readline().split()[3]
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
