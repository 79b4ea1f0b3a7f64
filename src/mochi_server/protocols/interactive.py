"""Base of the encoders for frontends, whose users see the tool calls of the server and approve them."""

from abc import abstractmethod

from mochi_server.chat.event_log import Batch
from mochi_server.protocols.encoder import BlockEncoder
from mochi_server.protocols.frontends import FrontendRun
from mochi_server.protocols.parts import Approval, TextEnd


class InteractiveEncoder(BlockEncoder):
    """Encoder of one stream of a run.

    If a tool call needs approval, the stream ends, because clients of the AI SDK and AG-UI send the decision in a new
    request. The response to the new request is a second stream of the run, which begins after event ``started.after``.
    The encoder of the second stream also reads the earlier events, without output, to restore its state.
    """

    def __init__(self, started: FrontendRun) -> None:
        super().__init__(started.run)
        self.pending = started.pending
        self.is_suspended = False
        """Whether the stream must end now, because a tool call waits for the decision of this client."""
        self._after = started.after
        self._number = 0
        """Number of the current event."""

    @abstractmethod
    def suspension(self) -> bytes:
        """Return the bytes that end the stream while a tool call waits for a decision."""

    def encode(self, batch: Batch) -> bytes:
        frames = []
        for self._number, event in enumerate(batch.events, batch.first):
            if self.is_suspended:
                break
            data = self.encode_parts(self._reader.read(event))
            if self._number > self._after:
                frames.append(data)
        return b"".join(frames)

    def closing(self) -> bytes:
        return self.close() + self.suspension() if self.is_suspended else super().closing()

    def approval(self, part: Approval) -> bytes:
        self.is_suspended = self._number > self._after and part.confirmation_id in self.pending()
        return b""

    def text_end(self, _: TextEnd) -> bytes:
        return self.close()

    def part_id(self) -> str:
        """Return the ID of a block that starts now. A second stream of the run has the same IDs."""
        return f"{self.run.run_id}-{self._number}"
