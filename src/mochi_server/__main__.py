"""Entry point of `python -m mochi_server`, which is the `mochi-server` command."""

import sys

from mochi_server.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
