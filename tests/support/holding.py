"""A stub that holds an answer back until a test lets it go on."""

from mochi_stub import StubServer
from mochi_stub.journal import Exchange
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Gate, Reply, Text


class Holding:
    """A stub whose answers to "hold" say three pieces and then wait for the gate; others end at once."""

    def __init__(self) -> None:
        self.gate = Gate()
        self.stub = StubServer(speed=0, resolve=self._resolve)

    def _resolve(self, prompt: Prompt) -> Reply | None:
        if prompt.user_text != "hold":
            return Reply.of("Fine.")
        return Reply([Text(["one ", "two ", "three "]), self.gate, Text("four")])

    def chats(self, outcome: str, within: float = 5) -> list[Exchange]:
        """Chat requests that ended so; waits for the first, that many seconds."""

        def ended(exchanges: list[Exchange]) -> list[Exchange]:
            return [e for e in exchanges if e.path == "/api/chat" and e.outcome == outcome]

        return ended(self.stub.wait_for(lambda exchanges: bool(ended(exchanges)), within))
