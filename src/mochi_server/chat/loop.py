"""Loop of a turn: one step after another, until the turn is complete."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from mochi_server.chat.answer import AnswerBuilder
from mochi_server.chat.model_call import ModelCall
from mochi_server.chat.steps import (
    AskModel,
    Finish,
    Limit,
    Phase,
    PlannedCall,
    RunCalls,
    TurnRules,
    next_step,
)
from mochi_server.chat.turn_result import snapshot
from mochi_server.chat.writer import TurnWriter, interrupted_outcome
from mochi_server.errors import FormatNotMet, MochiError, ToolNotCalled
from mochi_server.events import (
    ChatEvent,
    ContentDelta,
    Publish,
    TokenLogprobs,
    ToolContinuationStart,
    TurnWarning,
)
from mochi_server.sessions.session import user_message
from mochi_server.sessions.types import Message
from mochi_server.tools.toolbox import DecidedBy, Toolbox, ToolInvocation, ToolOutcome, failed
from mochi_server.util.schema_checks import SchemaChecks

OUTCOME_UNKNOWN = (
    "This call was interrupted, the outcome is unknown: the server stopped while the call was "
    "running."
)
_REPEATED = "The call was not run: the same call was made too often. Change its arguments."
_INSTRUCTION = (
    "Call one of these functions now. Answer only with a JSON object that has the fields `name`, "
    "the name of the function, and `arguments`, its arguments."
)
_TEXT = (ContentDelta, TokenLogprobs)


@dataclass(frozen=True, slots=True)
class ToolLoopLimits:
    """Limits of the tool calls of a turn. At the first two, the model must answer without tools."""

    rounds: int = 50
    identical_calls: int = 3
    # Maximum number of distinct calls in a round; further calls are skipped.
    calls_per_round: int = 128
    rounds_setting: str = "MOCHI_MAX_TOOL_ITERATIONS"  # environment variable that sets `rounds`


class Phases:
    """How a turn begins and ends, what reminds the model of its task, and which events clients
    receive.
    """

    async def begin(self, publish: Publish) -> None:
        """Begin the turn."""

    async def reminders(self, phase: Phase) -> Sequence[Message]:
        """Return messages that follow the history in each request of a phase and are never
        stored.
        """
        del phase
        return ()

    def publisher(self, phase: Phase, publish: Publish) -> Publish:
        """Return the function that publishes the events of a phase."""
        del phase
        return publish

    def complete(
        self, publish: Publish, messages: Sequence[Message], failure: MochiError | None
    ) -> None:
        """End the turn, which has added ``messages``, or which ``failure`` has ended."""


@dataclass
class TurnLoop:
    """Loop of one turn. ``writer`` stores complete messages; ``publish`` receives the events."""

    model_call: ModelCall
    writer: TurnWriter
    toolbox: Toolbox
    rules: TurnRules
    limits: ToolLoopLimits
    publish: Publish
    phases: Phases = field(default_factory=Phases)
    # Whether an answer may call several tools; else only the first call counts.
    parallel_calls: bool = True
    checks: SchemaChecks | None = None  # check of the last answer with the JSON schema of the turn
    decided_by: Callable[[ToolInvocation], DecidedBy] = lambda _: (
        "policy"
    )  # source of the stored decision on a call
    _defects: dict[str, str] = field(
        default_factory=dict
    )  # of malformed calls of the last answer, by ID

    async def run(self) -> None:
        """Do steps until the turn is complete. Raises ``MochiError``."""
        while True:
            step = next_step(self.writer.added, self.writer.turn, self.rules)
            match step:
                case Finish():
                    return
                case AskModel():
                    await self._ask(step)
                case RunCalls():
                    await self._run_calls(step)

    async def _ask(self, step: AskModel) -> None:
        """Ask the model for an answer, and store it."""
        publish = self.phases.publisher(step.phase, self.publish)
        if step.limit is not None:
            publish([self._limit_warning(step.limit)])
        if self._announces(step):
            publish([ContentDelta("")])
        schemas = self.toolbox.schemas() if step.offers_tools else []
        request = _Request(self, publish, await self.phases.reminders(step.phase), schemas)
        answer = await (request.forced() if step.must_call else request.plain())
        if not step.offers_tools:
            answer.tool_calls.clear()
        elif answer.skipped_calls and self.parallel_calls:
            publish([self._skip_warning(answer.skipped_calls)])
        if not answer.tool_calls:
            await self._repair(answer, publish)
        calls = answer.calls(len(self.writer.outcomes))
        self._defects = {call.id: call.defect for call in calls if call.defect is not None}
        message = answer.message()
        self.writer.mark_client_calls(message, calls)
        following = next_step([*self.writer.added, message], self.writer.turn, self.rules)
        await self.writer.add_answer(message, calls, is_last=isinstance(following, Finish))

    def _announces(self, step: AskModel) -> bool:
        """Return whether the model has only announced calls, so that its next answer is a paragraph
        of its own.
        """
        last = self.writer.added[-1] if self.writer.added else None
        is_text = last is not None and last["role"] == "assistant"
        return step.phase == "execution" and is_text and len(self.writer.added) > 1

    async def _run_calls(self, step: RunCalls) -> None:
        """Run tool calls in order, publish their results and store them."""
        publish = self.phases.publisher("execution", self.publish)
        self.writer.expect_results([planned.call for planned in step.calls])
        have_own_events = True
        for planned in step.calls:
            call = replace(planned.call, defect=self._defects.get(planned.call.id))
            try:
                outcome = await self._run_call(planned, call, publish)
            except asyncio.CancelledError:
                if call.progress.is_announced:
                    publish([interrupted_outcome(call).event()])
                raise
            try:
                await self.writer.add_result(call, outcome)
            finally:  # even if the turn is cancelled meanwhile
                if not outcome.has_own_events:
                    publish([outcome.event()])
                    have_own_events = False
        if not have_own_events and not self.writer.client_tool_calls:
            publish([ToolContinuationStart()])

    async def _run_call(
        self, planned: PlannedCall, call: ToolInvocation, publish: Publish
    ) -> ToolOutcome:
        if planned.has_begun:
            outcome = failed(call, OUTCOME_UNKNOWN, decided_by=self.decided_by(call))
            return replace(outcome, is_interrupted=True)
        if planned.is_repeated:
            call = replace(call, defect=_REPEATED)
        return await self.toolbox.run(call, publish)

    async def _repair(self, answer: AnswerBuilder, publish: Publish) -> None:
        """Replace an answer that does not fit the turn's schema, and publish a snapshot.

        Raises ``FormatNotMet``.
        """
        first, is_cut = (
            answer.content,
            answer.done_reason == "length",
        )  # the client has limited the answer
        if is_cut or not (problem := await self._problem(first)):
            return
        try:
            answer.replace(*await self.model_call.repair(first, problem))
        except MochiError as error:
            raise FormatNotMet(self.model_call.name, error.message.rstrip("."), first) from error
        if problem := await self._problem(answer.content):
            raise FormatNotMet(self.model_call.name, problem, answer.content)
        publish([snapshot([*self.writer.added, answer.message()])])

    async def _problem(self, text: str) -> str:
        """Return why a text does not fit the schema, or an empty text.

        Publish a warning if it cannot be checked.
        """
        if self.checks is None or self.model_call.schema is None:
            return ""
        result = await self.checks.check_answer(self.model_call.schema, text)
        if reason := result.get("unchecked"):
            self.model_call.warn(
                "FORMAT_NOT_CHECKED", f"The server cannot check the format of the answer: {reason}."
            )
        return result.get("error", "")

    def _limit_warning(self, limit: Limit) -> TurnWarning:
        reason, setting = (
            f"made {self.limits.rounds} rounds of tool calls",
            self.limits.rounds_setting,
        )
        if limit == "identical_calls":
            count = self.limits.identical_calls
            reason, setting = (
                f"made the same tool call {count} times",
                "MOCHI_MAX_IDENTICAL_TOOL_CALLS",
            )
        text = f"The model {reason} and now answers without tools. Change the limit with {setting}."
        return TurnWarning("TOOL_LIMIT_REACHED", text)

    def _skip_warning(self, skipped: int) -> TurnWarning:
        text = (
            f"The model made more than {self.limits.calls_per_round} distinct tool calls in one "
            f"round. Skipped calls: {skipped}. Raise the limit with "
            "MOCHI_MAX_TOOL_CALLS_PER_ROUND."
        )
        return TurnWarning("TOOL_CALLS_LEFT_OUT", text)


@dataclass
class _Request:
    """Request for one answer of the model, which publishes its text."""

    loop: TurnLoop
    publish: Publish
    reminders: Sequence[Message]
    schemas: list[dict[str, Any]]
    _held_events: list[ChatEvent] | None = None  # text that is published only if a tool is called

    async def plain(self) -> AnswerBuilder:
        return await self._send(self.reminders, self.schemas)

    async def forced(self) -> AnswerBuilder:
        """Request an answer that calls a tool.

        A text is dropped, and the model is called once more.

        Raises ``ToolNotCalled``.
        """
        self._held_events = []
        names = [schema["function"]["name"] for schema in self.schemas]
        answer = await self._send(self.reminders, self.schemas)
        if answer.calls_any(names):
            held, self._held_events = self._held_events, None
            if held:
                self.publish(held)
            return answer
        functions = orjson.dumps([schema["function"] for schema in self.schemas]).decode()
        instruction = user_message(f"{_INSTRUCTION}\n\n{functions}")
        answer = await self._send([*self.reminders, instruction], [], call_format(self.schemas))
        self._held_events = None
        # Some models call the tool in spite of the format.
        if not answer.calls_any(names) and not answer.replace_text_by_call(names):
            self.loop.writer.answer = None  # the text is not stored
            raise ToolNotCalled(self.loop.model_call.name, is_cut=answer.done_reason == "length")
        return answer

    async def _send(
        self,
        reminders: Sequence[Message],
        schemas: list[dict[str, Any]],
        format: dict[str, Any] | None = None,
    ) -> AnswerBuilder:
        """Send a request. ``format`` overrides the format of the turn."""
        loop, writer = self.loop, self.loop.writer
        answer = AnswerBuilder(loop.model_call.name, self._receive, loop.limits.calls_per_round)
        writer.answer = answer
        history, start = writer.messages.extended(reminders), writer.turn_start
        try:
            await loop.model_call.send(
                history, schemas, start, answer.feed, answer_id=answer.message_id, format=format
            )
        finally:
            writer.first_chunks[answer.message_id] = answer.first_chunk
        if not loop.parallel_calls:
            del answer.tool_calls[1:]
        return answer

    def _receive(self, events: list[ChatEvent]) -> None:
        if self._held_events is not None:
            self._held_events += [event for event in events if isinstance(event, _TEXT)]
            events = [event for event in events if not isinstance(event, _TEXT)]
        if events:
            self.loop.writer.schedule_flush()
            self.publish(events)


def call_format(schemas: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return a JSON schema that permits a call of exactly one tool.

    It has their definitions at its top level.
    """
    definitions: dict[str, Any] = {}
    calls = []
    for index, schema in enumerate(schemas):
        function, prefix = schema["function"], f"{index}."
        parameters = _renamed(function["parameters"], prefix)
        for key in ("$defs", "definitions"):
            if isinstance(found := parameters.pop(key, None), dict):
                definitions |= {prefix + name: value for name, value in found.items()}
        properties = {
            "name": {"type": "string", "enum": [function["name"]]},
            "arguments": parameters,
        }
        calls.append(
            {"type": "object", "properties": properties, "required": ["name", "arguments"]}
        )
    root: dict[str, Any] = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return {**root, "$defs": definitions} if definitions else root


def _renamed(schema: Any, prefix: str) -> Any:
    """Return a copy of a tool's schema.

    Add ``prefix`` to the name of the definition in each reference.
    """
    if isinstance(schema, list):
        return [_renamed(item, prefix) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {key: _renamed(value, prefix) for key, value in schema.items()}
    if isinstance(reference := copy.get("$ref"), str) and reference.startswith(
        ("#/$defs/", "#/definitions/")
    ):
        copy["$ref"] = f"#/$defs/{prefix}{reference.split('/', 2)[2]}"
    return copy
