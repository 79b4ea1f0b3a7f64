"""The `mochi-server` command: server, workers, startup banner, `init` and `store copy`."""

import sys


def print_text(text: str) -> None:
    """Print a text for the user at every log level. If standard output is closed, do nothing."""
    try:
        print(text, flush=True)  # noqa: T201 - output for the user
    except UnicodeEncodeError:  # the encoding lacks a character, for example of a path
        print_text(text.encode("ascii", "backslashreplace").decode())
    except OSError:
        sys.stdout = None
