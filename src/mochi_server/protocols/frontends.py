"""What the AI SDK and AG-UI share: one route starts turns and applies decisions, and a run can have
several streams.
"""

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import orjson
from starlette.types import Send

from mochi_server import errors
from mochi_server.chat.approvals import requesting_run
from mochi_server.chat.event_log import Batch
from mochi_server.chat.run import Run
from mochi_server.chat.turn_input import TurnInput
from mochi_server.constants import PING_SECONDS
from mochi_server.container import Services
from mochi_server.protocols.conversation import SentMessages, to_turn
from mochi_server.protocols.encoder import BlockEncoder, EncodedResponse
from mochi_server.protocols.parts import Approval, Reasoning, Text, TextEnd
from mochi_server.sessions.turn import Decision
from mochi_server.web.routes import STORAGE_ERRORS, Responses, responses

_ERRORS = (
    *(
        errors.SessionNotFound,
        errors.ConfirmationNotFound,
        errors.ModelNotFound,
        errors.SessionBusy,
    ),
    *(errors.ConfirmationStale, errors.ConfirmationResolved, errors.ConfirmationTimeout),
    *(
        errors.SessionConflict,
        errors.ValidationFailed,
        errors.ShuttingDown,
        errors.ServerLost,
        *STORAGE_ERRORS,
    ),
)


@dataclass(frozen=True, slots=True)
class FrontendRun:
    """Run to stream. The stream begins with the event that follows event number ``after``."""

    run: Run
    after: int = 0


async def start(
    services: Services,
    session_id: str,
    turn: TurnInput,
    sent: SentMessages,
    *,
    withdraws: bool = False,
) -> FrontendRun:
    """Start the turn that answers the sent messages.

    If ``withdraws`` is true, a running turn that waits for a decision is stopped. Otherwise the
    session is busy. Raises ``MochiError`` if the turn cannot start.
    """
    if withdraws:
        run = await services.turns.find(session_id)
        if run is not None and (run.is_suspended or (run.client_will_return and run.pending)):
            services.turns.refuse_at_shutdown()  # a refused message must not stop a turn
            await services.turns.stop(session_id)
    conversation = services.conversations.stored(session_id)
    turn = to_turn(await conversation.store.load(session_id), sent, turn)
    run = await services.turns.start(conversation, turn)
    return FrontendRun(run)


async def running(services: Services, session_id: str) -> FrontendRun | None:
    """Return the running turn of a session, or a turn whose server was lost, or None.

    Raises ``SessionNotFound``.
    """
    run = await services.turns.find(session_id)
    if run is None or not (run.running or (run.is_stored and run.failure is not None)):
        return None
    return FrontendRun(run)


async def decide(
    services: Services, session_id: str, decisions: Mapping[str, Decision]
) -> FrontendRun:
    """Apply decisions for tool calls, by confirmation ID.

    The stream begins after the last of their requests.

    After a restart, the log of a parked turn may lack them. Then the stream begins with the request
    that waits. Decisions about calls that already have one or have timed out are ignored, so a
    client can repeat the request. Raises ``MochiError`` if a decision cannot be applied.
    """
    run = await services.turns.find(session_id)
    positions = {} if run is None else run.log.confirmations
    pending = None if run is None else run.pending
    # Unknown IDs come first, so that the request fails before it applies a decision.
    for confirmation_id in sorted(decisions, key=lambda each: each == pending):
        if confirmation_id not in positions or confirmation_id == pending:
            try:
                run, _ = await services.turns.decide(
                    session_id, confirmation_id, decisions[confirmation_id]
                )
            except (errors.ConfirmationResolved, errors.ConfirmationTimeout):
                if run is None or requesting_run(confirmation_id) not in (run.run_id, *run.earlier):
                    raise
    if run is None:
        raise errors.ConfirmationNotFound(next(iter(decisions)))
    known = [positions[each] for each in decisions if each in run.log.confirmations]
    waiting = run.log.confirmations.get(run.pending or "", run.log.last + 1)
    after = max(known, default=0 if run.is_stored else run.continued_after or waiting - 1)
    return FrontendRun(run, after)


def stream(description: str, *kinds: type[errors.MochiError]) -> Responses:
    """Return FastAPI's ``responses`` argument for a route that streams, and can return errors of
    ``kinds``.

    Without ``kinds``, the route starts turns and applies decisions.
    """
    streamed = {
        "description": description,
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
    return {200: streamed, **responses(*(kinds or _ERRORS))}


class InteractiveEncoder(BlockEncoder):
    """Encoder of one stream of a run.

    If a tool call needs approval, the stream ends, because clients of the AI SDK and AG-UI send the
    decision in a new request. The response to the new request is a second stream of the run, which
    begins after event ``started.after``. The encoder of the second stream also reads the earlier
    events, without output, to restore its state.
    """

    def __init__(self, started: FrontendRun) -> None:
        super().__init__(started.run)
        self.is_suspended = False
        """Whether the stream must end now, because a tool call waits for the decision of this
        client.
        """
        self._block_id = ""  # of the open block
        self._delta_head = b""  # the constant bytes of a delta; the text follows them
        self._after = started.after
        self._number = 0  # number of the current event

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
        return self.close_block() + self.suspension() if self.is_suspended else super().closing()

    def approval(self, part: Approval) -> bytes:
        self.is_suspended = (
            self._number > self._after and part.confirmation_id == self.run.latest.pending
        )
        return b""

    def text_end(self, _: TextEnd) -> bytes:
        return self.close_block()

    def assign_block_id(self, delta_type: str, id_field: str) -> str:
        """Assign an ID to the block that starts.

        Its deltas have this type, and the ID in this field. Return the ID.

        A second stream of the run has the same IDs.
        """
        self._block_id = f"{self.run.run_id}-{self._number}"
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
            self._run.client_will_return = (
                self._encoder.is_suspended or self._run.latest.pending is not None
            )

    async def _receive(self, send: Send, run: Run, batch: Batch | None) -> None:
        await super()._receive(send, run, batch)
        if self._encoder.is_suspended:
            raise _StreamEnded
