"""Reply of a model on any wire: a sequence of parts, played in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mochi_stub.prompt import ToolCall

Finish = Literal["stop", "length", "content_filter"]
Content: TypeAlias = "str | Sequence[str]"


@dataclass(frozen=True)
class Logprob:
    """How likely a token was, and its rivals, the most likely first."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Reasoning:
    """Thinking. A string is cut into chunks of five words, a sequence is sent piece by piece as it is."""

    content: Content


@dataclass(frozen=True)
class Text:
    """Answer. Cut like `Reasoning`; `logprobs` are one for each piece, made up where they are empty."""

    content: Content
    logprobs: tuple[Logprob, ...] = ()


@dataclass(frozen=True)
class ToolCalls:
    """Calls that the model makes, in order."""

    calls: Sequence[ToolCall]


@dataclass(frozen=True)
class Failure:
    """The model fails here: an HTTP status where nothing was sent yet, else an error inside the stream."""

    message: str
    status: int = 500
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Cut:
    """The stream ends here, without error and without its last object."""


@dataclass(frozen=True)
class Choice:
    """What follows belongs to the choice of this index; only for prompts whose wire has room for several."""

    index: int


@dataclass(frozen=True)
class Pause:
    """Nothing comes for so many seconds, at speed 1."""

    seconds: float


class Gate:
    """The reply waits here until `open()` is called, from any thread; once open it stays open."""

    def __init__(self) -> None:
        self._opened: Future[None] = Future()

    def open(self) -> None:
        with suppress(InvalidStateError):  # it is open
            self._opened.set_result(None)

    async def wait(self) -> None:
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        self._opened.add_done_callback(lambda _: loop.is_closed() or loop.call_soon_threadsafe(event.set))
        await event.wait()


Part: TypeAlias = "Reasoning | Text | ToolCalls | Choice | Pause | Gate | Failure | Cut"


@dataclass(frozen=True)
class Pace:
    """How a reply is cut and timed, where it is not five words at a time and fifty words a second.

    `characters` is the length of a chunk (None: five words), `characters_per_second` how fast they come, as fast as
    the words do where it is not said; infinity leaves the time to pauses. `jitter` between 0 and 1 lets a chunk come
    early by up to that share of its time, by how much depends on `seed`; the last chunk is on time.
    """

    characters: int | None = None
    characters_per_second: float = 300.0
    jitter: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Frames:
    """A response as it was recorded, for requests on the wire and in the mode in which it was.

    `frames` are the bytes of a stream, one for each object, or the one body; `due` says when each is sent, in
    nanoseconds after the start.
    """

    wire: str
    stream: bool
    frames: tuple[bytes, ...]
    due: tuple[int, ...]
    status: int = 200
    content_type: bytes = b"application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True)
class Usage:
    """Tokens; None: counted. `output` has the `reasoning` in it."""

    input: int | None = None
    output: int | None = None
    reasoning: int | None = None
    cache_read: int | None = None
    cache_creation: int | None = None


@dataclass(frozen=True)
class Durations:
    """Nanoseconds; None: planned."""

    total: int | None = None
    load: int | None = None
    prompt_eval: int | None = None
    eval: int | None = None


@dataclass(frozen=True)
class Reply:
    """One reply.

    `context` are the token ids that a plain generation hands back, `embedding` is the vector of an embedding request.
    The `stop` and `num_predict` of a request cut scripted replies too; `stop_sequence` is the one that did.
    `unasked`: thinking and tool calls are sent also to who did not ask for them. `frames` are there where the reply was
    recorded. `rule` names what made the reply, `passed_over` says of what stood before it why it did not.
    """

    parts: Sequence[Part] = ()
    finish: Finish = "stop"
    usage: Usage = Usage()
    durations: Durations = Durations()
    context: Sequence[int] | None = None
    embedding: Sequence[float] | None = None
    stop_sequence: str | None = None
    pace: Pace | None = None
    unasked: bool = False
    frames: Frames | None = None
    rule: str = ""
    passed_over: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        text: Content = "",
        *,
        reasoning: Content = "",
        tool_calls: Sequence[ToolCall] = (),
        finish: Finish = "stop",
        usage: Usage | None = None,
    ) -> Reply:
        """The usual order: reasoning, text, tool calls; what is empty is left out."""
        parts: list[Part] = [Reasoning(reasoning)] if reasoning else []
        parts += [Text(text)] if text else []
        parts += [ToolCalls(tool_calls)] if tool_calls else []
        return cls(parts, finish=finish, usage=usage or Usage())

    @property
    def reasoning(self) -> str:
        return "".join(joined(part.content) for part in self.parts if isinstance(part, Reasoning))

    @property
    def text(self) -> str:
        return "".join(joined(part.content) for part in self.parts if isinstance(part, Text))

    @property
    def tool_calls(self) -> list[ToolCall]:
        return [call for part in self.parts if isinstance(part, ToolCalls) for call in part.calls]


def joined(content: Content) -> str:
    """The whole text, whether or not it came in pieces."""
    return content if isinstance(content, str) else "".join(content)
