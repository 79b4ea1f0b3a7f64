"""One turn that can begin: its checked request, its writer, its tools and its model."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from mochi_server.chat.approvals import SessionApprover
from mochi_server.chat.steps import Phase, Step, TurnRules, next_step
from mochi_server.chat.turn_input import TurnInput
from mochi_server.chat.writer import TurnWriter
from mochi_server.errors import MochiError
from mochi_server.events import Publish, TurnWarning
from mochi_server.inference.gateway import ModelGateway
from mochi_server.inference.waiting import Ticket
from mochi_server.ollama.payloads import qualified_name
from mochi_server.ollama.types import ModelInfo
from mochi_server.services.sessions import SessionService
from mochi_server.sessions.session import ChatSession
from mochi_server.sessions.types import Message
from mochi_server.tools.toolbox import Toolbox, ToolInvocation
from mochi_server.util.schema_checks import SchemaChecks


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
        """Publish the end of a turn that has added ``messages``, or that ``failure`` has ended.

        A cancelled or suspended turn has none.
        """


@dataclass(frozen=True)
class PreparedTurn:
    """Turn, new or continued, whose request was checked. The check stores nothing."""

    input: TurnInput  # without the bytes of its images
    session: ChatSession
    writer: TurnWriter
    toolbox: Toolbox
    model: ModelInfo | MochiError  # model that answers, or the error of its lookup
    gateway: ModelGateway
    rules: TurnRules
    ticket: Ticket = field(default_factory=Ticket)
    phases: Phases = field(default_factory=Phases)
    warnings: Sequence[TurnWarning] = ()  # about what the session enables and the turn cannot use
    approver: SessionApprover | None = None  # approver of the calls if clients can approve them
    sessions: SessionService | None = None
    """Service that stores another model of the request with the session."""
    checks: SchemaChecks | None = None  # check of the last answer with the JSON schema of the turn
    drops_checkpoint: bool = False
    """Whether the summary of the session covers messages that the turn removes."""

    async def with_requested_model(self) -> "PreparedTurn":
        """Store another model of the request with the session. Return the turn with that session.

        Nothing changes if the model was not found.
        """
        name = self.input.model
        session = self.session
        if self.sessions is None or name is None or isinstance(self.model, MochiError):
            return self
        if qualified_name(name) == qualified_name(session.model):
            return self
        switched = await self.sessions.patch(session.session_id, {"model": name})
        return replace(self, session=switched)

    def next_step(self, *messages: Message) -> Step:
        """Return the next step, if the turn adds ``messages`` first."""
        return next_step([*self.writer.added, *messages], self.writer.turn, self.rules)

    def restore_decision(self, call: ToolInvocation) -> None:
        """Record the stored decision on a call, if any, in the progress of the call."""
        if self.approver is not None:
            self.approver.restore_decision(call)
