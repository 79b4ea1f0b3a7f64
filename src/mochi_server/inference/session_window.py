"""Context window of a session: its allocation for a turn, and its storage after the turn."""

import logging
from typing import Any

from mochi_server.errors import MochiError
from mochi_server.inference.gateway import ModelGateway
from mochi_server.inference.window_allocation import Allocation
from mochi_server.inference.window_registry import manual_window
from mochi_server.ollama.types import ModelInfo
from mochi_server.sessions.checkpoint import Checkpoint
from mochi_server.sessions.history import History
from mochi_server.sessions.session import (
    ChatSession,
    SessionMetadata,
    last_answer,
    previous_model,
    usage_tokens,
)
from mochi_server.sessions.store import SessionStore
from mochi_server.util.clock import now

logger = logging.getLogger(__name__)


def turn_allocation(
    gateway: ModelGateway,
    model: ModelInfo,
    session: ChatSession,
    history: History,
    answer_tokens: int = 0,
) -> Allocation:
    """Return the allocation for a turn, with the token counts of the last answer if they apply.

    ``history`` includes the new messages of the turn. The first window has room for an answer of
    ``answer_tokens``.
    """
    metadata = session.metadata
    previous = previous_model(history)
    allocation = gateway.allocate(
        model, metadata.context_window_config, previous_model=previous, answer_tokens=answer_tokens
    )
    answer = last_answer(history)
    is_compacted = Checkpoint.from_dict(metadata.compaction) is not None
    if answer is None or previous != session.model or is_compacted:
        return allocation
    allocation.usage = usage_tokens(answer) or 0
    allocation.counted = allocation.usage
    if answer.get("thinking"):  # it is not sent again
        allocation.counted = answer.get("prompt_eval_count") or 0
    return allocation


async def save_window(allocation: Allocation, session: ChatSession, store: SessionStore) -> None:
    """Store the window of the turn's requests with the session.

    Store nothing if a client has set the window, or has changed its configuration during the turn.
    Errors of the store are logged.
    """
    before = session.metadata.context_window_config
    decision = allocation.decision
    # A manual window is stored already.
    if decision is None or manual_window(allocation.model, before) is not None:
        return
    after = allocation.windows.adjusted(before, decision, now())
    if after == before:
        return

    def unless_changed(stored: SessionMetadata) -> dict[str, Any]:
        if stored.context_window_config != before:
            return {}
        return {"context_window_config": after}

    try:
        await store.patch(session.session_id, unless_changed)
    except MochiError as error:  # the turn does not fail, because its answer is stored
        logger.warning("Window not stored session_id=%s: %s", session.session_id, error.message)
