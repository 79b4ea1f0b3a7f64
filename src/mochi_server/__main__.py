"""The `mochi-server` command: `python -m mochi_server`."""

import sys

from mochi_server.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
