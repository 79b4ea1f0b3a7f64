"""Run ``mochi-server`` and kill it when it is about to store a webhook of the type that KILL_AT names."""

import os
import signal
import sys
from typing import Any

from mochi_server.cli.main import main
from mochi_server.storage.files.webhooks import FileWebhookOutbox

_add = FileWebhookOutbox.add


async def add_or_die(self: FileWebhookOutbox, webhook_id: str, body: str, **options: Any) -> None:
    if f'"type":"{os.environ["KILL_AT"]}"' in body:
        signal.raise_signal(signal.SIGKILL)
    await _add(self, webhook_id, body, **options)


FileWebhookOutbox.add = add_or_die  # type: ignore[method-assign]  # the process has no other purpose
sys.exit(main())
