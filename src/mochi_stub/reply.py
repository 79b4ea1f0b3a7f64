"""Replies of a model in a form that is independent of the provider.

A reply is a sequence of parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

from mochi_stub.http import HttpResponse
from mochi_stub.prompt import ToolCall

Finish = Literal["stop", "length", "content_filter"]
Content: TypeAlias = "str | Sequence[str]"


@dataclass(frozen=True)
class Logprob:
    """Log probability of a token.

    `top` lists alternative tokens with log probabilities, the most likely first.
    """

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Reasoning:
    """Reasoning of the model.

    A string is split into chunks. In a sequence of strings, each item is one chunk.
    """

    content: Content


@dataclass(frozen=True)
class Text:
    """Text of the reply.

    A string is split into chunks. In a sequence of strings, each item is one chunk.

    `logprobs` has one entry for each chunk. If `logprobs` is empty, the stub generates the log
    probabilities.
    """

    content: Content
    logprobs: tuple[Logprob, ...] = ()


@dataclass(frozen=True)
class ToolCalls:
    """Tool calls of the model, in order."""

    calls: Sequence[ToolCall]


@dataclass(frozen=True)
class Failure:
    """Error of the model: an HTTP error before the first chunk, or else an error in the stream."""

    message: str
    status: int = 500
    headers: tuple[tuple[str, str], ...] = ()


class HttpError(Exception):
    """Exception that becomes an error response.

    `details` are additional fields of the error object. Those that a provider lacks are left out.
    """

    def __init__(
        self, status: int, message: str, headers: tuple[tuple[str, str], ...] = (), **details: Any
    ) -> None:
        super().__init__(status, message)
        self.failure = Failure(message, status, headers)
        self.details = details


@dataclass(frozen=True)
class Cut:
    """Premature end of the stream, without an error and without the last object of the stream.

    A response without streaming is complete: it also has the parts after the cut.
    """


@dataclass(frozen=True)
class Choice:
    """Start of a choice in a reply with several choices.

    The parts after it belong to the choice `index`.
    """

    index: int


@dataclass(frozen=True)
class Pause:
    """Pause before the next part. The stub divides `seconds` by its speed."""

    seconds: float


class Gate:
    """Part at which a reply waits until a test calls `open()`, from any thread.

    An open gate stays open.
    """

    def __init__(self) -> None:
        self._opened: Future[None] = Future()

    def open(self) -> None:
        with suppress(InvalidStateError):  # already open
            self._opened.set_result(None)

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        event = asyncio.Event()

        def wake(_opened: Future[None]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

        self._opened.add_done_callback(wake)
        await event.wait()


Part: TypeAlias = Reasoning | Text | ToolCalls | Choice | Pause | Gate | Failure | Cut


@dataclass(frozen=True)
class Pace:
    """Chunk size and speed of a reply.

    A reply without a `Pace` is timed by words: a chunk has five words, and 50 words are sent per
    second. A `Pace` is timed by characters, also if its chunks have five words, as in `Pace()`.

    Attributes:
        characters: Characters per chunk. None means five words.
        characters_per_second: Speed of the text. If it is infinite, only pauses and `delay` take
            time.
        jitter: Maximum fraction of a chunk's delay by which a chunk before the last is sent early,
            from 0 to 1.
        seed: Seed of the jitter.
        delay: Additional delay before each chunk, in seconds.
    """

    characters: int | None = None
    characters_per_second: float = 300.0
    jitter: float = 0.0
    seed: int = 0
    delay: float = 0.0


@dataclass
class Frames:
    """Recorded body, or objects of a recorded stream, and encoder that sends them unchanged.

    `path` is the ending of the recorded path. `due` has the send time of each text in nanoseconds
    after the start of the reply.
    """

    path: str
    stream: bool
    texts: tuple[str, ...]
    due: tuple[int, ...]
    status: int = 200
    content_type: bytes = b"application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def chunk(self, pieces: list[Any]) -> bytes:
        texts = [piece.value for piece in pieces]
        return "".join(texts).encode()

    def end(self) -> bytes:
        return b""

    def error(self, failure: Failure) -> bytes:
        return failure.message.encode()

    def complete_response(self) -> HttpResponse:
        body = "".join(self.texts).encode()
        return HttpResponse(self.status, body, self.content_type, self.headers)


@dataclass(frozen=True)
class Usage:
    """Token counts of a reply.

    The stub calculates counts that are None. `output` includes `reasoning`.
    """

    input: int | None = None
    output: int | None = None
    reasoning: int | None = None
    cache_read: int | None = None
    cache_creation: int | None = None


@dataclass(frozen=True)
class Durations:
    """Durations of a reply in nanoseconds. The stub calculates durations that are None."""

    total: int | None = None
    load: int | None = None
    prompt_eval: int | None = None
    eval: int | None = None


@dataclass(frozen=True)
class Reply:
    """Reply of a model.

    Attributes:
        context: Token IDs for the field `context` of `/api/generate`.
        embedding: Vector for the response to an embedding request.
        stop_sequence: Stop sequence at which the text ended, or None.
        sends_unoffered_calls: Whether tool calls are sent even if the request offers no tools.
        rule: Name of the rule that selected the reply.
        passed_over: Rules that were tried before `rule`, each with the reason why it did not apply.
    """

    parts: Sequence[Part] = ()
    finish: Finish = "stop"
    usage: Usage = Usage()
    durations: Durations = Durations()
    context: Sequence[int] | None = None
    embedding: Sequence[float] | None = None
    stop_sequence: str | None = None
    pace: Pace | None = None
    sends_unoffered_calls: bool = False
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
        """Return a reply that consists of reasoning, text and tool calls, in this order.

        Empty parts are omitted.
        """
        parts: list[Part] = []
        if reasoning:
            parts.append(Reasoning(reasoning))
        if text:
            parts.append(Text(text))
        if tool_calls:
            parts.append(ToolCalls(tool_calls))
        return cls(parts, finish=finish, usage=usage or Usage())

    @cached_property
    def reasoning(self) -> str:
        """Reasoning of all choices, including the parts after a `Cut` or `Failure`."""
        return "".join([joined(part.content) for part in self.parts if isinstance(part, Reasoning)])

    @cached_property
    def text(self) -> str:
        """Text of all choices, including the parts after a `Cut` or `Failure`."""
        return "".join([joined(part.content) for part in self.parts if isinstance(part, Text)])

    @cached_property
    def tool_calls(self) -> list[ToolCall]:
        found: list[ToolCall] = []
        for part in self.parts:
            if isinstance(part, ToolCalls):
                found += part.calls
        return found

    @property
    def mode(self) -> str:
        """Kinds of parts in their order, for example `reasoning+text` or `text+cut`, or "empty".

        A `Failure` is `error`. Choices, pauses and gates do not count.
        """
        kinds: list[str] = []
        for part in self.parts:
            kind = _MODES.get(type(part))
            if kind is not None and kind not in kinds:
                kinds.append(kind)
        return "+".join(kinds) or "empty"


Scripted: TypeAlias = "Reply | str | ToolCall"
_MODES = {
    Reasoning: "reasoning",
    Text: "text",
    ToolCalls: "tool_calls",
    Failure: "error",
    Cut: "cut",
}


def as_reply(value: object) -> Reply:
    """Return the reply for a scripted text, `ToolCall` or `Reply`.

    Raises TypeError for invalid values.
    """
    if isinstance(value, str):
        return Reply.of(value)
    if isinstance(value, ToolCall):
        value = Reply([ToolCalls([value])], sends_unoffered_calls=True)
    if not isinstance(value, Reply):
        raise TypeError(f"a reply must be a text, a ToolCall or a Reply, not {value!r}")
    for part in value.parts:
        if not isinstance(part, Part):
            expected = "Text, Reasoning, ToolCalls or another part"
            raise TypeError(f"a part of a Reply must be {expected}, not {part!r}")
    return value


def joined(content: Content) -> str:
    """Return the text of a content."""
    if isinstance(content, str):
        return content
    return "".join(content)
