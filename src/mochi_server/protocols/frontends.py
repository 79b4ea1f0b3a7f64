"""Turns of the AI SDK and AG-UI: one route starts turns and applies decisions, and a run can have
several streams.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pydantic import Field

from mochi_server import errors
from mochi_server.chat.approvals import requesting_run
from mochi_server.chat.idempotency import keyed_indexes
from mochi_server.chat.run import Run
from mochi_server.chat.turn_input import GenerationOptions, TurnInput
from mochi_server.container import Services
from mochi_server.protocols.new_messages import to_turn
from mochi_server.protocols.sent_messages import SentMessages
from mochi_server.schemas.common import OnDisconnect, UnstoredBody
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.settings import Options
from mochi_server.sessions.turn import Approval, Decision
from mochi_server.sessions.types import Format, KeepAlive, Think
from mochi_server.web.routes import STORAGE_ERRORS, Responses, responses

_ERRORS = (
    errors.SessionNotFound,
    errors.ConfirmationNotFound,
    errors.ModelNotFound,
    errors.SessionBusy,
    errors.ConfirmationStale,
    errors.ConfirmationResolved,
    errors.ConfirmationTimeout,
    errors.SessionConflict,
    errors.ValidationFailed,
    errors.RateLimited,
    errors.ShuttingDown,
    errors.ServerLost,
    *STORAGE_ERRORS,
)


class FrontendOptions(UnstoredBody):
    """Options of a turn. Unknown fields are ignored."""

    think: Think = None
    options: Options | None = Field(
        default=None, description="Ollama's options. They override the session's options."
    )
    format: Format | None = Field(
        default=None, description="Format of the answer: `json` or a JSON schema."
    )
    keep_alive: KeepAlive = Field(
        default=None, description="How long Ollama keeps the model loaded."
    )
    on_disconnect: OnDisconnect = "cancel"

    @property
    def generation(self) -> GenerationOptions:
        return GenerationOptions(self.think, self.options, self.format, self.keep_alive)


@dataclass(frozen=True, slots=True)
class FrontendRun:
    """Run to stream. The stream begins with the event that follows event number ``after``."""

    run: Run
    after: int = 0
    waiting: Approval | None = None
    """Request for approval that waits when the stream begins, or None."""


async def start(
    services: Services,
    session_id: str,
    turn: TurnInput,
    sent: SentMessages,
    *,
    stops_waiting_turn: bool = False,
) -> FrontendRun:
    """Start the turn that answers the sent messages.

    If ``stops_waiting_turn`` is true, a turn that waits for a decision is stopped first if it is
    suspended or has no subscribers, unless the request repeats an earlier one. Raises
    ``MochiError`` if the turn cannot start, for example because another turn is running.
    """
    conversation = services.conversations.stored(session_id)
    session = await conversation.store.load(session_id)
    if stops_waiting_turn and not keyed_indexes(session, turn.key):
        await _stop_waiting_turn(services, session, turn, sent)
        session = await conversation.store.load(session_id)
    try:
        run = await services.turns.start(conversation, to_turn(session, sent, turn))
    except errors.IdempotencyKeyReused:  # some clients use an ID for several messages
        turn = replace(turn, key=None)
        return await start(services, session_id, turn, sent, stops_waiting_turn=stops_waiting_turn)
    return FrontendRun(run)


async def _stop_waiting_turn(
    services: Services, session: ChatSession, turn_input: TurnInput, sent: SentMessages
) -> None:
    turn = session.metadata.turn
    if turn is None or turn.state != "waiting_for_approval":
        return
    run = await services.turns.find(session.session_id)
    if run is not None and (run.is_suspended or not run.subscribers):
        # a refused message must not stop a turn
        new_input = to_turn(session, sent, turn_input)
        await services.turns.check_before_denial(run.conversation, new_input)
        await services.turns.stop(session.session_id)


async def find_running(services: Services, session_id: str) -> FrontendRun | None:
    """Return the running or suspended turn of a session, or a turn whose server was lost, or None.

    Raises ``SessionNotFound``.
    """
    run = await services.turns.find(session_id)
    if run is None:
        return None
    is_lost = run.is_stored and isinstance(run.failure, errors.ServerLost)
    return None if run.has_ended and not is_lost else FrontendRun(run)


async def decide(
    services: Services, session_id: str, decisions: Mapping[str, Decision]
) -> FrontendRun:
    """Apply decisions for tool calls, by confirmation ID, and return the run to stream.

    Decisions about calls that already have one or have timed out are ignored, so a client can
    repeat the request. Raises ``MochiError`` if a decision cannot be applied.
    """
    run = await services.turns.find(session_id)
    requested = {} if run is None else run.log.confirmations
    pending = None if run is None else run.pending
    # The pending call comes last, so that an unknown ID fails before a decision is applied.
    for confirmation_id in sorted(decisions, key=lambda each: each == pending):
        if confirmation_id in requested and confirmation_id != pending:
            continue
        decision = decisions[confirmation_id]
        try:
            run, _ = await services.turns.decide(session_id, confirmation_id, decision)
        except (errors.ConfirmationResolved, errors.ConfirmationTimeout):
            if run is None or requesting_run(confirmation_id) not in run.run_ids:
                raise
    if run is None:
        raise errors.ConfirmationNotFound(next(iter(decisions)))
    session = await services.turns.store.load(session_id)
    turn = session.metadata.turn
    waiting = None
    if turn is not None:
        waiting = turn.waiting
    return FrontendRun(run, _position(run, decisions), waiting)


def _position(run: Run, decisions: Mapping[str, Decision]) -> int:
    """Return the number of the event after which the stream begins: the last request for one of
    the decisions.

    After a restart, the log of a suspended turn may lack these requests. Then the stream begins
    with the request that waits.
    """
    requests = run.log.confirmations
    known = [requests[each] for each in decisions if each in requests]
    if known:
        return max(known)
    if run.is_stored:
        return 0
    if run.continued_after:
        return run.continued_after
    waiting = requests.get(run.pending or "", run.log.last + 1)
    return waiting - 1


def stream_responses(description: str, *kinds: type[errors.MochiError]) -> Responses:
    """Return FastAPI's ``responses`` argument for a route that streams, and can return errors of
    ``kinds``.

    Without ``kinds``, the route starts turns and applies decisions.
    """
    streamed = {
        "description": description,
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
    return {200: streamed, **responses(*(kinds or _ERRORS))}
