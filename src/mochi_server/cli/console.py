"""Output of the command."""

import sys


def print_text(text: str) -> None:
    """Print a text for the user, at any log level. A closed output is ignored."""
    try:
        print(text, flush=True)  # noqa: T201 - see above
    except OSError:
        sys.stdout = None
