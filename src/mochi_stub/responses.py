"""Types of response in a configuration, and the reply that each makes of a prompt."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

from mochi_stub.catalogue import Model
from mochi_stub.chunks import chunked
from mochi_stub.document import ConfigError, Item
from mochi_stub.lorem import stable_hash
from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.recordings import reply_of
from mochi_stub.reply import Content, Cut, Failure, Finish, Pace, Part, Pause, Reasoning, Reply, Text, Usage, joined
from mochi_stub.unscripted import task_answer, unscripted

Profile = Literal["words", "token", "chunky"]
CHARACTERS: dict[Profile, int | None] = {"words": None, "token": 4, "chunky": 40}


@dataclass(frozen=True)
class Manner:
    """How a reply streams; None: not said.

    Attributes:
        profile: How large the chunks are. `token`: 4 characters; `chunky`: 40; `words`: five words.
        tokens_per_second: The whole reply takes (characters / `chars_per_token`) / `tokens_per_second` seconds.
        jitter: From 0 to 1. A chunk may come early by up to that share of its own time; by how much depends on the
            message alone.
        pause: A silence of `seconds` behind so many chunks, as in `{after: 2, seconds: 10}`.
        fail: An error behind so many chunks, as in `{after: 2, status: 429, message: Slow down, headers: {}}`.
        cut_after: The stream breaks off behind that many chunks, without its end.
    """

    profile: Profile | None = None
    tokens_per_second: float | None = None
    jitter: float | None = None
    pause: tuple[int, float] | None = None
    fail: tuple[int, Failure] | None = None
    cut_after: int | None = None

    def over(self, other: Manner) -> Manner:
        """What is said here, and of the rest what is said there."""
        return replace(other, **{name: value for name, value in vars(self).items() if value is not None})


KINDS = {
    "message": "What is given in `content`.",
    "echo": "The latest user message as it is.",
    "mirror": "The request as JSON.",
    "lorem": "What a model says that nobody has scripted: filler text, then what it was told.",
    "task": "The JSON that Open WebUI asks its task model for: title, tags, queries, follow-ups, image prompt, "
    "completion, emoji or function call. Anything else is answered as if nobody had scripted it.",
}
"""The types of messages."""


@dataclass(frozen=True)
class Message:
    """What is given in `content`.

    Attributes:
        content: The text, or a list of the pieces in which it is sent.
        reasoning: What the model thinks first; a text, or a list of pieces.
        tool_calls: A list of `{name, arguments, id}`.
        usage: Token counts: `input`, `output` (the total, reasoning in it), `reasoning`, `cache_read`,
            `cache_creation`. What is not given is counted.
        finish: Why the reply ends: `stop`, `length` or `content_filter`.
        think_tags: With `true` the reasoning is part of the text, between `<think>` and `</think>`.
    """

    kind: str = "message"
    content: Content = ""
    reasoning: Content = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    finish: Finish = "stop"
    think_tags: bool = False
    manner: Manner = Manner()


@dataclass(frozen=True)
class Vector:
    """The vector of an embedding request.

    Attributes:
        vector: `zero`, or a list of numbers.
    """

    numbers: tuple[float, ...] | None = None
    manner: Manner = Manner()


@dataclass(frozen=True)
class Error:
    """A failure instead of a reply.

    Attributes:
        status: The HTTP status, from 400 to 599; 500 where it is not given.
        message: The text of the error, in the words of the provider's envelope.
        headers: A mapping of headers, without those that the server sets itself (`connection`, `content-length`,
            `content-type`, `transfer-encoding`).
    """

    failure: Failure
    manner: Manner = Manner()


@dataclass(frozen=True)
class File:
    """A recorded reply. A file that cannot be used is a failure that says why.

    Attributes:
        path: The recorded file, counted from the configuration's folder.
    """

    path: Path
    manner: Manner
    place: Item


Response: TypeAlias = "Message | Vector | Error | File"


def reply_to(prompt: Prompt, response: Response, model: Model) -> Reply:
    """Return the reply that a response makes of a prompt."""
    if isinstance(response, Vector):
        return Reply(embedding=response.numbers or (0.0,) * model.embedding_length)
    if isinstance(response, Error):
        return Reply([response.failure])
    if isinstance(response, Message):
        return _said(prompt, response)
    try:
        return reply_of(response.path)
    except ConfigError as error:
        return Reply([Failure(str(error))])


def _said(prompt: Prompt, message: Message) -> Reply:
    if message.kind == "lorem":
        return replace(unscripted(prompt), finish=message.finish, usage=message.usage)
    content: Content | None = message.content
    if message.kind == "task":
        content = task_answer(prompt)
    elif message.kind == "mirror":
        content = prompt.request.decode(errors="replace")
    elif message.kind == "echo":
        content = prompt.user_text
    if content is None:
        return unscripted(prompt)
    reasoning = message.reasoning
    if message.think_tags and reasoning:
        content, reasoning = f"<think>{joined(reasoning)}</think>\n\n{joined(content)}", ""
    calls, finish, usage = message.tool_calls, message.finish, message.usage
    return Reply.of(content, reasoning=reasoning, tool_calls=calls, finish=finish, usage=usage)


def in_manner(reply: Reply, manner: Manner, model: Model, prompt: Prompt) -> Reply:
    """Return the reply, cut, timed and interrupted as the manner says."""
    if manner == Manner():
        return reply
    made = replace(in_pace(reply, manner, model, prompt), frames=None)
    if manner.pause:
        made = _after(made, manner.pause[0], Pause(manner.pause[1]))
    if manner.cut_after is not None:
        made = _after(made, manner.cut_after, Cut())
    return _after(made, *manner.fail) if manner.fail else made


def in_pace(reply: Reply, manner: Manner, model: Model, prompt: Prompt) -> Reply:
    """Return the reply, cut and timed as the manner says."""
    if manner.profile is None and manner.tokens_per_second is None and manner.jitter is None:
        return reply
    pace = Pace(CHARACTERS[manner.profile or "words"], jitter=manner.jitter or 0.0, seed=stable_hash(prompt.user_text))
    rate = manner.tokens_per_second
    return replace(reply, pace=replace(pace, characters_per_second=rate * model.chars_per_token) if rate else pace)


def _after(reply: Reply, count: int, part: Part) -> Reply:
    """Insert a part after the first `count` chunks, or at the end if there are fewer."""
    parts: list[Part] = []
    for index, one in enumerate(reply.parts):
        if not isinstance(one, (Reasoning, Text)):
            parts.append(one)
            continue
        chunks = chunked(one.content, reply.pace)
        if len(chunks) >= count:
            before, after = (replace(one, content=some) for some in (chunks[:count], chunks[count:]))
            return replace(reply, parts=[*parts, before, part, after, *reply.parts[index + 1 :]])
        count -= len(chunks)
        parts.append(replace(one, content=chunks))
    return replace(reply, parts=[*parts, part])
