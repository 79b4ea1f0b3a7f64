"""Responses of one app by ID: those in memory, those in the background, and those that a session
contains.
"""

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import orjson
from cachetools import TTLCache
from pydantic import BaseModel

from mochi_server.chat.run import Run
from mochi_server.chat.turn_input import TurnInput
from mochi_server.chat.turn_result import TurnResult
from mochi_server.container import Services
from mochi_server.errors import ResponseNotFound, SessionNotFound
from mochi_server.protocols.encoder import collected
from mochi_server.protocols.parts import End, Json, Part, Reasoning, Text
from mochi_server.protocols.responses.encoder import ResponseEncoder
from mochi_server.sessions.caller import current_owner
from mochi_server.sessions.history import History
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import Message
from mochi_server.tools.stored_calls import returned_calls
from mochi_server.util.clock import timestamp

_OVERHEAD_BYTES = 300  # approximate memory of a value besides its bytes
_ID = re.compile(r"resp_([0-9a-f]{10})_([0-9]{1,9})_([0-9a-f]{10})")
_STATUS = {"running": "failed", "stopped": "cancelled"}
"""Status of a response by the stored state of its run, if the names differ."""
_FAILED = {
    "code": "server_error",
    "message": "The turn failed or its server ended. Send the request again.",
}


class RecentValues:
    """Values by owner and ID, for an hour.

    The least recently used ones are dropped beyond ``max_bytes``.
    """

    def __init__(self, max_bytes: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._values: TTLCache[tuple[str | None, str], bytes] = TTLCache(
            max_bytes, ttl=3600, timer=clock, getsizeof=lambda value: len(value) + _OVERHEAD_BYTES
        )

    def add(self, value_id: str, value: bytes) -> None:
        """Store a value, or replace the earlier value with this ID.

        A value that exceeds the limit is not stored.
        """
        key = current_owner(), value_id
        self._values.pop(key, None)
        with suppress(ValueError):
            self._values[key] = value

    def get(self, value_id: str) -> bytes | None:
        """Return a value, or None if it is unknown."""
        return self._values.get((current_owner(), value_id))


class Responses:
    """Responses of a running app.

    A response without a session is stored with its items and its conversation.
    """

    def __init__(self) -> None:
        self.items = RecentValues(32 * 1024 * 1024)
        self.conversations = RecentValues(64 * 1024 * 1024)  # by the ID of the response at the end
        self._recent = RecentValues(32 * 1024 * 1024)
        self._running: dict[str, tuple[Run, asyncio.Future[Json]]] = {}  # in the background

    def put(self, response: Json, conversation: Sequence[BaseModel] | None = None) -> None:
        """Store a response, or replace the earlier state of it.

        ``conversation`` has the items before its output.
        """
        self._recent.add(response["id"], orjson.dumps(response, default=str))
        if conversation is None or response["status"] == "failed":
            return
        for item in response["output"]:
            self.items.add(item["id"], orjson.dumps(item))
        items = [item.model_dump(exclude_none=True) for item in conversation]
        self.conversations.add(response["id"], orjson.dumps([*items, *response["output"]]))

    def run_in_background(self, encoder: ResponseEncoder) -> Json:
        """Store the response, and complete it when its run has ended.

        Return a copy of its present state.
        """

        async def complete() -> Json:
            return encoder.complete(await collected(encoder.run))

        response_id = encoder.response["id"]
        self.put(encoder.response)
        self._running[response_id] = encoder.run, (ending := asyncio.ensure_future(complete()))
        ending.add_done_callback(lambda _: self._running.pop(response_id))
        return {**encoder.response, "output": []}

    async def get(self, services: Services, response_id: str) -> Json:
        """Return a response. Raises ``ResponseNotFound``, also if its session was deleted."""
        response: Json | None = orjson.loads(self._recent.get(response_id) or b"null")
        if (match := _ID.fullmatch(response_id)) is not None:
            session = await _load(services, match[1])
            response = (
                None
                if session is None
                else response or await _from_session(services, session, response_id)
            )
        if response is None:
            raise ResponseNotFound(response_id)
        return response

    async def cancel(self, services: Services, response_id: str) -> None:
        """Stop the turn of a response in the background, if it is running or parked, and wait for
        its end.
        """
        if await _running_turn(services, response_id) is not None:
            await services.turns.stop(response_id.split("_")[1])
        if (running := self._running.get(response_id)) is not None:
            await running[0].stop()
            await asyncio.wait([running[1]])


async def _running_turn(services: Services, response_id: str) -> Run | None:
    """Return the latest run of a session if it runs or continues the turn of a response, or is
    parked, else None.
    """
    if (match := _ID.fullmatch(response_id)) is None:
        return None
    with suppress(SessionNotFound):  # a session of an agent, whose turns are never parked
        run = await services.turns.find(match[1], match[3])
        if run is not None and run.running and match[3] in (run.run_id, *run.earlier):
            return run
    return None


async def _load(services: Services, session_id: str) -> ChatSession | None:
    for store in (services.store, services.agent_chats):
        with suppress(SessionNotFound):
            return await store.load(session_id)
    return None


async def _from_session(services: Services, session: ChatSession, response_id: str) -> Json | None:
    """Return the response that a turn of a session stored, or None if the session has no
    such turn.
    """
    _, session_id, start, run_id = response_id.split("_")
    answers = _answers(session.history, int(start))
    turn = session.metadata.turn
    is_last = turn is not None and run_id in turn.run_ids
    if not is_last and not answers:
        return None
    # A killed run that answered a stored message again has stored nothing.
    state = (
        turn.state
        if turn is not None and is_last
        else "failed"
        if answers[-1].get("interrupted")
        else "completed"
    )
    fields = {"id": response_id, "model": session.model, "store": True, "background": True}
    if answers:
        fields |= {
            "created_at": int(timestamp(answers[0]["timestamp"])),
            "model": answers[-1]["model"],
        }
    run = Run(services.conversations.stored(session_id), TurnInput(), [run_id])
    encoder = ResponseEncoder(run, fields)
    if await _running_turn(services, response_id) is not None:
        return encoder.response
    response = encoder.complete(_parts(answers))
    status = _STATUS.get(state, state)
    changes = (
        {}
        if status == "completed"
        else {"status": status, "error": _FAILED if status == "failed" else None}
    )
    return response | changes


def _answers(history: History, start: int) -> list[Message]:
    """Return the messages of the model in the turn that begins at index ``start``."""
    answers: list[Message] = []
    for message in history[start:]:
        if answers and (message["role"] == "user" or answers[-1].get("client_tool_calls")):
            break
        if message["role"] == "assistant":
            answers.append(message)
    return answers


def _parts(answers: Sequence[Message]) -> list[Part]:
    parts: list[Part] = []
    for answer in answers:
        for kind, text in ((Reasoning, answer.get("thinking")), (Text, answer["content"])):
            if text:
                parts.append(kind(text, is_separate=any(isinstance(part, kind) for part in parts)))
    calls = returned_calls(answers[-1]) if answers else ()
    return [*parts, End(TurnResult(stored=answers, client_tool_calls=calls))]
