"""A server whose next replies are queued by a test; other requests get the default behaviour."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from mochi_stub.journal import Exchange
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Reply
from mochi_stub.server import StubServer

Scripted: TypeAlias = "Reply | str | Callable[[Prompt], Reply | str | None]"


class ScriptedStub(StubServer):
    """A server that does not wait, with a queue of replies."""

    def __init__(self) -> None:
        super().__init__(resolve=self._next, speed=0)
        self._queue: deque[Scripted] = deque()

    @property
    def requests(self) -> list[Exchange]:
        """The requests and their outcomes, oldest first."""
        return self.exchanges()

    def script(self, *replies: Scripted) -> None:
        """Queue replies, one for each request to a model: a text, a reply, or a function that makes one of the prompt.

        A function may return None, which leaves the request to the default behaviour. Raises TypeError for all else.
        """
        for reply in replies:
            if not isinstance(reply, (Reply, str)) and not callable(reply):
                raise TypeError(f"a script is made of texts, replies and functions, not of {reply!r}")
        self._queue.extend(replies)

    def _next(self, prompt: Prompt) -> Reply | str | None:
        if not self._queue:
            return None
        scripted = self._queue.popleft()
        return scripted if isinstance(scripted, (Reply, str)) else scripted(prompt)
