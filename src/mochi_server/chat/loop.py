"""Model, tool calls, results, model again, until there is an answer. Does not know who listens."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from mochi_server.chat.answer import Answer
from mochi_server.chat.transcript import Transcript
from mochi_server.events import ChatEvent, ToolContinuationStart
from mochi_server.ollama.stream import Line
from mochi_server.sessions.session import new_id, now
from mochi_server.sessions.types import Message
from mochi_server.tools.toolbox import Toolbox, ToolOutcome

ChatLines = Callable[[Mapping[str, Any]], AsyncGenerator[list[Line], None]]
"""Posts a chat payload and yields the answer in batches of lines."""

MakePayload = Callable[[Sequence[Message], list[dict[str, Any]]], Mapping[str, Any]]
"""The payload for a history and tool schemas."""


async def converse(
    model: str,
    transcript: Transcript,
    toolbox: Toolbox,
    *,
    chat_lines: ChatLines,
    payload: MakePayload,
    max_rounds: int,
    outcomes: list[ToolOutcome],
) -> AsyncGenerator[list[ChatEvent], None]:
    """Yield batches of events until the model has answered; every message is stored when it is whole.

    After ``max_rounds`` rounds of tool calls the model is asked once more without tools, so that the user gets
    an answer. ``outcomes`` collects how each call ended.
    """
    for round_number in range(max_rounds + 1):
        last = round_number == max_rounds
        answer = Answer(model)
        transcript.expect(answer)
        schemas = [] if last else toolbox.schemas()
        async with aclosing(chat_lines(payload(transcript.messages, schemas))) as batches:
            async for lines in batches:
                if events := answer.feed(lines):
                    transcript.progressed()
                    yield events
        if last:
            answer.tool_calls.clear()
        await transcript.add(answer.message(), last=not answer.tool_calls)
        if not answer.tool_calls:
            return
        for call in answer.calls(len(outcomes)):
            async with aclosing(toolbox.run(call)) as events_of_call:
                async for event in events_of_call:
                    if isinstance(event, ToolOutcome):
                        outcomes.append(event)
                        await transcript.add(_tool_message(event))
                        yield [event.event()]
                    else:
                        yield [event]
        yield [ToolContinuationStart()]


def _tool_message(outcome: ToolOutcome) -> Message:
    return {
        "role": "tool",
        "content": outcome.content,
        "tool_name": outcome.call.name,
        "tool_call_id": outcome.call.id,
        "message_id": new_id(),
        "timestamp": now(),
    }
