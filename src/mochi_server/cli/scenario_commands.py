"""The commands ``export-scenario`` and ``replay``."""

import argparse
import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from mochi_server.cli import print_text
from mochi_server.cli.scenario import export_scenario, load_scenario, replay
from mochi_server.client import ClientError
from mochi_server.config import CODE_DIRECTORIES, MochiServerSettings
from mochi_server.container import build_stores
from mochi_server.sessions.session import ChatSession
from mochi_server.testing import ThreadedServer


def run_scenario_command(arguments: argparse.Namespace, settings: MochiServerSettings) -> str | None:
    """Run a command. Return the reason if it fails. Raises ``SessionNotFound``."""
    try:
        (_export if arguments.command == "export-scenario" else _replay)(arguments, settings)
    except (OSError, ValueError, ClientError) as error:
        return str(error)
    return None


def _export(arguments: argparse.Namespace, settings: MochiServerSettings) -> None:
    session = asyncio.run(_load(arguments.session, settings))
    for path in export_scenario(session, Path(arguments.output), arguments.mask):
        print_text(f"wrote {path}")


async def _load(session_id: str, settings: MochiServerSettings) -> ChatSession:
    stores = build_stores(settings)
    try:
        if settings.store_url:  # opening a directory locks it, but a server may use it
            await stores.open()
        return await stores.chats.load(session_id)
    finally:
        await stores.aclose()


def _replay(arguments: argparse.Namespace, settings: MochiServerSettings) -> None:
    recorded = load_scenario(Path(arguments.scenario))
    recorded["session"]["model"] = arguments.model or recorded["session"]["model"]
    with TemporaryDirectory(prefix="mochi-server-") as directory:
        values = settings.model_dump() | {"sessions_dir": directory, "agent_chats_dir": f"{directory}/agent_chats"}
        values |= {"store_url": "", "workers": 1, "host": "127.0.0.1", "port": 0, "summarization_enabled": False}
        values |= {name: str(settings.code_directory(name) or directory) for name in CODE_DIRECTORIES}
        with ThreadedServer(**values) as server:
            differing = 0
            for number, difference in enumerate(replay(recorded, server.client), 1):
                differing += bool(difference)
                print_text(f"turn {number}: {'differs' if difference else 'equal'}\n{difference}".rstrip())
            print_text(f"{differing} of {number} turns differ")
