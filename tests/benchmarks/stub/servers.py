"""Servers under measurement: configured with the same replies and chunks, without pacing."""

import json
import shutil
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path

from tests.benchmarks.processes import Server, python, resident_bytes, running

SHORT = "Hi there! How can I help you today?"
CHUNK = 20
"""Characters per chunk."""
CHUNKS = 5000
LONG = "lorem ipsum dolor s " * CHUNKS

PACED_RATE = 100
"""Tokens per second, with four characters per token."""
PACED_SECONDS = 3

_HERE = Path(__file__).parent


def mochi(folder: Path, speed: float = 0) -> AbstractContextManager[Server]:
    """Run mochi-stub. Its configuration is written into `folder`."""
    config = folder / "config.yaml"
    pieces = [LONG[at : at + CHUNK] for at in range(0, len(LONG), CHUNK)]
    paced = LONG[: PACED_SECONDS * PACED_RATE * 4]
    pace = {"profile": "token", "chars_per_token": 4, "tokens_per_second": PACED_RATE}
    said = [{"short": SHORT}, {"long": {"type": "message", "content": pieces}}]
    models = {
        "mochi": said,
        "paced": [{"_model": pace}, {"_default": {"type": "message", "content": paced}}],
    }
    config.write_text(json.dumps({"models": models}), encoding="utf-8")  # JSON is YAML
    options = [
        "--port",
        "0",
        "--config",
        str(config),
        "--log-level",
        "warning",
        "--speed",
        str(speed),
    ]
    return running(python("mochi_stub", "run", *options))


def missing() -> str | None:
    """Return why aimock cannot be measured here, if so. Install it if necessary."""
    if not shutil.which("node") or not shutil.which("npm"):
        return "Node and npm are needed for aimock; only mochi-stub is measured."
    install = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
    if (
        not (_HERE / "node_modules").exists()
        and subprocess.run(install, cwd=_HERE, check=False).returncode
    ):
        return "npm could not install aimock; only mochi-stub is measured."
    return None


def aimock(folder: Path) -> AbstractContextManager[Server]:
    """Run aimock. Its replies are written into `folder`."""
    replies = folder / "replies.json"
    replies.write_text(
        json.dumps({"replies": {"short": SHORT, "long": LONG}, "chunk": CHUNK}), encoding="utf-8"
    )
    return running(["node", str(_HERE / "aimock.mjs"), str(replies)])


def resident(server: Server) -> float:
    """Return the resident memory of the server in megabytes."""
    return resident_bytes(server) / 1e6
