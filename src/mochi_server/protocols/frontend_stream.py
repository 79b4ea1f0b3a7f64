"""Streams of the AI SDK and AG-UI, which end when a tool call needs the approval of the client."""

from abc import abstractmethod
from contextlib import suppress

import orjson
from starlette.types import Send

from mochi_server.chat.event_log import Batch
from mochi_server.chat.run import Run
from mochi_server.constants import PING_SECONDS
from mochi_server.protocols.encoded_response import EncodedResponse
from mochi_server.protocols.encoder import AnswerBlockEncoder
from mochi_server.protocols.frontends import FrontendRun
from mochi_server.protocols.parts import Approval, Reasoning, Text


class InteractiveEncoder(AnswerBlockEncoder):
    """Encoder of one stream of a run.

    If a tool call needs approval, the stream ends, because clients of the AI SDK and AG-UI send the
    decision in a new request. The response to the new request is a second stream of the run, which
    begins after event ``started.after``. The encoder of the second stream also reads the earlier
    events, without output, to restore its state. If another run continues the turn, all its events
    are new.
    """

    def __init__(self, started: FrontendRun) -> None:
        super().__init__(started.run)
        self.is_suspended = False
        """Whether the stream must end now, because a tool call waits for the decision of this
        client.
        """
        self._block_id = ""  # of the open block
        self._delta_head = b""  # the constant bytes of a delta; the text follows them
        self._source = started.run  # of the current event
        self._after = started.after
        self._number = 0  # number of the current event in its run

    @abstractmethod
    def suspension(self) -> bytes:
        """Return the bytes that end the stream while a tool call waits for a decision."""

    def switch_to(self, run: Run) -> None:
        """Prepare for events of ``run``: the current run, or the run that continues it."""
        if run is not self._source:
            self._source = run
            self._after = 0

    def encode(self, batch: Batch) -> bytes:
        frames = []
        for number, event in enumerate(batch.events, batch.first):
            if self.is_suspended:
                break
            self._number = number
            data = self.encode_parts(self._reader.read(event))
            if number > self._after:
                frames.append(data)
        return b"".join(frames)

    def closing(self) -> bytes:
        if self.is_suspended:
            return self.close_block() + self.suspension()
        return super().closing()

    def approval(self, part: Approval) -> bytes:
        """Suspend the stream if the request is new and still waits. Return no bytes."""
        is_new = self._number > self._after
        self.is_suspended = is_new and part.confirmation_id == self.run.latest.pending
        return b""

    def assign_block_id(self, delta_type: str, id_field: str) -> str:
        """Assign an ID to the block that starts, and return it.

        ``delta_type`` is the type of its deltas, which have the ID in the field ``id_field``. A
        second stream of the run assigns the same IDs.
        """
        self._block_id = f"{self._source.run_id}-{self._number}"
        head = orjson.dumps({"type": delta_type, id_field: self._block_id})
        self._delta_head = b'data: %s,"delta":' % head.removesuffix(b"}")
        return self._block_id

    def delta(self, part: Text | Reasoning) -> bytes:
        return b"%s%s}\n\n" % (self._delta_head, orjson.dumps(part.text))


class _StreamEnded(Exception):
    """Signal that the stream ends, although the run continues."""


class InteractiveResponse(EncodedResponse):
    """Stream of a run for a frontend.

    The response starts at once, and ends also when a tool call needs approval.
    """

    def __init__(self, encoder: InteractiveEncoder, ping_seconds: float = PING_SECONDS) -> None:
        super().__init__(encoder, ping_seconds=ping_seconds)
        self._encoder: InteractiveEncoder = encoder

    async def send_events(self, send: Send) -> None:
        try:
            await self._send(send, b"")
            with suppress(_StreamEnded):
                await super().send_events(send)
        finally:
            latest = self._run.latest
            # The client leaves to decide, which must not cancel the run.
            latest.awaited_decision = latest.pending

    async def _receive(self, send: Send, run: Run, batch: Batch | None) -> None:
        self._encoder.switch_to(run)
        await super()._receive(send, run, batch)
        if self._encoder.is_suspended:
            raise _StreamEnded
