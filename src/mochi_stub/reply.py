"""Reply of a model, independent of the provider: a sequence of parts that are sent in order."""

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
    """Log probability of a token. `top` are the alternatives, the most likely first."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Reasoning:
    """Reasoning before or between texts. A string is split into chunks; the items of a sequence are the chunks."""

    content: Content


@dataclass(frozen=True)
class Text:
    """Text of the answer, split like `Reasoning`. `logprobs` has one entry per chunk; empty means generated ones."""

    content: Content
    logprobs: tuple[Logprob, ...] = ()


@dataclass(frozen=True)
class ToolCalls:
    """Tool calls of the model, in order."""

    calls: Sequence[ToolCall]


@dataclass(frozen=True)
class Failure:
    """Error of the model. Before the first chunk it sets the HTTP status, later it is an error inside the stream."""

    message: str
    status: int = 500
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Cut:
    """Disconnect in the middle of the stream, without an error and without the last object."""


@dataclass(frozen=True)
class Choice:
    """Index of the choice to which the following parts belong. Only for prompts with `choices`."""

    index: int


@dataclass(frozen=True)
class Pause:
    """Pause in seconds, at speed 1."""

    seconds: float


class Gate:
    """Point at which the reply waits until a test calls `open()`, from any thread. It cannot be closed again."""

    def __init__(self) -> None:
        self._opened: Future[None] = Future()

    def open(self) -> None:
        with suppress(InvalidStateError):  # already open
            self._opened.set_result(None)

    async def wait(self) -> None:
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        self._opened.add_done_callback(lambda _: loop.is_closed() or loop.call_soon_threadsafe(event.set))
        await event.wait()


Part: TypeAlias = "Reasoning | Text | ToolCalls | Choice | Pause | Gate | Failure | Cut"


@dataclass(frozen=True)
class Pace:
    """Chunk size and speed of a reply. The default without a `Pace` is five words per chunk, 50 words per second.

    Attributes:
        characters: Characters per chunk. None means five words.
        characters_per_second: Speed. With infinity, only pauses take time.
        jitter: From 0 to 1. A chunk is sent earlier by at most this share of its delay; the last one is on time.
    """

    characters: int | None = None
    characters_per_second: float = 300.0
    jitter: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Frames:
    """Bytes of a recorded stream or body. `due` has the time of each frame, in nanoseconds after the start."""

    wire: str
    stream: bool
    frames: tuple[bytes, ...]
    due: tuple[int, ...]
    status: int = 200
    content_type: bytes = b"application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True)
class Usage:
    """Token counts. None means that the stub counts. `output` includes `reasoning`."""

    input: int | None = None
    output: int | None = None
    reasoning: int | None = None
    cache_read: int | None = None
    cache_creation: int | None = None


@dataclass(frozen=True)
class Durations:
    """Durations in nanoseconds. None means that the stub calculates them."""

    total: int | None = None
    load: int | None = None
    prompt_eval: int | None = None
    eval: int | None = None


@dataclass(frozen=True)
class Reply:
    """Reply of a model.

    Attributes:
        context: Token IDs that `/api/generate` returns.
        embedding: Vector of an embedding request.
        stop_sequence: Stop sequence of the request that ended the text.
        unasked: Send tool calls even if the request offers no tools.
        rule: Rule that made the reply.
        passed_over: Earlier rules, each with the reason why it did not apply.
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
        """Return a reply of reasoning, text and tool calls, in this order. Empty parts are left out."""
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
    """Return the text of a content, with its pieces joined."""
    return content if isinstance(content, str) else "".join(content)
