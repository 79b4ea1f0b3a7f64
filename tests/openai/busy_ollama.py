"""Ollama that rejects a request once because it is overloaded.

The client must repeat the request.
"""

import re

from mochi_stub import Prompt
from mochi_stub.reply import Failure, Reply

PLAIN = re.compile(r"[A-Z][a-z ]{,20}[.?!]")
"""Messages with a reply of two chunks.

Official clients need a millisecond for each chunk of a longer reply.
"""


class BusyOnce:
    """Resolver that fails once for each message such as "Busy 503: TOPIC".

    The number is the status of the failure.

    It is in the message, because some clients are other processes.
    """

    def __init__(self) -> None:
        self._failed = set[str]()

    def resolve(self, prompt: Prompt) -> Reply | None:
        text = prompt.user_text
        if PLAIN.fullmatch(text) and prompt.model == "mochi:latest" and not _sets_reply(prompt):
            return Reply.of(("Short ", text))
        match = re.match(r"Busy (\d+): ", text)
        if match is None or text in self._failed:
            return None
        self._failed.add(text)
        return Reply(
            [
                Failure(
                    "server busy, please try again", int(match[1]), (("retry-after", RETRY_AFTER),)
                )
            ]
        )


def _sets_reply(prompt: Prompt) -> bool:
    """Return whether the request demands a format, a tool call or thinking, or limits the reply."""
    return bool(
        prompt.format
        or prompt.required_tools
        or prompt.requested_thinking
        or "num_predict" in prompt.options
    )


RETRY_AFTER = "1"
"""Seconds. Without this header, the clients wait for less than a second."""
