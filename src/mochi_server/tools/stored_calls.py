"""Tool calls and their results in stored messages."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mochi_server.sessions.history import INTERRUPTED
from mochi_server.sessions.types import (
    AssistantMessage,
    Message,
    ToolCall,
    ToolCallFunction,
    ToolMessage,
    UnfinishedCalls,
    tool_calls_of,
)
from mochi_server.tools.toolbox import DecidedBy, ToolInvocation, ToolOutcome, failed
from mochi_server.util.clock import new_id, now

_INTERRUPTED_RUNNING = (
    "The turn was interrupted while this call was running. The call may have taken effect."
)
_UNKNOWN = (
    "This call was interrupted, the outcome is unknown: the server stopped while the call was "
    "running."
)


def open_calls(messages: Sequence[Message]) -> list[ToolInvocation]:
    """Return the calls of the last answer in the messages of a turn that have no result, in
    order.

    Calls that the client runs are omitted.
    """
    open_: list[ToolInvocation] = []
    results = 0
    for message in messages:
        if message["role"] == "assistant":
            client_calls = message.get("client_tool_calls") or ()
            open_ = [call for call in calls_in(message, results) if call.id not in client_calls]
        elif message["role"] == "tool":
            results += 1
            for call in open_:
                if call.id == message.get("tool_call_id"):
                    open_.remove(call)
                    break  # several calls can have the same ID
    return open_


def all_calls(messages: Sequence[Message]) -> list[ToolInvocation]:
    """Return all calls in the messages of a turn, in order, also those that the client runs."""
    calls: list[ToolInvocation] = []
    results = 0
    for message in messages:
        if message["role"] == "tool":
            results += 1
        else:
            calls += calls_in(message, results)
    return calls


def returned_calls(answer: AssistantMessage) -> list[ToolInvocation]:
    """Return the tool calls of a stored answer that the client must run."""
    return [call for call in calls_in(answer) if call.id in (answer.get("client_tool_calls") or ())]


def calls_in(answer: Message, first: int = 0) -> list[ToolInvocation]:
    """Return the tool calls of a message, numbered within the turn from ``first``."""
    calls = enumerate(tool_calls_of(answer), first)
    return [
        ToolInvocation(
            n,
            call["id"],
            call["function"]["name"],
            call["function"]["arguments"],
            defect=call["function"].get("defect"),
            raw_arguments=call["function"].get("raw_arguments"),
        )
        for n, call in calls
    ]


def stored_outcomes(messages: Sequence[Message]) -> list[ToolOutcome]:
    """Return the outcomes of the tool calls in the messages of a turn.

    They lack the images, the progress of the calls, and whether the calls were interrupted.
    """
    arguments: dict[str, dict[str, Any]] = {}
    outcomes: list[ToolOutcome] = []
    for message in messages:
        if message["role"] != "tool":
            arguments |= {call.id: call.arguments for call in calls_in(message)}
            continue
        call_id, name = str(message.get("tool_call_id")), str(message.get("tool_name"))
        used = message.get("arguments", arguments.get(call_id, {}))
        call = ToolInvocation(len(outcomes), call_id, name, used)
        outcome = ToolOutcome(
            call,
            message["content"],
            success=bool(message.get("success")),
            error_code=message.get("error_code"),
            execution_time=message.get("execution_time", 0.0),
            decided_by=message.get("decided_by", "policy"),
            result=message.get("result"),
        )
        outcomes.append(outcome)
    return outcomes


def interrupted_outcome(call: ToolInvocation) -> ToolOutcome:
    """Return the outcome of a tool call that the end of the turn has interrupted."""
    progress = call.progress
    text = INTERRUPTED if progress.running is None else _INTERRUPTED_RUNNING
    if progress.partial_output:
        text = f"{progress.partial_output}\n\n{text}"
    outcome = failed(progress.running or call, text, decided_by=progress.decided_by)
    return replace(outcome, is_interrupted=True)


def lost_outcome(call: ToolInvocation, *, decided_by: DecidedBy) -> ToolOutcome:
    """Return the outcome of a call that was running when its server ended."""
    outcome = failed(call, _UNKNOWN, decided_by=decided_by)
    return replace(outcome, is_interrupted=True)


def tool_message(call: ToolInvocation, outcome: ToolOutcome) -> ToolMessage:
    message: ToolMessage = {
        "role": "tool",
        "content": outcome.content,
        "tool_name": call.name,
        "tool_call_id": call.id,
        "message_id": new_id(),
        "timestamp": now(),
        "success": outcome.success,
        "decided_by": outcome.decided_by,
    }
    if outcome.images:
        message["images"] = [image.reference for image in outcome.images]
    if outcome.error_code is not None:
        message["error_code"] = outcome.error_code
    if outcome.is_interrupted:
        message["interrupted"] = True
    progress = outcome.call.progress
    if progress.confirmation_id is not None:
        message["confirmation_id"] = progress.confirmation_id
    if progress.agent_name is not None:
        message["agent_name"] = progress.agent_name
    if progress.agent_session_id is not None:
        message["agent_session_id"] = progress.agent_session_id
    if outcome.call.arguments != call.arguments:
        message["arguments"] = outcome.call.arguments
    if outcome.result is not None and outcome.result != outcome.content:
        message["result"] = outcome.result
    if outcome.execution_time:
        message["execution_time"] = outcome.execution_time
    return message


def placeholder_result(messages: Sequence[Message]) -> UnfinishedCalls | None:
    """Return an interrupted result of the first open call in the messages of a turn, with the other
    open calls.

    From it, crash recovery makes the results of all of them. Return None if all calls have results.
    """
    calls = open_calls(messages)
    if not calls:
        return None
    first, *others = calls
    remaining: list[ToolCall] = []
    for call in others:
        function: ToolCallFunction = {"index": call.index, "name": call.name, "arguments": {}}
        remaining.append({"id": call.id, "function": function})
    result = tool_message(first, interrupted_outcome(first))
    return {**result, "tool_calls": remaining}
