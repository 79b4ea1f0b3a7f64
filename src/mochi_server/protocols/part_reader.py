"""Conversion of the events of a run to parts."""

from collections.abc import Sequence
from dataclasses import asdict

from mochi_server import events
from mochi_server.chat.run import Run
from mochi_server.constants import AGENT_TOOL
from mochi_server.errors import ToolExecutionDenied
from mochi_server.protocols.parts import (
    Approval,
    Call,
    End,
    Json,
    Notice,
    Part,
    Reasoning,
    Result,
    Step,
    Text,
    TextEnd,
)

_Parts = Sequence[Part]
_TextClass = type[Text] | type[Reasoning]
_EndOfAnswer = events.MessageComplete | events.Stopped
_EndOfText = (
    _EndOfAnswer
    | events.ToolCalled
    | events.ToolConfirmationRequired
    | events.ToolResult
    | events.ToolContinuationStart
    | events.AgentStart
)
"""Events after which the text before them cannot be replaced."""


class PartReader:
    """Converter of the events of a run, and of the runs that continue it, to parts.

    Read all events from the first one.

    Text from agents becomes reasoning. If an agent answers instead of the model, text from its
    execution phase becomes text.
    """

    def __init__(self, run: Run, *, collects: bool = False) -> None:
        """``collects`` states that all parts are sent at the end, so that a snapshot can take back
        the text of an answer.
        """
        self._run_id = run.origin
        self._agent_answers = run.input.agent is not None
        self._read_characters: dict[_TextClass, int] = {Text: 0, Reasoning: 0}
        """Numbers of characters read so far.

        A snapshot event repeats the whole text, so the reader skips as many.
        """
        self._sources: dict[_TextClass, object] = {}
        """Event class of the latest part of each text class, or None if its answer has ended."""
        self._logprobs: list[Json] = []
        self._notices: list[Notice] = []
        self._has_step_ended = False
        self._agent_call = ""  # ID of the tool call that started the latest agent
        self._open_calls: dict[str, None] = {}
        """IDs of the calls without a result, in the order in which they began."""
        self._completed: events.MessageComplete | None = None
        self._checks_format = run.holds_text
        self._holds_text = collects or run.holds_text
        self._held = ""
        """Text of the answer that may still be replaced."""
        self._holds_thinking = collects
        self._held_thinking = ""
        """Reasoning of the answer that may still be replaced."""

    def read(self, event: events.ChatEvent) -> _Parts:
        """Return the parts that an event adds to the answer."""
        match event:  # the most frequent events first
            case events.ContentDelta():
                return self._content(event.content)
            case events.ThinkingDelta():
                return self._thinking(event.content)
            case events.AgentPlanning():
                return self._agent_text(event)
            case events.TokenLogprobs():
                self._logprobs += event.logprobs
                return ()
        is_held = bool(self._held or self._held_thinking)
        if is_held and isinstance(event, _EndOfText):
            released = self._release(is_answer=isinstance(event, _EndOfAnswer))
            return [*released, *self._read_other(event)]
        return self._read_other(event)

    def _read_other(self, event: events.ChatEvent) -> _Parts:  # noqa: C901, PLR0911, PLR0912 - one case for each event
        """Return the parts of an event that has no piece of a text."""
        match event:
            case events.Snapshot():
                return self._snapshot(event)
            case events.ToolCalled():
                return self._begin_call(
                    self._call_id(event.call_index), event.tool_name, event.arguments
                )
            case events.AgentToolCalled():
                call_id = self._call_id(event.call_index, event.parent_call_id)
                return self._begin_call(call_id, event.tool_name, event.arguments)
            case events.ToolConfirmationRequired():
                return self._approval(event)
            case events.ToolResult():
                return self._result(self._call_id(event.call_index), event)
            case events.AgentToolResult():
                self._end_answer()
                return self._result(self._call_id(event.call_index, event.parent_call_id), event)
            case events.ToolContinuationStart():
                self._end_answer()
                self._has_step_ended = True
                return (TextEnd(),)
            case events.AgentStart():
                return self._agent_start(event)
            case events.AgentComplete():
                return self._agent_complete(event)
            case events.MessageComplete():
                self._completed = event
                return (TextEnd(),)
            case events.Status():
                payload = {name: value for name, value in vars(event).items() if value is not None}
                return (Notice(event.type, payload, is_transient=True),)
            case events.TurnWarning(code="ANSWER_REPEATED"):
                self._logprobs = []  # those of the dropped answer
                return self._notice(event)
            case events.ContextCompacted() | events.TurnWarning():
                return self._notice(event)
            case events.TurnError() | events.Stopped() | events.Done():
                pass  # the run has the error and the state
        return ()

    def end(self, run: Run) -> _Parts:
        """Return the parts that end the answer, including results for interrupted calls.

        No event follows. The run has ended, or its turn goes on at another server.
        """
        parts: list[Part] = []
        if not self._checks_format:  # an incomplete answer does not have its format
            parts += self._release(is_answer=True)
        if run.has_ended:
            for call_id in self._open_calls:
                parts.append(Result(call_id, "", "The turn was stopped before this call ended."))
        end = End(
            result=run.result,
            failure=run.failure,
            completed=self._completed,
            notices=self._notices,
            logprobs=self._logprobs,
        )
        return [*parts, end]

    def _content(self, text: str) -> _Parts:
        if self._holds_text:
            self._held += text
            return ()
        self._read_characters[Text] += len(text)
        return self._text(Text, text, events.ContentDelta)

    def _release(self, *, is_answer: bool) -> _Parts:
        """Return the held reasoning and text.

        If the format is checked, only the answer is text. Text before a tool call is reasoning.
        """
        thinking = self._held_thinking
        text = self._held
        self._held_thinking = ""
        self._held = ""
        self._read_characters[Reasoning] += len(thinking)
        self._read_characters[Text] += len(text)
        text_class = Text if is_answer or not self._checks_format else Reasoning
        return [
            *self._text(Reasoning, thinking, events.ThinkingDelta),
            *self._text(text_class, text, events.ContentDelta),
        ]

    def _thinking(self, text: str) -> _Parts:
        if self._holds_thinking:
            self._held_thinking += text
            return ()
        self._read_characters[Reasoning] += len(text)
        return self._text(Reasoning, text, events.ThinkingDelta)

    def _text(self, text_class: _TextClass, text: str, source: object) -> _Parts:
        """Return the part for a text, or nothing for an empty one.

        The part is separate if the text before it has ended, or has come from another class of
        events than ``source``.
        """
        if not text:
            return ()
        is_separate = self._sources.get(text_class, source) is not source
        part = text_class(text, is_separate=is_separate)
        self._sources[text_class] = source
        if self._logprobs:
            part.logprobs = self._logprobs
            self._logprobs = []
        return (*self._step_boundary(), part)

    def _notice(self, event: events.ContextCompacted | events.TurnWarning) -> _Parts:
        notice = Notice(event.type, asdict(event))
        self._notices.append(notice)
        return (notice,)

    def _agent_text(self, event: events.AgentPlanning) -> _Parts:
        if not event.content:
            self._end_answer()
            return (TextEnd(),)
        is_answer = self._agent_answers and isinstance(event, events.AgentExecution)
        return self._text(Text if is_answer else Reasoning, event.content, type(event))

    def _snapshot(self, event: events.Snapshot) -> _Parts:
        """Return the parts with the new text of a snapshot. If text is held, replace it instead."""
        parts: _Parts = ()
        if self._holds_thinking:
            self._held_thinking = event.thinking[self._read_characters[Reasoning] :]
        else:
            parts = self._unread(Reasoning, event.thinking, events.ThinkingDelta)
        if not self._holds_text:
            return [*parts, *self._unread(Text, event.content, events.ContentDelta)]
        self._held = event.content[self._read_characters[Text] :]
        self._logprobs = []
        return parts

    def _unread(self, text_class: _TextClass, text: str, source: object) -> _Parts:
        """Return the part with the new characters of a snapshot."""
        start = self._read_characters[text_class]
        new = text[start:]
        self._read_characters[text_class] += len(new)
        return self._text(text_class, new, self._sources.get(text_class) or source)

    def _approval(self, event: events.ToolConfirmationRequired) -> _Parts:
        parent = self._agent_call if event.agent_name else ""
        call_id = self._call_id(event.call_index, parent)
        begun = self._begin_call(call_id, event.tool_name, event.arguments)
        return [*begun, Approval(call_id, event.confirmation_id, event.tool_name)]

    def _result(self, call_id: str, event: events.ToolResult | events.AgentToolResult) -> _Parts:
        begun: _Parts = ()
        if call_id not in self._open_calls:  # the call was refused before it began
            begun = self._begin_call(call_id, event.tool_name, {})
        del self._open_calls[call_id]
        result = Result(
            call_id=call_id,
            output=event.result or "",
            error=None if event.success else event.error_message or "",
            is_denied=event.error_code == ToolExecutionDenied.code,
        )
        return [*begun, result]

    def _agent_start(self, event: events.AgentStart) -> _Parts:
        self._end_answer()
        self._agent_call = event.parent_call_id
        arguments = {"agent": event.agent_name, "instruction": event.instruction}
        parts = self._begin_call(self._call_id(self._agent_call), AGENT_TOOL, arguments)
        # The AI SDK sends a decision only if no other call of the step is open.
        self._has_step_ended = True
        return parts

    def _agent_complete(self, event: events.AgentComplete) -> _Parts:
        call_id = self._call_id(event.parent_call_id)
        self._has_step_ended = True
        self._open_calls.pop(call_id, None)
        return (Result(call_id, event.output, None if event.success else event.output),)

    def _call_id(self, index: int | str, agent_call: str = "") -> str:
        """Return the ID of a call. ``agent_call`` is the call that started its agent, if any."""
        if not agent_call:
            return f"{self._run_id}-{index}"
        return f"{self._run_id}-{agent_call}-{index}"

    def _begin_call(self, call_id: str, name: str, arguments: Json) -> _Parts:
        if call_id in self._open_calls:  # an approved call of an agent starts
            return ()
        self._open_calls[call_id] = None
        return [*self._step_boundary(), Call(call_id, name, arguments)]

    def _step_boundary(self) -> _Parts:
        """Return the boundary to put before a text or a call, if an answer has ended."""
        if not self._has_step_ended:
            return ()
        self._has_step_ended = False
        return (Step(),)

    def _end_answer(self) -> None:
        """Mark the texts so far as complete, so that further text is separate."""
        self._sources = dict.fromkeys(self._sources)
