"""``mochi-server replay``: a replay of a recorded session with another model or server."""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from mochi_server.cli import print_text
from mochi_server.cli.scenario import differences, load_recording
from mochi_server.config import CODE_DIRECTORIES, MochiServerSettings
from mochi_server.testing import ThreadedServer

_OF_THE_OPERATOR = {
    "api_keys",
    "api_keys_file",
    "store_url",
    "workers",
    "host",
    "summarization_enabled",
    "webhook_url",
    "webhook_secret",
}
"""Settings of the operator's own server, which a replay does not use."""


def replay(arguments: argparse.Namespace, settings: MochiServerSettings) -> None:
    """Print how the answers of a model differ from the recorded ones.

    Raises ``ValueError`` or ``ClientError``.
    """
    settings = settings.with_absolute_data_dir()
    recorded = load_recording(Path(arguments.scenario))
    recorded["session"]["model"] = arguments.model or recorded["session"]["model"]
    with TemporaryDirectory(prefix="mochi-server-") as directory:
        values = settings.model_dump(exclude=_OF_THE_OPERATOR)
        values |= {
            "sessions_dir": directory,
            "agent_chats_dir": f"{directory}/agent_chats",
            "port": 0,
        }
        values |= {
            name: str(settings.code_directory(name) or directory) for name in CODE_DIRECTORIES
        }
        with ThreadedServer(**values) as server:
            found = differences(recorded, server.client, runs_tools=True)
            for number, difference in enumerate(found, 1):
                print_text(
                    f"turn {number}: {'differs' if difference else 'equal'}\n{difference}".rstrip()
                )
