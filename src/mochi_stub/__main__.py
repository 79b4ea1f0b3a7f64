"""Entry point of the `mochi-stub` command and of `python -m mochi_stub`."""

import sys

from mochi_stub.cli import main

if __name__ == "__main__":
    sys.exit(main())
