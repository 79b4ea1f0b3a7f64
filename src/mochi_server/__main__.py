"""Entry point of `python -m mochi_server`, which runs the same program as the `mochi-server`
command.
"""

import sys

from mochi_server.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
