"""``mochi-server import``: an import of a file into the sessions of this machine."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

from mochi_server.cli import print_text
from mochi_server.config import MochiServerSettings
from mochi_server.container import build_services
from mochi_server.sessions.serialization import parse


def import_file(path: Path, settings: MochiServerSettings) -> None:
    """Import a file, and print the new sessions and the warnings.

    Raises ``OSError`` or ``MochiError``.
    """
    imported = asyncio.run(_import(path.read_bytes(), settings))
    for session in imported["sessions"]:
        print_text(f"{session['session_id']}  {session['title'] or 'Untitled'}")
    for warning in imported["warnings"]:
        print_text(f"warning: {warning['message']}")
    print_text(f"imported sessions: {len(imported['sessions'])}")


async def _import(data: bytes, settings: MochiServerSettings) -> Any:
    async with aclosing(build_services(settings)) as services:
        await services.stores.open()
        return parse(await services.transfers.import_sessions(data))
