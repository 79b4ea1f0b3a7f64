"""Tool loop of a turn: rounds of model calls and tool calls, with their limits."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from mochi_server.chat.answer_builder import AnswerBuilder
from mochi_server.chat.model_call import ModelCall
from mochi_server.chat.turn_result import snapshot
from mochi_server.chat.turn_writer import TurnWriter, interrupted_outcome
from mochi_server.errors import FormatNotMet, MochiError, ToolNotCalled
from mochi_server.events import ChatEvent, ContentDelta, Publish, TokenLogprobs, ToolContinuationStart, TurnWarning
from mochi_server.sessions.session import user_message
from mochi_server.sessions.types import Message
from mochi_server.tools.toolbox import Toolbox, ToolInvocation, ToolOutcome

CheckAnswer = Callable[[Mapping[str, Any], str], Awaitable[Mapping[str, str]]]
"""Check of a text with a JSON schema. Returns an ``error``, or the reason why it is ``unchecked``, or nothing."""


@dataclass(frozen=True, slots=True)
class ToolLoopLimits:
    """Limits of a tool loop. At ``rounds`` or ``identical_calls`` in a row, the model must answer without tools."""

    rounds: int = 50
    identical_calls: int = 3
    calls_per_round: int = 128  # maximum number of distinct calls in a round; further calls are skipped
    rounds_setting: str = "MOCHI_MAX_TOOL_ITERATIONS"  # environment variable that sets `rounds`


@dataclass
class ToolLoop:
    """Tool loop of one turn. ``writer`` stores complete messages; ``publish`` receives the events."""

    model_call: ModelCall
    writer: TurnWriter
    toolbox: Toolbox
    limits: ToolLoopLimits
    publish: Publish
    may_announce: bool = False  # whether a first answer without calls may announce calls
    parallel_calls: bool = True  # whether an answer may call several tools; else only the first call counts
    check_answer: CheckAnswer | None = None  # check of the last answer with the JSON schema of the turn
    resumed_calls: Sequence[ToolInvocation] = ()  # calls of a parked turn, which run first
    known_outcome: Callable[[ToolInvocation], ToolOutcome | None] = lambda _: None
    """Function that returns the outcome of a call that must not run again, or None."""
    _previous_call: ToolInvocation | None = None
    _identical_calls: int = 0

    async def run(self, reminders: Sequence[Message] = ()) -> None:
        """Run until the model answers without calls. The ``reminders`` follow the history and are never stored."""
        resumed = list(self.resumed_calls)
        for rounds_left in reversed(range(self.limits.rounds)):
            calls, resumed = resumed or await self._call_model(reminders), []
            if not calls:
                if not self.may_announce or self.writer.outcomes or rounds_left == 0:
                    return
                self.may_announce = False
                self.publish([ContentDelta("")])
                continue
            have_own_events = await self._run_calls(calls)
            if self.writer.client_tool_calls:
                return
            if not have_own_events:
                self.publish([ToolContinuationStart()])
            if self._identical_calls >= self.limits.identical_calls:
                break
        reason, setting = f"made {self.limits.rounds} rounds of tool calls", self.limits.rounds_setting
        if self._identical_calls >= self.limits.identical_calls:
            reason, setting = f"made the same tool call {self._identical_calls} times", "MOCHI_MAX_IDENTICAL_TOOL_CALLS"
        text = f"The model {reason} and now answers without tools. Change the limit with {setting}."
        self.publish([TurnWarning("TOOL_LIMIT_REACHED", text)])
        await self.answer_without_tools(reminders)  # so that the user gets an answer

    async def answer_without_tools(self, reminders: Sequence[Message] = ()) -> None:
        """Request one answer without offering tools. Tool calls in that answer are ignored."""
        await self._call_model(reminders, offers_tools=False)

    async def _call_model(self, reminders: Sequence[Message], *, offers_tools: bool = True) -> list[ToolInvocation]:
        answer = await self._request(reminders, self.toolbox.schemas() if offers_tools else [])
        if not offers_tools:
            answer.tool_calls.clear()
        elif answer.skipped_calls and self.parallel_calls:
            text = (
                f"The model made more than {self.limits.calls_per_round} distinct tool calls in one round. "
                f"Skipped calls: {answer.skipped_calls}. Raise the limit with MOCHI_MAX_TOOL_CALLS_PER_ROUND."
            )
            self.publish([TurnWarning("TOOL_CALLS_LEFT_OUT", text)])
        # The calls are registered before they are stored, because every stored call needs a result.
        calls = answer.calls(len(self.writer.outcomes))
        self.writer.expect_results(calls)
        if not answer.tool_calls:
            await self._repair(answer)
        await self.writer.add(answer.message(), last=not answer.tool_calls)
        return calls

    async def _repair(self, answer: AnswerBuilder) -> None:
        """Replace an answer that does not fit the turn's schema, and publish a snapshot. Raises ``FormatNotMet``."""
        first, is_cut = answer.content, answer.done_reason == "length"  # the client has limited the answer
        if is_cut or not (problem := await self._problem(first)):
            return
        try:
            answer.replace(*await self.model_call.repair(first, problem))
        except MochiError as error:
            raise FormatNotMet(self.model_call.name, error.message.rstrip("."), first) from error
        if problem := await self._problem(answer.content):
            raise FormatNotMet(self.model_call.name, problem, answer.content)
        self.publish([snapshot([*self.writer.stored, answer.message()])])

    async def _problem(self, text: str) -> str:
        """Return why a text does not fit the schema, or an empty text. Publish a warning if it cannot be checked."""
        if self.check_answer is None or self.model_call.schema is None:
            return ""
        result = await self.check_answer(self.model_call.schema, text)
        if reason := result.get("unchecked"):
            self.model_call.warn("FORMAT_NOT_CHECKED", f"The server cannot check the format of the answer: {reason}.")
        return result.get("error", "")

    async def _request(
        self, reminders: Sequence[Message], schemas: list[dict[str, Any]], format: dict[str, Any] | None = None
    ) -> AnswerBuilder:
        """Request an answer from the model and publish its text. ``format`` overrides the format of the turn."""
        answer = AnswerBuilder(self.model_call.name, self._receive, self.limits.calls_per_round)
        self.writer.answer = answer
        history, start = self.writer.messages.extended(reminders), self.writer.turn_start
        try:
            await self.model_call.send(history, schemas, start, answer.feed, answer_id=answer.message_id, format=format)
        finally:
            self.writer.first_chunks[answer.message_id] = answer.first_chunk
        if not self.parallel_calls:
            del answer.tool_calls[1:]
        return answer

    def _receive(self, events: list[ChatEvent]) -> None:
        self.writer.schedule_flush()
        self.publish(events)

    async def _run_calls(self, calls: list[ToolInvocation]) -> bool:
        """Run tool calls in order and publish their results. Return whether all tools published events of their own."""
        have_own_events = True
        for call in calls:
            try:
                outcome = await self._run_call(call)
            except asyncio.CancelledError:
                if call.progress.is_announced:
                    self.publish([interrupted_outcome(call).event()])
                raise
            if outcome.runs_on_client:
                self.writer.return_to_client(call)
                continue
            try:
                await self.writer.add_result(call, outcome)
            finally:  # even if the turn is cancelled meanwhile
                if not outcome.has_own_events:
                    self.publish([outcome.event()])
                    have_own_events = False
        return have_own_events

    async def _run_call(self, call: ToolInvocation) -> ToolOutcome:
        previous, self._previous_call = self._previous_call, call
        is_same = previous is not None and (previous.name, previous.arguments) == (call.name, call.arguments)
        self._identical_calls = self._identical_calls + 1 if is_same else 1
        if self._identical_calls > self.limits.identical_calls:
            call = replace(call, defect="The call was not run: the same call was made too often. Change its arguments.")
        return self.known_outcome(call) or await self.toolbox.run(call, self.publish)


_INSTRUCTION = (
    "Call one of these functions now. Answer only with a JSON object that has the fields `name`, the name of the "
    "function, and `arguments`, its arguments."
)
_TEXT = (ContentDelta, TokenLogprobs)


@dataclass
class ForcedCallLoop(ToolLoop):
    """Tool loop whose first answer must call a tool. A text is dropped, and the model is called once more."""

    _is_first: bool = True
    _held_events: list[ChatEvent] | None = None  # text that is published only if a tool is called

    async def _request(
        self, reminders: Sequence[Message], schemas: list[dict[str, Any]], format: dict[str, Any] | None = None
    ) -> AnswerBuilder:
        if not self._is_first:
            return await super()._request(reminders, schemas, format)
        self._is_first, self._held_events = False, []
        names = [schema["function"]["name"] for schema in schemas]
        answer = await super()._request(reminders, schemas, format)
        if answer.calls_any(names):
            held, self._held_events = self._held_events, None
            if held:
                self.publish(held)
            return answer
        instruction = f"{_INSTRUCTION}\n\n{orjson.dumps([schema['function'] for schema in schemas]).decode()}"
        answer = await super()._request([*reminders, user_message(instruction)], [], call_format(schemas))
        self._held_events = None
        # Some models call the tool in spite of the format.
        if not answer.calls_any(names) and not answer.replace_text_by_call(names):
            self.writer.answer = None  # the text is not stored
            raise ToolNotCalled(self.model_call.name, is_cut=answer.done_reason == "length")
        return answer

    def _receive(self, events: list[ChatEvent]) -> None:
        if self._held_events is not None:
            self._held_events += [event for event in events if isinstance(event, _TEXT)]
            events = [event for event in events if not isinstance(event, _TEXT)]
        if events:
            super()._receive(events)


def call_format(schemas: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a JSON schema that permits a call of exactly one tool. It has their definitions at its top level."""
    definitions: dict[str, Any] = {}
    calls = []
    for index, schema in enumerate(schemas):
        function, prefix = schema["function"], f"{index}."
        parameters = _renamed(function["parameters"], prefix)
        for key in ("$defs", "definitions"):
            if isinstance(found := parameters.pop(key, None), dict):
                definitions |= {prefix + name: value for name, value in found.items()}
        properties = {"name": {"type": "string", "enum": [function["name"]]}, "arguments": parameters}
        calls.append({"type": "object", "properties": properties, "required": ["name", "arguments"]})
    root: dict[str, Any] = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return {**root, "$defs": definitions} if definitions else root


def _renamed(schema: Any, prefix: str) -> Any:
    """Return a copy of a tool's schema. Add ``prefix`` to the name of the definition in each reference."""
    if isinstance(schema, list):
        return [_renamed(item, prefix) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {key: _renamed(value, prefix) for key, value in schema.items()}
    if isinstance(reference := copy.get("$ref"), str) and reference.startswith(("#/$defs/", "#/definitions/")):
        copy["$ref"] = f"#/$defs/{prefix}{reference.split('/', 2)[2]}"
    return copy
