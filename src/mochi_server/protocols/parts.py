"""Parts of an answer, and the conversion of the events of a run to parts."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

from mochi_server import events
from mochi_server.chat.run import Run
from mochi_server.chat.turn_result import TurnResult
from mochi_server.constants import AGENT_TOOL
from mochi_server.errors import MochiError, ToolExecutionDenied
from mochi_server.events import MessageComplete

Json = dict[str, Any]


@dataclass
class _Delta:
    text: str
    is_separate: bool = False
    """Whether this text and the earlier text of the same class belong to different answers."""
    logprobs: list[Json] | None = None
    """Log probabilities of the tokens since the last part with text, in Ollama's format."""

    @property
    def joined(self) -> str:
        """Text to append to the earlier text of the same class.

        A blank line separates different answers.
        """
        return f"\n\n{self.text}" if self.is_separate else self.text


class Text(_Delta):
    """Piece of the answer."""

    method: ClassVar = "text"


class Reasoning(_Delta):
    """Piece of the model's reasoning or of the text of an agent."""

    method: ClassVar = "reasoning"


@dataclass(frozen=True, slots=True)
class TextEnd:
    """End of the current text or reasoning."""

    method: ClassVar = "text_end"


@dataclass(frozen=True, slots=True)
class Call:
    """Tool call that the server runs, including the calls of agents.

    The ID is unique in the session.
    """

    id: str
    name: str
    arguments: Json
    method: ClassVar = "call"


@dataclass(frozen=True, slots=True)
class Approval:
    """Request for the approval of the call ``call_id``. The ``Call`` precedes it."""

    call_id: str
    confirmation_id: str
    tool_name: str
    method: ClassVar = "approval"


@dataclass(frozen=True, slots=True)
class Result:
    """Result of the call ``call_id``. ``error`` is None on success."""

    call_id: str
    output: str
    error: str | None = None
    is_denied: bool = False
    """Whether the call did not run because it was not approved."""
    method: ClassVar = "result"


@dataclass(frozen=True, slots=True)
class Notice:
    """Event that most protocols do not have, such as a warning."""

    name: str
    payload: Json
    is_transient: bool = False
    """Whether the notice is only a state of the stream, and not a part of the answer."""
    method: ClassVar = "notice"


def omitted_tools(provider: str, names: Iterable[str]) -> list[Notice]:
    """Return a warning for each tool of a request that only the provider itself could run."""
    texts = [
        f"Only {provider}'s own API has the tool {name!r}. The request omits this tool."
        for name in names
    ]
    return [Notice("warning", {"code": "TOOL_LEFT_OUT", "message": text}) for text in texts]


@dataclass(frozen=True, slots=True)
class Step:
    """Boundary between the answers to two requests to the model. A text or a call follows."""

    method: ClassVar = "step"


@dataclass(frozen=True, slots=True)
class End:
    """End of the run."""

    result: TurnResult
    failure: MochiError | None = None
    """Error that ended the run, or None."""
    completed: MessageComplete | None = None
    """Event that reports the complete answer, or None if the answer is not complete."""
    notices: Sequence[Notice] = ()
    """All notices of the run that are not transient."""
    logprobs: list[Json] = field(default_factory=list)
    """Log probabilities after the last part with text."""
    method: ClassVar = "end"


Part = Text | Reasoning | TextEnd | Call | Approval | Result | Notice | Step | End


_Parts = Sequence[Part]
_ENDS_OF_TEXT = (
    *(
        events.ToolCalled,
        events.ToolConfirmationRequired,
        events.ToolResult,
        events.ToolContinuationStart,
    ),
    *(events.AgentStart, events.MessageComplete, events.Stopped),
)
"""Events after which the text before them cannot be replaced."""
_TextClass = type[Text] | type[Reasoning]
_ToolCall = events.ToolCalled | events.AgentToolCalled | events.ToolConfirmationRequired


class PartReader:
    """Converter of the events of one run to parts, with a method for each event.

    Read all events from the first one.

    Text from agents becomes reasoning. If an agent answers instead of the model, text from its
    execution phase becomes text.
    """

    def __init__(self, run: Run) -> None:
        self._run_id = run.origin
        self._agent_answers = run.input.agent is not None
        self._read_characters: dict[_TextClass, int] = {Text: 0, Reasoning: 0}
        """Numbers of characters read so far.

        A snapshot event repeats the whole text, so the reader skips as many.
        """
        self._sources: dict[_TextClass, object] = {}
        """Class of the event with the latest text of each class, or None if the answer with that
        text has ended.
        """
        self._logprobs: list[Json] = []
        self._notices: list[Notice] = []
        self._has_step_ended = False
        self._agent_call = ""  # ID of the tool call that started the latest agent
        self._open_calls: dict[str, None] = {}
        self._completed: events.MessageComplete | None = None
        self._holds_text = run.holds_text
        self._held = ""
        """Text of the answer that may still be replaced, because the answer must fit a JSON
        schema.
        """

    def read(self, event: events.ChatEvent) -> _Parts:
        """Return the parts that an event adds to the answer."""
        released = self._release(event) if self._held and isinstance(event, _ENDS_OF_TEXT) else ()
        parts: _Parts = getattr(self, event.type)(event)
        return [*released, *parts] if released else parts

    def end(self, run: Run) -> _Parts:
        """Return the parts that end the answer, including results for interrupted calls.

        The run has ended.
        """
        interrupted = [
            Result(call_id, "", "The turn was stopped before this call ended.")
            for call_id in self._open_calls
        ]
        return [
            *interrupted,
            End(run.result, run.failure, self._completed, self._notices, self._logprobs),
        ]

    def content_delta(self, event: events.ContentDelta) -> _Parts:
        if self._holds_text:
            self._held += event.content
            return ()
        self._read_characters[Text] += len(event.content)
        return self._text(Text, event.content, events.ContentDelta)

    def _release(self, event: events.ChatEvent) -> _Parts:
        """Return the held text.

        Text before a tool call is reasoning, because only the answer fits the schema.
        """
        text, self._held = self._held, ""
        self._read_characters[Text] += len(text)
        text_class = (
            Text if isinstance(event, events.MessageComplete | events.Stopped) else Reasoning
        )
        return self._text(text_class, text, events.ContentDelta)

    def thinking_delta(self, event: events.ThinkingDelta) -> _Parts:
        self._read_characters[Reasoning] += len(event.content)
        return self._text(Reasoning, event.content, events.ThinkingDelta)

    def _text(self, text_class: _TextClass, text: str, source: object) -> _Parts:
        if not text:
            return ()
        part = text_class(text, self._sources.get(text_class, source) is not source)
        self._sources[text_class] = source
        if self._logprobs:
            part.logprobs, self._logprobs = self._logprobs, []
        return [*self._step(), part] if self._has_step_ended else (part,)

    def agent_planning(self, event: events.AgentPlanning) -> _Parts:
        if not event.content:
            self._end_answer()
            return (TextEnd(),)
        is_answer = self._agent_answers and type(event) is events.AgentExecution
        return self._text(Text if is_answer else Reasoning, event.content, type(event))

    agent_execution = agent_planning

    def snapshot(self, event: events.Snapshot) -> _Parts:
        parts: list[Part] = []
        for text_class, text, source in (
            (Reasoning, event.thinking, events.ThinkingDelta),
            (Text, event.content, events.ContentDelta),
        ):
            new = text[self._read_characters[text_class] :]
            if text_class is Text and self._holds_text:
                self._held, self._logprobs = new, []
                continue
            self._read_characters[text_class] += len(new)
            parts += self._text(text_class, new, self._sources.get(text_class) or source)
        return parts

    def logprobs(self, event: events.TokenLogprobs) -> _Parts:
        self._logprobs += event.logprobs
        return ()

    def tool_call(self, event: _ToolCall) -> _Parts:
        return self._begin_call(self._call_id(event), event.tool_name, event.arguments)

    agent_tool_call = tool_call

    def tool_call_confirmation_required(self, event: events.ToolConfirmationRequired) -> _Parts:
        return [
            *self.tool_call(event),
            Approval(self._call_id(event), event.confirmation_id, event.tool_name),
        ]

    def tool_result(self, event: events.ToolResult | events.AgentToolResult) -> _Parts:
        call_id = self._call_id(event)
        refused = (
            [] if call_id in self._open_calls else self._begin_call(call_id, event.tool_name, {})
        )
        error = None if event.success else event.error_message or ""
        self._open_calls.pop(call_id, None)
        return [
            *refused,
            Result(
                call_id, event.result or "", error, event.error_code == ToolExecutionDenied.code
            ),
        ]

    def agent_tool_result(self, event: events.AgentToolResult) -> _Parts:
        self._end_answer()
        return self.tool_result(event)

    def tool_continuation_start(self, _: events.ToolContinuationStart) -> _Parts:
        self._end_answer()
        self._has_step_ended = True
        return (TextEnd(),)

    def agent_start(self, event: events.AgentStart) -> _Parts:
        self._end_answer()
        self._agent_call = event.parent_call_id
        arguments = {"agent": event.agent_name, "instruction": event.instruction}
        parts = self._begin_call(f"{self._run_id}-{self._agent_call}", AGENT_TOOL, arguments)
        # The AI SDK sends a decision only if no other call of the step is open.
        self._has_step_ended = True
        return parts

    def agent_complete(self, event: events.AgentComplete) -> _Parts:
        call_id, error = (
            f"{self._run_id}-{event.parent_call_id}",
            None if event.success else event.output,
        )
        self._has_step_ended = True
        self._open_calls.pop(call_id, None)
        return (Result(call_id, event.output, error),)

    def message_complete(self, event: events.MessageComplete) -> _Parts:
        self._completed = event
        return (TextEnd(),)

    def status(self, event: events.Status) -> _Parts:
        payload = {name: value for name, value in vars(event).items() if value is not None}
        return (Notice(event.type, payload, is_transient=True),)

    def warning(self, event: events.ContextCompacted | events.TurnWarning) -> _Parts:
        self._notices.append(notice := Notice(event.type, asdict(event)))
        return (notice,)

    context_compacted = warning

    def done(self, _: events.TurnError | events.Stopped | events.Done) -> _Parts:
        return ()  # the run has the error and the state

    error = stopped = done

    def _call_id(self, event: _ToolCall | events.ToolResult | events.AgentToolResult) -> str:
        has_agent = isinstance(event, events.ToolConfirmationRequired) and event.agent_name
        agent_call = getattr(event, "parent_call_id", self._agent_call if has_agent else "")
        return "-".join(filter(None, (self._run_id, agent_call, str(event.call_index))))

    def _begin_call(self, call_id: str, name: str, arguments: Json) -> _Parts:
        if call_id in self._open_calls:  # an approved call of an agent starts
            return ()
        self._open_calls[call_id] = None
        return [*self._step(), Call(call_id, name, arguments)]

    def _step(self) -> _Parts:
        """Return the boundary to put before a text or a call, if an answer has ended."""
        has_ended, self._has_step_ended = self._has_step_ended, False
        return (Step(),) if has_ended else ()

    def _end_answer(self) -> None:
        """Mark the texts so far as complete, so that further text is separate."""
        self._sources = dict.fromkeys(self._sources)


def usage(turn: TurnResult) -> Json:
    """Return Ollama's token counts, summed over all requests of the turn, in OpenAI's format.

    The number of cached tokens is null if Ollama has not reported it for each request.
    """
    answers = [
        message for message in (turn.stored or turn.repeated) if message["role"] == "assistant"
    ]
    prompt = sum(answer.get("prompt_eval_count", 0) for answer in answers)
    completion = sum(answer.get("eval_count", 0) for answer in answers)
    cached = [answer.get("prompt_eval_cached_count") for answer in answers]
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {
            "cached_tokens": sum(cached) if cached and None not in cached else None
        },
    }


def is_cut(turn: TurnResult) -> bool:
    """Return whether the answer ended because it reached the maximum number of tokens."""
    return (
        not turn.client_tool_calls
        and turn.answer is not None
        and turn.answer.get("done_reason") == "length"
    )


def extra_fields(end: End) -> Json:
    """Return the fields that only this server has.

    Clients of other protocols ignore such fields.
    """
    return {
        "context_window": end.result.window_object,
        "tool_calls_executed": [outcome.executed() for outcome in end.result.outcomes],
        "notices": [{"type": notice.name, **notice.payload} for notice in end.notices],
    }
