"""The server with other limits of memory: `python -m tests.soak.server BYTES [OPTION ...]`.

BYTES is for ended runs.

Each turn of the soak has its own session. The default limit of 64 MiB for conversations would look
like lost memory.
"""

import sys

from mochi_server.chat import run_table
from mochi_server.cli.main import main
from mochi_server.storage import session_record

if __name__ == "__main__":
    run_table.MAX_BYTES = int(sys.argv.pop(1))
    session_record.MAX_BYTES = run_table.MAX_BYTES // 16
    sys.exit(main())
