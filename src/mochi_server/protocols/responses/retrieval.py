"""Retrieval of responses by ID: from memory, or from the turn of a session."""

import asyncio
import re
from collections.abc import Sequence

from mochi_server.chat.conversation import Conversation
from mochi_server.chat.run import Run
from mochi_server.chat.turn_input import TurnInput
from mochi_server.chat.turn_result import TurnResult
from mochi_server.container import Services
from mochi_server.errors import ResponseNotFound, SessionNotFound
from mochi_server.protocols.agent_models import PREFIX
from mochi_server.protocols.encoded_response import collected
from mochi_server.protocols.parts import End, Json, Part, Reasoning, Text
from mochi_server.protocols.responses.encoder import ResponseEncoder, stable_id
from mochi_server.protocols.responses.items import to_items
from mochi_server.services.recent_responses import BackgroundResponse, RecentResponses
from mochi_server.sessions.history import History
from mochi_server.sessions.session import AGENT_NAME, ChatSession, ends_turn
from mochi_server.sessions.turn import answer_message_id, first_answer_of_turn
from mochi_server.sessions.types import AssistantMessage, Message
from mochi_server.tools.stored_calls import stored_outcomes
from mochi_server.util.clock import timestamp

_ID = re.compile(r"resp_(?P<session>[0-9a-f]{10})_(?P<start>[0-9]{1,9})_(?P<turn>[0-9a-f]{10})")
"""ID of a response in a session. ``start`` is the index of its first message when it began."""
_STATUS = {"running": "failed", "stopped": "cancelled"}
"""Status of a response by the stored state of its run, if the names differ."""
_FAILED = {
    "code": "server_error",
    "message": "The turn failed or was stopped, or its server ended. Send the request again.",
}


def complete_in_background(known: RecentResponses, encoder: ResponseEncoder) -> Json:
    """Store the response of a run that has started.

    When the run has ended, the encoder completes the response and stores it again. Return a copy of
    its present state.
    """

    async def complete() -> Json:
        return encoder.complete(await collected(encoder.run))

    response = encoder.response
    known.add(response)
    completion = asyncio.ensure_future(complete())
    known.add_background(response["id"], BackgroundResponse(encoder.run, completion))
    return {**response, "output": []}


async def find_response(services: Services, response_id: str) -> Json:
    """Return a response. Raises ``ResponseNotFound``, also if its session was deleted."""
    response = services.responses.get(response_id)
    match = _ID.fullmatch(response_id)
    if match is not None:
        found = await services.conversations.load(match["session"])
        if found is None:
            response = None
        elif response is None:
            conversation, session = found
            response = await _from_session(services, conversation, session, response_id)
    if response is None:
        raise ResponseNotFound(response_id)
    return response


async def input_items(services: Services, response_id: str) -> list[Json]:
    """Return the items before the output of a response, oldest first, with their IDs.

    Raises ``ResponseNotFound``.
    """
    await find_response(services, response_id)
    items = services.responses.input_of(response_id)
    if items is None:
        items = await _items_in_session(services, response_id)
    listed = []
    for index, item in enumerate(items):
        fields = {"id": stable_id("in", response_id, index), **item}
        fields["type"] = item.get("type") or "message"
        if isinstance(item.get("content"), str):  # clients expect a list
            part = "output_text" if item.get("role") == "assistant" else "input_text"
            fields["content"] = [{"type": part, "text": item["content"]}]
        listed.append(fields)
    return listed


async def _items_in_session(services: Services, response_id: str) -> list[Json]:
    """Return the messages before the first answer of a turn as items.

    Raises ``ResponseNotFound``.
    """
    match = _ID.fullmatch(response_id)
    found = None if match is None else await services.conversations.load(match["session"])
    if match is None or found is None:
        raise ResponseNotFound(response_id)
    _, session = found
    history = session.history
    first_answer = first_answer_of_turn(history, match["turn"])
    if first_answer is not None:
        return to_items(history[:first_answer])
    end = int(match["start"])
    while end < len(history) and history[end]["role"] != "assistant":
        end += 1
    return to_items(history[:end])


async def cancel(services: Services, response_id: str) -> None:
    """Stop the turn of a response, if it is running or suspended, and wait for its end.

    The caller ensures that it is a response in the background.
    """
    run = await _running_turn(services, response_id)
    if run is not None and run.conversation.kind == "session":
        await services.turns.stop(run.session_id)
    elif run is not None:
        await run.stop()
    await services.responses.stop(response_id)


async def _running_turn(services: Services, response_id: str) -> Run | None:
    """Return the latest run of the turn of a response, or None if the turn has ended.

    The turn can also be suspended, or go on at another server. The result is None for a response
    without a session.
    """
    match = _ID.fullmatch(response_id)
    if match is None:
        return None
    try:
        run = await services.turns.find(match["session"], match["turn"])
    except SessionNotFound:  # a session of an agent, whose turns are never suspended
        key = services.conversations.agent_chat(match["session"]).run_key
        run = services.turns.table.find(key, match["turn"])
    if run is not None and not run.has_ended and match["turn"] in run.run_ids:
        return run
    return None


async def _from_session(
    services: Services, conversation: Conversation, session: ChatSession, response_id: str
) -> Json | None:
    """Return the response that a turn of a session stored, or None if the session has no
    such turn.
    """
    turn_id = response_id.rpartition("_")[2]
    messages = _turn_messages(session.history, turn_id)
    answers = [message for message in messages if message["role"] == "assistant"]
    state = _stored_state(session, turn_id, answers)
    if state is None:
        return None
    fields = {"id": response_id, "model": session.model, "store": True}
    fields["background"] = None  # the session does not store it
    first_answer = first_answer_of_turn(session.history, turn_id)
    if first_answer is not None:
        sent = session.history[max(first_answer - 1, 0)]
        fields["created_at"] = int(timestamp(sent["timestamp"]))
        fields["model"] = answers[-1]["model"]
    is_of_agent = conversation.kind == "agent_chat"
    if is_of_agent:
        agent = session.metadata.extra.get(AGENT_NAME, "")
        fields["model"] = f"{PREFIX}{agent}"
    running = await _running_turn(services, response_id)
    run = running or Run(conversation, TurnInput(), [turn_id])
    encoder = ResponseEncoder(run, fields)
    if running is not None:
        return encoder.response
    parts = _answer_parts(answers, plans=is_of_agent)
    result = TurnResult(stored=messages, outcomes=stored_outcomes(messages))
    response = encoder.complete([*parts, End(result)])
    match _STATUS.get(state, state):
        case "completed":
            return response
        case "failed":
            return response | {"status": "failed", "error": _FAILED}
        case status:
            return response | {"status": status, "error": None}


def _stored_state(
    session: ChatSession, turn_id: str, answers: Sequence[AssistantMessage]
) -> str | None:
    """Return the state of a turn, or None if the session has neither its state nor an answer of it.

    The state of a completed turn does not count without its answers. The session stores the state
    of its latest turn only. An earlier turn that was stopped counts as failed.
    """
    turn = session.metadata.turn
    if turn is not None and turn_id in turn.run_ids and turn.state != "completed":
        return turn.state
    if not answers:
        return None
    return "completed" if ends_turn(answers[-1]) else "failed"


def _turn_messages(history: History, turn_id: str) -> list[Message]:
    """Return the answers of a turn, which are numbered in their IDs, and the results of the tools
    that the server has run for them.
    """
    messages: list[Message] = []
    answers = 0
    answer: AssistantMessage | None = None  # the one before the message, if it is of the turn
    for message in history:
        if message["role"] == "assistant":
            answer = None
            if message["message_id"] == answer_message_id(turn_id, answers):
                answers += 1
                answer = message
                messages.append(message)
        elif message["role"] == "tool" and answer is not None:
            client_calls = answer.get("client_tool_calls") or ()
            if message.get("tool_call_id") not in client_calls:
                messages.append(message)
    return messages


def _answer_parts(answers: Sequence[AssistantMessage], *, plans: bool) -> list[Part]:
    """Return the text and the reasoning of the answers in a turn as parts.

    ``plans`` states whether they are from an agent. The first one is its plan, and the only
    reasoning.
    """
    parts: list[Part] = []
    seen: set[type[Part]] = set()
    for number, answer in enumerate(answers):
        reasoning = answer.get("thinking")
        text = answer["content"]
        if plans:
            reasoning = None
            if number == 0:
                reasoning = text
                text = ""
        for part_class, content in ((Reasoning, reasoning), (Text, text)):
            if content:
                parts.append(part_class(content, is_separate=part_class in seen))
                seen.add(part_class)
    return parts
