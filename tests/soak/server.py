"""The server with another memory limit for ended runs: `python -m tests.soak.server BYTES [OPTION ...]`."""

import sys

from mochi_server.chat import engine
from mochi_server.cli.main import main

if __name__ == "__main__":
    engine.MAX_BYTES = int(sys.argv.pop(1))
    sys.exit(main())
