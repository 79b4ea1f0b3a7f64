"""Request for one answer of the model, repeated if the model failed in a way that passes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from mochi_server.chat.answer import AnswerBuilder
from mochi_server.chat.model_call import ModelCall
from mochi_server.chat.stored_events import snapshot
from mochi_server.chat.turn import PreparedTurn
from mochi_server.errors import OllamaError, ToolNotCalled
from mochi_server.events import ChatEvent, ContentDelta, Publish, TokenLogprobs
from mochi_server.inference.answer_repair import AnswerRepair
from mochi_server.ollama.errors import is_unparsed_call
from mochi_server.ollama.transport import Line
from mochi_server.sessions.session import user_message
from mochi_server.sessions.turn import answer_message_id
from mochi_server.sessions.types import Message
from mochi_server.tools.call_format import call_format
from mochi_server.tools.stored_calls import all_calls

_INSTRUCTION = (
    "Call one of these functions now. Answer only with a JSON object that has the fields `name`, "
    "the name of the function, and `arguments`, its arguments."
)
_TEXT = (ContentDelta, TokenLogprobs)
_LOADING = ("load", "unload")
"""Reasons for the end of an answer that Ollama gives if it only loads or unloads the model."""
_REPAIRED = (
    "The model wrote its reasoning or a tool call as text, or markers of its format. The server "
    "moved them to where they belong. Set MOCHI_REPAIR_ANSWERS=false to keep answers as they are."
)
_REPEATED = (
    "The request was sent again, because Ollama could not read a tool call of the model: {}."
)
_EMPTY = "The model {!r} sent an empty answer: {}."


@dataclass
class AnswerAttempts:
    """Request for one answer of the model, which publishes its text."""

    turn: PreparedTurn
    model_call: ModelCall
    publish: Publish
    reminders: Sequence[Message]
    schemas: list[dict[str, Any]]
    allows_calls: bool = True
    plans: bool = False  # whether the answer is only the plan of an agent, without a format
    _held_events: list[ChatEvent] | None = None  # text that is published only if a tool is called

    async def send(self) -> AnswerBuilder:
        """Request the answer, and publish a warning if it is empty in the end.

        Repeat the request once if Ollama could not read a call, and once if the answer is empty for
        a passing reason. Raises ``MochiError``.
        """
        answer = await self._send(may_repeat=True)
        if self.plans and answer.skipped_calls:  # the agent calls tools when it executes the plan
            return answer
        if answer.is_empty and self._may_change(answer):
            self._take_back_reasoning(answer)
            self.turn.writer.replaced.append(answer.message())
            answer = await self._send()
        if answer.is_empty:
            reason = self._reason_of_empty(answer)
            self.model_call.warn("EMPTY_ANSWER", _EMPTY.format(self.model_call.name, reason))
        return answer

    def _take_back_reasoning(self, answer: AnswerBuilder) -> None:
        """Remove the published reasoning of an answer that is requested again."""
        if answer.thinking:
            self.publish([snapshot(self.turn.writer.added)])

    def _may_change(self, answer: AnswerBuilder) -> bool:
        """Return whether another request can have another answer than this empty one.

        Blanks that clients have received cannot be taken back. If the reasoning has filled the
        window, the next request has a larger one.
        """
        if answer.content:
            return False
        if answer.done_reason in _LOADING or answer.skipped_calls or not answer.thinking:
            return True
        return self.model_call.is_cut and self.model_call.has_grown

    def _reason_of_empty(self, answer: AnswerBuilder) -> str:
        if answer.done_reason in _LOADING:
            return "Ollama only loaded or unloaded the model"
        if answer.skipped_calls:
            return "it called a tool, but the request offered none"
        if not answer.thinking:
            return "it has neither text nor tool calls"
        if answer.done_reason == "length":
            return "its reasoning reached the limit of tokens"
        if any(f'"{name}"' in answer.thinking for name in self._tool_names):
            return "it wrote a tool call into its reasoning"
        return "it has only reasoning"

    @property
    def _tool_names(self) -> list[str]:
        return [schema["function"]["name"] for schema in self.schemas]

    async def forced(self) -> AnswerBuilder:
        """Request an answer that calls a tool.

        If the model only writes text, drop the text and request a call as JSON. Text is published
        only beside a call. Raises ``ToolNotCalled`` if the second answer contains no call either,
        and other ``MochiError``.
        """
        names = self._tool_names
        holding = replace(self, _held_events=[])
        answer = await holding._send(may_repeat=True)
        if answer.calls_any(names):
            holding._publish_held(answer)
            return answer
        self._take_back_reasoning(answer)
        functions = [schema["function"] for schema in self.schemas]
        instruction = user_message(f"{_INSTRUCTION}\n\n{orjson.dumps(functions).decode()}")
        again = replace(self, reminders=[*self.reminders, instruction], schemas=[], _held_events=[])
        self.turn.writer.replaced.append(answer.message())
        answer = await again._send(call_format(self.schemas))
        if answer.calls_any(names):  # some models call the tool in spite of the format
            again._publish_held(answer)
        elif not answer.replace_text_by_call(names):
            raise ToolNotCalled(self.model_call.name, is_cut=answer.done_reason == "length")
        return answer

    def _publish_held(self, answer: AnswerBuilder) -> None:
        """Publish the text that was held back of an answer that calls a tool.

        An interrupted turn stores the published text.
        """
        self.turn.writer.partial_answer.builder = answer
        if answer.take_move():
            self._publish_snapshot(answer)
        elif self._held_events:
            self.publish(self._held_events)

    async def _send(
        self, format: dict[str, Any] | None = None, *, may_repeat: bool = False
    ) -> AnswerBuilder:
        """Send a request. ``format`` overrides the format of the turn.

        With ``may_repeat``, send it once more if Ollama could not read a call before any text.
        """
        answer = self._new_answer()
        try:
            await self._fill(answer, format)
        except BaseException as error:
            if may_repeat and isinstance(error, OllamaError) and self._can_repeat(answer, error):
                self._discard(answer, error)
                return await self._send(format)
            self._end(answer, is_cut=True)
            raise
        self._end(answer)
        if not self.turn.input.tools.parallel:
            del answer.tool_calls[1:]
        return answer

    def _can_repeat(self, answer: AnswerBuilder, error: OllamaError) -> bool:
        """Return whether Ollama could not read a call and no client has received text."""
        if not is_unparsed_call(error):
            return False
        if self._held_events is not None:
            return True
        return not answer.content

    def _discard(self, answer: AnswerBuilder, error: OllamaError) -> None:
        """Drop what a failed answer has published or held back, and publish a warning."""
        reason = error.message.removesuffix(".")
        self.model_call.warn("ANSWER_REPEATED", _REPEATED.format(reason))
        self._take_back_reasoning(answer)
        if self._held_events is not None:
            self._held_events.clear()

    def _new_answer(self) -> AnswerBuilder:
        writer = self.turn.writer
        rules = self.turn.rules
        repair = AnswerRepair(self._tool_names) if rules.repairs_answers else None
        max_calls = 0
        if self.allows_calls:
            max_calls = rules.calls_per_round
        earlier_calls = [call.id for call in all_calls(writer.added)]
        answers = [message for message in writer.added if message["role"] == "assistant"]
        message_id = answer_message_id(writer.turn.turn_id, len(answers))
        return AnswerBuilder(
            self.model_call.name,
            self._receive,
            max_calls,
            repair,
            earlier_calls,
            message_id=message_id,
        )

    async def _fill(self, answer: AnswerBuilder, format: dict[str, Any] | None) -> None:
        """Send a request, whose response becomes ``answer``."""
        writer = self.turn.writer
        # The partial answer of an interrupted turn has only text that clients have received.
        writer.partial_answer.builder = answer if self._held_events is None else None

        def feed(lines: list[Line]) -> None:
            answer.feed(lines)
            self._publish_move(answer)

        try:
            await self.model_call.send(
                writer.messages.extended(self.reminders),
                self.schemas,
                writer.turn_start,
                feed,
                answer_id=answer.message_id,
                format=format,
                plans=self.plans,
            )
        finally:
            writer.first_chunks.append((answer.message_id, answer.first_chunk))

    def _end(self, answer: AnswerBuilder, *, is_cut: bool = False) -> None:
        """Publish the rest of an answer. ``is_cut`` states whether its stream was cut."""
        answer.finish(is_cut=is_cut)
        self._publish_move(answer)
        if answer.is_repaired:
            self.model_call.warn("ANSWER_REPAIRED", _REPAIRED)

    def _receive(self, events: list[ChatEvent]) -> None:
        if self._held_events is not None:
            self._held_events += [event for event in events if isinstance(event, _TEXT)]
            events = [event for event in events if not isinstance(event, _TEXT)]
        if events:
            self.turn.writer.schedule_flush()
            self.publish(events)

    def _publish_move(self, answer: AnswerBuilder) -> None:
        """Publish the text of the turn if published text has become reasoning, or reasoning
        text.
        """
        if self._held_events is None and answer.take_move():
            self._publish_snapshot(answer)

    def _publish_snapshot(self, answer: AnswerBuilder) -> None:
        messages = [*self.turn.writer.added, answer.message()]
        self.publish([snapshot(messages)])
