"""MCP servers for tests: `mcp.json` as a user would write it, and the journal of the servers."""

import json
import sys
from pathlib import Path
from typing import Any

from mochi_server.config import DATA_DIR_MARKER

SCRIPT = str(Path(__file__).with_name("mcp_server.py"))
HOSTILE_SCRIPT = str(Path(__file__).with_name("hostile_mcp.py"))


def by_hand(data_dir: Path, *arguments: str, **env: str) -> dict[str, Any]:
    """Return a configuration entry for the MCP server in `mcp_server.py`."""
    environment = {"JOURNAL": str(data_dir / "journal"), **env}
    return {"command": sys.executable, "args": ["-S", SCRIPT, *arguments], "env": environment}


def hostile(data_dir: Path, *tools: str, seed: int = 0) -> dict[str, Any]:
    """Return a configuration entry for the MCP server in `hostile_mcp.py`."""
    journal = str(data_dir / f"hostile-{seed}")
    return {"command": sys.executable, "args": ["-S", HOSTILE_SCRIPT, journal, str(seed), *tools]}


def write_mcp(data_dir: Path, **servers: Any) -> Path:
    """Write `mcp.json` with these servers into the tools directory, mark the data directory, and
    return the path.
    """
    directory = data_dir / "tools"
    directory.mkdir(exist_ok=True)
    (data_dir / DATA_DIR_MARKER).touch()
    file = directory / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return file


def journal(data_dir: Path) -> list[str]:
    """Return the lines that the servers wrote to their journal."""
    file = data_dir / "journal"
    return file.read_text().splitlines() if file.exists() else []


def started(data_dir: Path) -> list[int]:
    """Return the IDs of the processes that were started."""
    return [int(line.split()[1]) for line in journal(data_dir) if line.startswith("started")]


def running(data_dir: Path) -> int:
    """Return how many of the started processes and their children are running."""
    mine = f"JOURNAL={data_dir / 'journal'}".encode()
    return sum(
        mine in _environment(path).split(b"\0") for path in Path("/proc").glob("[0-9]*/environ")
    )


def _environment(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # ended in the meantime, or owned by another user
        return b""


def is_alive(pid: int) -> bool:
    """Return whether a process is running.

    A process that has ended but was not waited for is not.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def has_socket(pid: int, port: int) -> bool:
    """Return whether a process has the socket that listens on a port of 127.0.0.1."""
    listening = f"0100007F:{port:04X} 00000000:0000 0A"
    sockets = [
        line.split()[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()
        if listening in line
    ]
    assert sockets
    targets = {str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}
    return any(f"socket:[{inode}]" in targets for inode in sockets)
