"""A server whose next replies are queued by a test; what is not queued gets the default behaviour."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from mochi_stub.journal import Exchange
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Reply
from mochi_stub.server import StubServer

Scripted: TypeAlias = "Reply | str | Callable[[Prompt], Reply | str | None]"


class ScriptedStub:
    """`server` is the server itself, for whoever wants more of it than its address, its script and its journal."""

    def __init__(self) -> None:
        self.server = StubServer(resolve=self._next, speed=0)
        self._queue: deque[Scripted] = deque()

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def requests(self) -> list[Exchange]:
        """What was asked so far and how it went, oldest first."""
        return self.server.exchanges()

    def script(self, *replies: Scripted) -> None:
        """Queue replies, one for each request to a model: a text, a whole reply, or what makes one of the prompt.

        A callable may return None, which leaves this request to the default behaviour. Raises TypeError for all else.
        """
        for reply in replies:
            if not isinstance(reply, (Reply, str)) and not callable(reply):
                raise TypeError(f"a script is made of texts, replies and functions, not of {reply!r}")
        self._queue.extend(replies)

    def __enter__(self) -> ScriptedStub:
        self.server.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.server.stop()

    def _next(self, prompt: Prompt) -> Reply | str | None:
        if not self._queue:
            return None
        scripted = self._queue.popleft()
        return scripted if isinstance(scripted, (Reply, str)) else scripted(prompt)
