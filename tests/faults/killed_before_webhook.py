"""Run ``mochi-server`` and kill it when it has stored a webhook of the type that KILL_AT names, and
has not sent it.
"""

import os
import signal
import sys
from collections.abc import Iterable

from mochi_server.cli.main import main
from mochi_server.sessions.change import Notice
from mochi_server.storage.files.webhooks import FileWebhookOutbox

_add = FileWebhookOutbox.add


def add_or_die(self: FileWebhookOutbox, notices: Iterable[Notice]) -> None:
    if any(f'"type":"{os.environ["KILL_AT"]}"' in notice.body for notice in notices):
        signal.raise_signal(signal.SIGKILL)
    _add(self, notices)


FileWebhookOutbox.add = add_or_die  # type: ignore[method-assign]  # the process has no other purpose
sys.exit(main())
