"""Ollama that rejects a request once because it is overloaded. The client must repeat the request."""

import re

from mochi_stub import Prompt
from mochi_stub.reply import Failure, Reply


class BusyOnce:
    """Resolver that fails once for each message such as "Busy 503: TOPIC". The number is the status of the failure.

    It is in the message, because some clients are other processes.
    """

    def __init__(self) -> None:
        self._failed = set[str]()

    def resolve(self, prompt: Prompt) -> Reply | None:
        text = prompt.user_text
        match = re.match(r"Busy (\d+): ", text)
        if match is None or text in self._failed:
            return None
        self._failed.add(text)
        return Reply([Failure("server busy, please try again", int(match[1]), (("retry-after", RETRY_AFTER),))])


RETRY_AFTER = "1"
"""Seconds. Without this header, the clients wait for less than a second."""
