"""Console output of the command."""

import sys


def print_text(text: str) -> None:
    """Print a text for the user, independent of the log level. A closed standard output is ignored."""
    try:
        print(text, flush=True)  # noqa: T201 - output for the user
    except OSError:
        sys.stdout = None
