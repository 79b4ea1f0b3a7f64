"""MCP servers for tests: ``mcp.json`` as a user would write it, and what the servers have noted."""

import json
import sys
from pathlib import Path
from typing import Any

SCRIPT = str(Path(__file__).with_name("mcp_server.py"))


def by_hand(data_dir: Path, *arguments: str, **env: str) -> dict[str, Any]:
    """An entry for the server that is written by hand."""
    environment = {"JOURNAL": str(data_dir / "journal"), **env}
    return {"command": sys.executable, "args": ["-S", SCRIPT, *arguments], "env": environment}


def write_mcp(data_dir: Path, **servers: Any) -> Path:
    """A tools directory with these servers."""
    directory = data_dir / "tools"
    directory.mkdir(exist_ok=True)
    file = directory / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return file


def journal(data_dir: Path) -> list[str]:
    """What the servers have noted."""
    file = data_dir / "journal"
    return file.read_text().splitlines() if file.exists() else []


def started(data_dir: Path) -> list[int]:
    """The processes that were started."""
    return [int(line.split()[1]) for line in journal(data_dir) if line.startswith("started")]


def running(data_dir: Path) -> int:
    """How many processes there are of those that were started, or that these have started."""
    mine = f"JOURNAL={data_dir / 'journal'}".encode()
    return sum(mine in _environment(path).split(b"\0") for path in Path("/proc").glob("[0-9]*/environ"))


def _environment(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has just ended, or is somebody else's
        return b""


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
