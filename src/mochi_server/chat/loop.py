"""Loop of a turn: one step after another, until the turn is complete."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mochi_server.chat.answer import AnswerBuilder
from mochi_server.chat.answer_attempts import AnswerAttempts
from mochi_server.chat.model_call import ModelCall
from mochi_server.chat.steps import AskModel, Finish, PlannedCall, RunCalls
from mochi_server.chat.stored_events import interrupted_event, snapshot
from mochi_server.chat.turn import PreparedTurn
from mochi_server.constants import REPEATED
from mochi_server.errors import (
    FormatNotMet,
    ImageNotReadable,
    MochiError,
    OllamaBusy,
    OllamaError,
    OllamaUnreachable,
)
from mochi_server.events import (
    ChatEvent,
    ContentDelta,
    Publish,
    ToolContinuationStart,
    TurnWarning,
)
from mochi_server.inference.session_window import save_window
from mochi_server.ollama.errors import is_unreadable_image
from mochi_server.sessions.types import AssistantMessage
from mochi_server.tools.stored_calls import (
    calls_in,
    lost_outcome,
    open_calls,
)
from mochi_server.tools.toolbox import ToolOutcome, failed

_REPEATED = f"{REPEATED}the same call was made too often. Change its arguments."
_HIDDEN_IMAGES = (
    "The model cannot decode an image of an earlier message. The prompt omits the earlier images."
)
_LIMIT_REACHED = "The model {} and now answers without tools. Change the limit with {}."

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TurnLoop:
    """Loop of one turn. ``publish`` receives its events.

    ``reported`` has the warnings that the turn published before it was continued.
    """

    turn: PreparedTurn
    publish: Publish
    reported: Sequence[TurnWarning] = ()

    async def run(self) -> None:
        """Do steps until the turn is complete, and then store its window.

        If the turn has an error in place of a model, store a failed result for each open call and
        raise this error. Raises other ``MochiError``, and ``TurnSuspended`` for an approval.
        """
        if isinstance(self.turn.next_step(), Finish):  # the server stopped after the answer
            return
        turn, writer = self.turn, self.turn.writer
        await turn.phases.begin(self.publish)
        if isinstance(turn.model, MochiError):
            await self._refuse_calls(turn.model)
            raise turn.model
        if turn.drops_checkpoint:
            await writer.wait_until_stored()
            await writer.conversation.patch({"compaction": None})
        model_call = ModelCall(
            turn.gateway,
            writer,
            turn.phases.publisher("planning", self.publish),
            turn.model,
            turn.session,
            turn.input.generation,
            turn.ticket,
        )
        self._publish_warnings([*turn.warnings, *model_call.warnings(turn.toolbox.schemas())])
        if turn.input.new_blobs:
            await writer.wait_until_stored()  # the prompt is built from the stored images and files
        try:
            await self._do_steps(model_call)
        finally:
            writer.window = model_call.allocation.decision
        await save_window(model_call.allocation, turn.session, writer.conversation.store)

    def _publish_warnings(self, warnings: Sequence[ChatEvent]) -> None:
        """Publish the warnings at the beginning, except those that clients have received."""
        is_agent = self.turn.rules.plans
        if is_agent and self.turn.writer.added:  # published before it was continued
            return
        new = [warning for warning in warnings if warning not in self.reported]
        if new:
            self.publish(new)

    async def _do_steps(self, model_call: ModelCall) -> None:
        while True:
            step = self.turn.next_step()
            logger.debug(
                "Step of a turn session_id=%s run_id=%s: %s",
                self.turn.session.session_id,
                self.turn.writer.turn.run_id,
                step.description,
            )
            match step:
                case Finish():
                    return
                case AskModel():
                    await self._ask(step, model_call)
                case RunCalls():
                    await self._run_calls(step)

    async def _refuse_calls(self, reason: MochiError) -> None:
        """Store and publish why the open calls of a turn that continues cannot run."""
        writer = self.turn.writer
        for call in open_calls(writer.added):
            self.turn.restore_decision(call)
            # Not `REPEATED`: a replay runs these calls.
            text = f"This call was not run: {reason.message}"
            outcome = failed(call, text, decided_by=call.progress.decided_by)
            await writer.add_result(call, outcome)
            self.publish([outcome.event()])

    async def _ask(self, step: AskModel, model_call: ModelCall) -> None:
        """Ask the model for an answer and store it.

        Before that, repair the format of an answer that calls no tool, unless it is a plan.
        """
        turn, writer = self.turn, self.turn.writer
        publish = turn.phases.publisher(step.phase, self.publish)
        if step.limit is not None:
            publish([self._limit_warning(step)])
        if self._starts_new_paragraph(step):
            publish([ContentDelta("")])
        schemas = turn.toolbox.schemas() if step.offers_tools else []
        reminders = await turn.phases.reminders(step.phase)
        attempts = AnswerAttempts(
            turn,
            model_call,
            publish,
            reminders,
            schemas,
            allows_calls=step.offers_tools,
            plans=step.phase == "planning",
        )
        answer = await self._answer(attempts, must_call=step.must_call)
        if step.offers_tools and answer.skipped_calls and turn.input.tools.parallel:
            publish([self._skip_warning(answer.skipped_calls)])
        if not answer.tool_calls and step.phase != "planning":
            schema = model_call.schema(offers_tools=bool(schemas))
            await self._repair(answer, model_call, publish, schema)
        message = answer.message()
        client_calls = self._client_call_ids(message)
        if client_calls:
            message["client_tool_calls"] = client_calls
        is_last = isinstance(turn.next_step(message), Finish)
        await writer.add_answer(message, is_last=is_last)
        warnings = writer.take_version_warnings()
        if warnings:  # now, because the turn can be suspended before its end
            publish(warnings)

    async def _answer(self, attempts: AnswerAttempts, *, must_call: bool) -> AnswerBuilder:
        """Return the answer of the model.

        If the model cannot decode an image of an earlier message, ask again without these images.
        Raises ``ImageNotReadable`` for an image of this turn, and other ``MochiError``.
        """
        writer = self.turn.writer
        while True:
            try:
                return await (attempts.forced() if must_call else attempts.send())
            except OllamaError as error:
                if not is_unreadable_image(error):
                    raise
                turn_has_images = await writer.mark_images_unreadable()
                if turn_has_images:
                    raise ImageNotReadable(attempts.model_call.name) from error
                has_hidden_images = await writer.hide_earlier_images()
                if not has_hidden_images:
                    raise
            attempts.model_call.warn(ImageNotReadable.code, _HIDDEN_IMAGES)

    def _starts_new_paragraph(self, step: AskModel) -> bool:
        """Return whether the next answer follows another one in the execution phase, without tool
        results between them.
        """
        added = self.turn.writer.added
        has_executed = step.phase == "execution" and len(added) > 1  # the plan is the first
        return has_executed and added[-1]["role"] == "assistant"

    def _client_call_ids(self, answer: AssistantMessage) -> list[str]:
        """Return the IDs of the calls in an answer that the client runs.

        Malformed arguments can only be sent as text. If the client takes no text, or there is none
        because they are nested too deeply, the call is left out. Then the model receives an error
        as its result.
        """
        tools = self.turn.input.tools
        client_tools = tools.offered_client_tools
        ids = []
        for call in calls_in(answer):
            has_text = tools.takes_text and call.raw_arguments is not None
            is_sendable = call.defect is None or has_text
            if is_sendable and call.name in client_tools:
                ids.append(call.id)
        return ids

    async def _run_calls(self, step: RunCalls) -> None:
        """Run tool calls in order."""
        publish = self.turn.phases.publisher("execution", self.publish)
        for planned in step.calls:
            await self._run_and_store(planned, publish)
        if not self.turn.writer.result().client_tool_calls:
            publish([ToolContinuationStart()])

    async def _run_and_store(self, planned: PlannedCall, publish: Publish) -> None:
        """Run a tool call and store its result. Then publish the result, even if storing failed."""
        writer = self.turn.writer
        call = planned.call
        self.turn.restore_decision(call)
        writer.begin_call(call)
        try:
            outcome = await self._run_call(planned, publish)
        except asyncio.CancelledError:
            if call.progress.is_announced:
                publish([interrupted_event(call)])
            raise
        try:
            await writer.add_result(call, outcome)
        finally:  # the turn can be cancelled meanwhile
            if not outcome.has_own_events:
                publish([outcome.event()])

    async def _run_call(self, planned: PlannedCall, publish: Publish) -> ToolOutcome:
        call = planned.call
        if planned.has_begun:
            return lost_outcome(call, decided_by=call.progress.decided_by)
        if planned.is_repeated:
            call = replace(call, defect=_REPEATED)
        return await self.turn.toolbox.run(call, publish)

    async def _repair(
        self,
        answer: AnswerBuilder,
        model_call: ModelCall,
        publish: Publish,
        schema: dict[str, Any] | None,
    ) -> None:
        """Replace an answer that does not fit ``schema``, and publish a snapshot.

        Raises ``FormatNotMet``, and ``OllamaBusy`` or ``OllamaUnreachable``, after which the client
        can send the request again.
        """
        # If a limit of tokens ended the answer, the client has set that limit.
        if schema is None or answer.done_reason == "length":
            return
        first = answer.content
        problem = await self._format_problem(first, model_call, schema)
        if not problem:
            return
        try:
            text, last = await model_call.repair(first, problem, schema)
        except (OllamaBusy, OllamaUnreachable):
            raise
        except MochiError as error:
            raise FormatNotMet(model_call.name, error.message.rstrip("."), first) from error
        self.turn.writer.replaced.append(answer.message())
        answer.replace(text, last)
        problem = await self._format_problem(answer.content, model_call, schema)
        if problem:
            raise FormatNotMet(model_call.name, problem, answer.content)
        publish([snapshot([*self.turn.writer.added, answer.message()])])

    async def _format_problem(
        self, text: str, model_call: ModelCall, schema: dict[str, Any]
    ) -> str:
        """Return why a text does not fit the schema, or an empty text if it fits.

        Without a checker, every text fits. If the checker cannot check this schema, publish a
        warning.
        """
        if self.turn.checks is None:
            return ""
        result = await self.turn.checks.check_answer(schema, text)
        reason = result.get("unchecked")
        if reason:
            warning = f"The server cannot check the format of the answer: {reason}."
            model_call.warn("FORMAT_NOT_CHECKED", warning)
        return result.get("error", "")

    def _limit_warning(self, step: AskModel) -> TurnWarning:
        rules = self.turn.rules
        if step.limit == "rounds":
            reason = f"made {rules.rounds} rounds of tool calls"
            setting = "MOCHI_MAX_AGENT_ITERATIONS" if rules.plans else "MOCHI_MAX_TOOL_ITERATIONS"
        else:
            reason = f"made the same tool call {rules.identical_calls} times"
            setting = "MOCHI_MAX_IDENTICAL_TOOL_CALLS"
        return TurnWarning("TOOL_LIMIT_REACHED", _LIMIT_REACHED.format(reason, setting))

    def _skip_warning(self, skipped: int) -> TurnWarning:
        text = (
            f"The model made more than {self.turn.rules.calls_per_round} distinct tool calls in "
            f"one round. Skipped calls: {skipped}. Raise the limit with "
            "MOCHI_MAX_TOOL_CALLS_PER_ROUND."
        )
        return TurnWarning("TOOL_CALLS_LEFT_OUT", text)
