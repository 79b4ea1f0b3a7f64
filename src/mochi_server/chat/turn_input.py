"""Input of a turn: the request of any protocol as pure data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from mochi_server.ollama.payloads import qualified_name
from mochi_server.sessions.attachments import Attachment
from mochi_server.sessions.history import complete_length, first_answer_index
from mochi_server.sessions.types import Blob, Image, Message, ToolExecutionPolicy, ToolMessage

HistoryChange = Literal["none", "regenerate", "continue", "edit"]
"""What a turn does to the history before the model answers.

- ``none``: append the new user message.
- ``regenerate``: answer the last user message again. The new answer replaces the messages after it.
- ``continue``: continue after the last complete message, even if that message is not from the user.
- ``edit``: replace the text of a stored user message, remove the messages after it, and answer it.
"""


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """Generation options for one answer.

    If an option is None, the default of the session or the model is used.
    """

    think: bool | str | None = None
    options: dict[str, Any] | None = None
    format: str | dict[str, Any] | None = None
    """An empty string is plain text, even if the session has a format."""
    keep_alive: str | float | None = None
    thinks_by_default: bool = False
    """Whether the model may think if neither the request nor the session sets `think`."""
    answer_tokens: int = 0
    """Room for the answer in the first context window of a model, in tokens."""
    logprobs: int | None = None
    """Number of alternative tokens with log probabilities for each token."""
    think_level: bool | str | None = None
    """Replaces the ``think`` of the request or the session if that enables thinking."""

    def thinking(self, default: bool | str | None) -> bool | str | None:
        """Return the ``think`` of the answer. ``default`` is that of the session."""
        think = self.think
        if think is None:
            think = default
        if not think or self.think_level is None:
            return think
        return self.think_level

    def answer_format(self, default: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
        """Return the format of the answer. ``default`` is the format of the session."""
        return (default if self.format is None else self.format) or None


@dataclass(frozen=True, slots=True)
class ToolSelection:
    """Tools that the model may call in a turn. ``names`` replaces the session's enabled tools."""

    names: Sequence[str] | None = None
    client_tools: Sequence[dict[str, Any]] = ()
    """Schemas of the tools that the client runs, in Ollama's format."""
    may_call: bool = True
    must_call: bool = False  # whether the first answer must call a tool
    omits_tools: bool = False
    """Whether the request has other tools, which the server omits.

    If no tool remains, no call is required.
    """
    only: frozenset[str] | None = None
    """Names of the only tools to offer, or None to offer all tools."""
    parallel: bool = True
    """Whether an answer may call several tools; else the server drops all but the first."""
    takes_text: bool = True
    """Whether the client receives arguments as text, which may be malformed."""

    @property
    def offered_client_tools(self) -> frozenset[str]:
        """Names of the client's tools that the model may call."""
        if not self.may_call:
            return frozenset()
        names = frozenset(tool["function"]["name"] for tool in self.client_tools)
        return names if self.only is None else names & self.only


@dataclass(frozen=True, slots=True)
class TurnInput:
    """Request for a turn, the same for every protocol.

    It contains no functions and nothing of HTTP.
    """

    text: str | None = None  # new user message, or the new text of the edited message
    images: tuple[Image, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    results: Sequence[ToolMessage] = ()  # results of client tools, stored before the user message
    result_images: tuple[Image, ...] = ()  # images to which the results refer
    change: HistoryChange = "none"
    edit_index: int | None = None  # index of the user message to edit, if `change` is `edit`
    continued_length: int = 0
    """Number of complete messages of the interrupted turn to continue."""
    generation: GenerationOptions = field(default_factory=GenerationOptions)
    """Overrides the session's defaults."""
    tools: ToolSelection = field(default_factory=ToolSelection)
    policy: ToolExecutionPolicy | None = None
    """Tool execution policy of an agent without a user; None is `always_confirm`."""
    model: str | None = None
    """Requested model, to which a stored session switches; None for the session's model."""
    agent: str | None = None  # name of the agent that answers in its own session, if any
    instructions: str | None = None
    """Text that is added to the system prompt for this turn and never stored."""
    if_busy: Literal["reject", "wait"] = "reject"
    if_waiting: Literal["reject", "deny"] = "reject"
    """If the session's turn waits for approval: deny the calls."""
    on_disconnect: Literal["cancel", "continue"] = "cancel"
    interactive: bool = True  # whether clients can approve tool calls
    retry_advice: str = ""
    """How to get an answer to the stored message if the model gives none."""
    key: str | None = None
    revision: str | None = None
    """Expected revision; if it differs, the turn fails with `SessionConflict`."""

    @property
    def new_message(self) -> str | None:
        return self.text if self.change == "none" else None

    def answer_index(self, messages: Sequence[Message]) -> int:
        """Return the index of the answer, which replaces all messages from this index on.

        The answer of an interrupted turn that continues includes its complete messages.
        """
        if self.change == "continue":
            return complete_length(messages) - self.continued_length
        return first_answer_index(messages)

    def is_same_request(self, other: "TurnInput") -> bool:
        """Return whether the message, its blobs and the model are equal.

        Other fields, such as the options, the tools and the results, are not compared.
        """
        return (
            qualified_name(self.model or "") == qualified_name(other.model or "")
            and self.text == other.text
            and self.images == other.images
            and self.attachments == other.attachments
        )

    @property
    def new_blobs(self) -> tuple[Blob, ...]:
        """Images and files of the new messages, which are stored with them."""
        blobs: list[Blob] = [*self.images, *self.result_images]
        for attachment in self.attachments:
            blobs.extend(attachment.blobs)
        return tuple(blobs)

    def without_data(self) -> "TurnInput":
        """Return the input without the bytes of its images and files."""
        if not self.new_blobs:
            return self
        attachments = tuple(attachment.without_data() for attachment in self.attachments)
        images = tuple(image.without_data() for image in self.images)
        result_images = tuple(image.without_data() for image in self.result_images)
        return replace(self, images=images, attachments=attachments, result_images=result_images)


@cache
def _adapter() -> TypeAdapter[TurnInput]:
    return TypeAdapter(TurnInput)  # built at its first use, because building it is slow


def stored_input(turn_input: TurnInput, *, replaces: bool) -> dict[str, Any]:
    """Return the JSON object from which a turn continues after its messages were stored.

    It lacks what the session has then: the messages and the model. ``replaces`` states whether the
    answer replaces stored messages.
    """
    continued = TurnInput(
        change="regenerate" if replaces else "continue",
        continued_length=turn_input.continued_length,
        generation=turn_input.generation,
        tools=turn_input.tools,
        policy=turn_input.policy,
        instructions=turn_input.instructions,
        on_disconnect=turn_input.on_disconnect,
        interactive=turn_input.interactive,
    )
    values: dict[str, Any] = _adapter().dump_python(continued, mode="json", exclude_defaults=True)
    return values


def restored_input(stored: Mapping[str, Any]) -> TurnInput:
    """Return the input of a stored turn. Raises ``ValueError`` with the field if it is invalid."""
    try:
        return _adapter().validate_python(dict(stored))
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"input.{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
