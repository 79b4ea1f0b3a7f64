"""A stub that pauses its answers until a test opens a gate."""

from mochi_stub import StubServer
from mochi_stub.journal import Exchange
from mochi_stub.prompt import Prompt
from mochi_stub.reply import Gate, Reply, Text


class GatedStub:
    """A stub whose answers to "hold" send three pieces and then wait for the gate.

    Other answers end at once.
    """

    def __init__(self) -> None:
        self.gate = Gate()
        self.stub = StubServer(speed=0, resolve=self._resolve)

    def reset(self) -> None:
        """Empty the journal and close the gate for new answers; answers that wait go on."""
        self.gate.open()
        self.gate = Gate()
        self.stub.clear_exchanges()

    def _resolve(self, prompt: Prompt) -> Reply | None:
        if prompt.user_text != "hold":
            return Reply.of("Fine.")
        return Reply([Text(["one ", "two ", "three "]), self.gate, Text("four")])

    def chats(self, outcome: str, within: float = 5) -> list[Exchange]:
        """Return the chat requests with this outcome.

        Wait up to ``within`` seconds for the first.
        """

        def ended(exchanges: list[Exchange]) -> list[Exchange]:
            return [e for e in exchanges if e.path == "/api/chat" and e.outcome == outcome]

        return ended(self.stub.wait_for(lambda exchanges: bool(ended(exchanges)), within))
