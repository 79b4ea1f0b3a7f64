"""One turn that can begin: its checked request, its writer, its tools and its model."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from mochi_server.chat.approvals import SessionApprover
from mochi_server.chat.loop import Phases, ToolLoopLimits, TurnLoop
from mochi_server.chat.model_call import ModelCall, save_window
from mochi_server.chat.steps import Finish, TurnRules, next_step
from mochi_server.chat.turn_input import GenerationOptions, TurnInput
from mochi_server.chat.turn_result import open_calls
from mochi_server.chat.writer import TurnWriter
from mochi_server.errors import MochiError
from mochi_server.events import Publish, TurnWarning
from mochi_server.inference.gateway import ModelGateway
from mochi_server.inference.waiting import Ticket
from mochi_server.ollama.payloads import qualified_name
from mochi_server.ollama.types import ModelInfo
from mochi_server.services.sessions import SessionService
from mochi_server.sessions.session import ChatSession
from mochi_server.tools.toolbox import DecidedBy, Toolbox, ToolInvocation, failed
from mochi_server.util.schema_checks import SchemaChecks


@dataclass(frozen=True)
class PreparedTurn:
    """Turn whose request was checked. Nothing is stored yet."""

    input: TurnInput  # without the bytes of its images
    session: ChatSession
    writer: TurnWriter
    toolbox: Toolbox
    model: ModelInfo | MochiError  # model that answers, or the error of its lookup
    gateway: ModelGateway
    limits: ToolLoopLimits
    generation: GenerationOptions
    ticket: Ticket = field(default_factory=Ticket)
    plans: bool = False  # whether an agent answers
    phases: Phases = field(default_factory=Phases)
    warnings: Sequence[TurnWarning] = ()  # about what the session enables and the turn cannot use
    approver: SessionApprover | None = None  # approver of the calls if clients can approve them
    # Service that stores another model of the request with the session.
    sessions: SessionService | None = None
    checks: SchemaChecks | None = None  # check of the last answer with the JSON schema of the turn
    # Whether the summary of the session covers messages that the turn removes.
    drops_checkpoint: bool = False

    @property
    def rules(self) -> TurnRules:
        must_call = self.input.tools.must_call
        return TurnRules(self.limits.rounds, self.limits.identical_calls, self.plans, must_call)

    async def play(self, publish: Publish) -> None:
        """Do the steps of the turn until it is complete. Raises ``MochiError``."""
        writer = self.writer
        if isinstance(
            next_step(writer.added, writer.turn, self.rules), Finish
        ):  # the server stopped after the answer
            return
        await self.phases.begin(publish)
        try:
            await self._play(publish)
        except MochiError as error:
            self.phases.complete(publish, writer.added, error)
            raise
        self.phases.complete(publish, writer.added, None)

    async def _play(self, publish: Publish) -> None:
        writer = self.writer
        if isinstance(self.model, MochiError):
            await self._refuse_calls(self.model, publish)
            raise self.model
        session = await self._with_requested_model()
        if self.drops_checkpoint:
            await writer.wait_until_stored()
            await writer.conversation.patch({"compaction": None})
        report = self.phases.publisher("planning", publish)
        model_call = ModelCall(
            self.gateway, writer, report, self.model, session, self.generation, self.ticket
        )
        if not (self.plans and writer.added):  # an agent that continues has reported them
            warnings = [*self.warnings, *model_call.warnings(self.toolbox.schemas())]
            if warnings:
                publish(warnings)
        if self.input.new_images:
            await writer.wait_until_stored()  # the prompt is built from the stored images
        loop = TurnLoop(
            model_call,
            writer,
            self.toolbox,
            self.rules,
            self.limits,
            publish,
            self.phases,
            parallel_calls=self.input.tools.parallel,
            checks=self.checks,
            decided_by=_by_policy if self.approver is None else self.approver.decided_by,
        )
        try:
            await loop.run()
        finally:
            writer.window = model_call.allocation.decision
        await save_window(model_call.allocation, session, writer.conversation.store)

    async def _with_requested_model(self) -> ChatSession:
        wanted = self.input.model
        if (
            self.sessions is None
            or wanted is None
            or qualified_name(wanted) == qualified_name(self.session.model)
        ):
            return self.session
        return await self.sessions.patch(self.session.session_id, {"model": wanted})

    async def _refuse_calls(self, reason: MochiError, publish: Publish) -> None:
        """Store why the open calls of a turn that continues cannot run."""
        calls = open_calls(self.writer.added)
        self.writer.expect_results(calls)
        for call in calls:
            decided_by = (
                _by_policy(call) if self.approver is None else self.approver.decided_by(call)
            )
            outcome = failed(
                call, f"This call was not run: {reason.message}", decided_by=decided_by
            )
            await self.writer.add_result(call, outcome)
            publish([outcome.event()])


def _by_policy(_: ToolInvocation) -> DecidedBy:
    return "policy"
