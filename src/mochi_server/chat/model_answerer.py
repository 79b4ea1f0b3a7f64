"""Answers by models: the tool loop, and the tools that a model may call."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from mochi_server import errors
from mochi_server.chat.answer_format import AnswerFormat, CheckAnswer
from mochi_server.chat.approvals import ApprovalService, SessionApprover
from mochi_server.chat.conversation import Conversation
from mochi_server.chat.model_call import ModelCall, save_window
from mochi_server.chat.parked import ParkedTurn, RecordWriter, turn_messages
from mochi_server.chat.turn import Answerer
from mochi_server.chat.turn_input import ToolSelection, TurnInput
from mochi_server.chat.turn_writer import ResponseBuilder, TurnWriter, interrupted_outcome
from mochi_server.errors import ToolNotCalled
from mochi_server.events import ChatEvent, ContentDelta, Publish, TokenLogprobs, ToolContinuationStart, TurnWarning
from mochi_server.inference.gateway import ModelGateway
from mochi_server.inference.waiting import Ticket
from mochi_server.ollama.payloads import qualified_name
from mochi_server.ollama.types import ModelInfo
from mochi_server.services.sessions import SessionService
from mochi_server.sessions.session import ChatSession, edited, user_message
from mochi_server.sessions.types import Message, ToolSettings
from mochi_server.tools.discovery import Tool
from mochi_server.tools.execution import ToolExecutionService, ToolRegistry
from mochi_server.tools.toolbox import (
    ClientToolbox,
    FunctionToolbox,
    JoinedToolbox,
    LimitedToolbox,
    Toolbox,
    ToolInvocation,
    ToolOutcome,
    failed,
)


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

    model: ModelCall
    writer: TurnWriter
    toolbox: Toolbox
    limits: ToolLoopLimits
    publish: Publish
    may_announce: bool = False  # whether a first answer without calls may announce calls
    parallel_calls: bool = True  # whether an answer may call several tools; else only the first call counts
    format: AnswerFormat | None = None  # format of the last answer, if it is checked
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
        if self.format is not None and not answer.tool_calls:
            await self.format.apply(answer)
        await self.writer.add(answer.message(), last=not answer.tool_calls)
        return calls

    async def _request(
        self, reminders: Sequence[Message], schemas: list[dict[str, Any]], format: dict[str, Any] | None = None
    ) -> ResponseBuilder:
        """Request an answer from the model and publish its text. ``format`` overrides the format of the turn."""
        answer = ResponseBuilder(self.model.name, self._receive, self.limits.calls_per_round)
        self.writer.answer = answer
        messages, start = self.writer.messages.extended(reminders), self.writer.turn_start
        try:
            await self.model.send(messages, schemas, start, answer.feed, answer_id=answer.message_id, format=format)
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
    ) -> ResponseBuilder:
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
            raise ToolNotCalled(self.model.name, is_cut=answer.done_reason == "length")
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


ToolboxSource = Callable[[ChatSession, SessionApprover], Awaitable[Toolbox | None]]
"""Function that returns a toolbox with additional tools, or None. Those tools request approval from the approver."""


def _select(own: Toolbox, selected: ToolSelection) -> Toolbox:
    """Add the client's tools, which take precedence. Raises ``ValidationFailed`` if a required tool is missing."""
    if not selected.may_call:
        return LimitedToolbox(own, names=())
    toolbox = JoinedToolbox(ClientToolbox(selected.client_tools), own) if selected.client_tools else own
    if selected.only is not None:
        toolbox = LimitedToolbox(toolbox, names=selected.only)
    names = {schema["function"]["name"] for schema in toolbox.schemas()}
    missing = [f"there is no tool {name!r}" for name in sorted((selected.only or frozenset()) - names)]
    if missing or (selected.must_call and not names):
        problem = missing[0] if missing else "the request has no tools"
        raise errors.ValidationFailed.at("tool_choice", f"{problem}; add one to `tools`")
    return toolbox


@dataclass(frozen=True)
class ModelAnswererFactory:
    gateway: ModelGateway
    registry: ToolRegistry
    execution: ToolExecutionService
    approvals: ApprovalService
    agent_tools: ToolboxSource
    limits: ToolLoopLimits
    sessions: SessionService
    check_answer: CheckAnswer
    tools_of_agent: Callable[[str], Awaitable[Mapping[str, Tool]]]

    async def prepare(
        self,
        conversation: Conversation,
        session: ChatSession,
        turn_input: TurnInput,
        record: ParkedTurn | None = None,
    ) -> "ModelAnswerer":
        """Check the model, the tools and the edited message. An error of Ollama is raised when the turn answers.

        ``record`` is that of the parked turn to continue, if any. A full queue or a missing model does not refuse it,
        but it cannot continue while Ollama does not respond.
        """
        ticket = self.gateway.admit() if record is None else Ticket()
        if turn_input.edit_index is not None:
            edited(session, turn_input.edit_index, turn_input.text or "")
        if turn_input.model is not None and conversation.kind == "session":
            metadata = replace(session.metadata, model=turn_input.model)
            session = ChatSession(metadata, session.history, session.extra)
        if record is not None and record.source is not None:
            await self.registry.extra_source.wait_for(record.source)
        agent = None if record is None else record.agent
        is_missing = agent is not None and not await self.tools_of_agent(agent.name)
        records = RecordWriter(conversation, turn_input.without_data(), record, is_missing)
        toolbox = await self._toolbox(session, turn_input, records)
        model: ModelInfo | errors.MochiError
        try:
            model = await self.gateway.pinned(session.metadata.ollama_host).find_model(session.model)
        except (errors.OllamaUnreachable, errors.OllamaError, errors.ModelNotFound) as error:
            # A missing model ends a parked turn. If Ollama fails, the turn can continue later.
            if isinstance(error, errors.ModelNotFound) == (record is None):
                raise
            model = error.with_traceback(None)  # the traceback refers to all data of the turn
        if turn_input.images and isinstance(model, ModelInfo) and not model.has_capability("vision"):
            text = f"images: model {session.model!r} cannot see images. Choose a vision model."
            raise errors.ValidationFailed(text, model=session.model)
        warnings: Sequence[TurnWarning] = ()
        if turn_input.tools.names is None:
            enabled = session.metadata
            warnings = (await self.sessions.selections.check(enabled.tool_settings, enabled.agent_settings)).warnings
        return ModelAnswerer(self, conversation, turn_input.without_data(), toolbox, model, warnings, ticket, records)

    async def find_tool(self, session: ChatSession, record: ParkedTurn) -> Tool | None:
        """Return the tool that a parked turn of ``session`` calls, or None if the tool no longer exists."""
        if record.source is not None:
            await self.registry.extra_source.wait_for(record.source)
        if record.agent is not None:
            tools = await self.tools_of_agent(record.agent.name)
        else:
            tools = await self._enabled(session, record.input.tools.names)
        return tools.get(record.tool_name)

    async def _toolbox(self, session: ChatSession, turn_input: TurnInput, records: RecordWriter) -> Toolbox:
        approver, selected = SessionApprover(self.approvals, records, turn_input.interactive), turn_input.tools

        async def current_tools() -> Mapping[str, Tool]:
            return await self._enabled(await records.conversation.load(), selected.names)

        enabled = await self._enabled(session, selected.names)
        own = FunctionToolbox(enabled, self.execution, approver, current_tools)
        agents = await self.agent_tools(session, approver)
        # Agents take precedence over session tools with the same name.
        return _select(own if agents is None else JoinedToolbox(agents, own), selected)

    async def _enabled(self, session: ChatSession, tools: Sequence[str] | None) -> Mapping[str, Tool]:
        settings = session.metadata.tool_settings if tools is None else ToolSettings(tools=list(tools))
        if not (settings.tools or settings.tool_group):
            return {}
        return (await self.registry.catalogue()).selected(settings.tools, settings.tool_group)


@dataclass(eq=False)
class ModelAnswerer(Answerer):
    factory: ModelAnswererFactory
    conversation: Conversation
    input: TurnInput  # input of the turn, without the bytes of its images
    toolbox: Toolbox
    model: ModelInfo | errors.MochiError  # model that answers, or the error of its lookup
    warnings: Sequence[TurnWarning]  # a warning for each enabled tool, tool group and agent that cannot be used
    ticket: Ticket
    records: RecordWriter

    async def begin(self, session: ChatSession) -> ChatSession:
        if self.input.edit_index is not None:
            session = await self.factory.sessions.edit(session, self.input.edit_index, self.input.text or "")
        return session

    async def answer(self, session: ChatSession, writer: TurnWriter, publish: Publish) -> None:
        self.records.begin(writer)
        wanted = self.input.model
        if wanted is not None and qualified_name(wanted) != qualified_name(session.model):
            session = await self.factory.sessions.patch(session.session_id, {"model": wanted})
        if self.records.continued is not None:
            writer.resume(turn_messages(session, self.records.continued))
            if writer.is_complete:  # the server stopped after the last message
                return
        if isinstance(self.model, errors.MochiError):
            for call in writer.open_calls:
                decided_by, text = self.records.decided_by(call), f"This call was not run: {self.model.message}"
                outcome = self.records.known_outcome(call) or failed(call, text, decided_by=decided_by)
                await writer.add_result(call, outcome)
                publish([outcome.event()])
            raise self.model
        factory, generation, tools = self.factory, self.input.generation, self.input.tools
        gateway = factory.gateway.pinned(session.metadata.ollama_host)
        request = ModelCall(gateway, writer, publish, self.model, session, generation, self.ticket)
        if warnings := [*self.warnings, *request.warnings(self.toolbox.schemas())]:
            publish(warnings)
        if self.input.images:
            await writer.wait_until_stored()  # the prompt is built from the stored images
        kind = ForcedCallLoop if tools.must_call else ToolLoop
        loop = kind(request, writer, self.toolbox, factory.limits, publish, parallel_calls=tools.parallel)
        loop.resumed_calls, loop.known_outcome = writer.open_calls, self.records.known_outcome
        loop.format = AnswerFormat(request, writer, factory.check_answer)
        try:
            await loop.run()
        finally:
            self.window = request.allocation.decision
        await save_window(request.allocation, session, self.conversation.store)
