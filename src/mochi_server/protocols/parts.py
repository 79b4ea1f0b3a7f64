"""Parts of an answer, to which all protocols but the native one convert the events of a run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mochi_server.chat.turn_result import TurnResult
from mochi_server.errors import MochiError
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


class Reasoning(_Delta):
    """Piece of the model's reasoning or of the text of an agent."""


@dataclass(frozen=True, slots=True)
class TextEnd:
    """End of the current text or reasoning."""


@dataclass(frozen=True, slots=True)
class Call:
    """Tool call that the server runs, including the calls of agents.

    The ID is unique in the session.
    """

    id: str
    name: str
    arguments: Json


@dataclass(frozen=True, slots=True)
class Approval:
    """Request for the approval of the call ``call_id``. The ``Call`` precedes it."""

    call_id: str
    confirmation_id: str
    tool_name: str


@dataclass(frozen=True, slots=True)
class Result:
    """Result of the call ``call_id``. ``error`` is None on success."""

    call_id: str
    output: str
    error: str | None = None
    is_denied: bool = False
    """Whether the call did not run because it was not approved."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Event that most protocols do not have, such as a warning."""

    name: str
    payload: Json
    is_transient: bool = False
    """Whether the notice is only a state of the stream, and not a part of the answer."""


def omitted_content(kinds: Mapping[str, int]) -> list[Notice]:
    """Return a warning for each kind of content of a request that the model does not receive, with
    the number of its occurrences.
    """
    notices = []
    for kind, count in kinds.items():
        text = f"The model did not receive content of the type {kind!r} in the request: {count}."
        notices.append(Notice("warning", {"code": "CONTENT_LEFT_OUT", "message": text}))
    return notices


def omitted_tools(provider: str, names: Iterable[str]) -> list[Notice]:
    """Return a warning for each tool of a request that only the provider itself could run."""
    notices = []
    for name in names:
        text = f"Only {provider}'s own API has the tool {name!r}. The request omits this tool."
        notices.append(Notice("warning", {"code": "TOOL_LEFT_OUT", "message": text}))
    return notices


@dataclass(frozen=True, slots=True)
class Step:
    """Boundary between the answers to two requests to the model. A text or a call follows."""


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


Part = Text | Reasoning | TextEnd | Call | Approval | Result | Notice | Step | End
