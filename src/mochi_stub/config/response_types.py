"""Response types of a configuration, and their conversion to replies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

from mochi_stub.config.yaml_source import ConfigError, Item
from mochi_stub.models.catalogue import Model
from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.recording.files import recorded
from mochi_stub.replies.chunks import chunked
from mochi_stub.replies.default_reply import default_reply, ui_task_reply
from mochi_stub.replies.demo_reply import demo_reply
from mochi_stub.replies.lorem import stable_hash
from mochi_stub.reply import Content, Cut, Failure, Finish, Pace, Part, Pause, Reasoning, Reply, Text, Usage, joined

Profile = Literal["words", "token", "chunky"]
CHUNK_SIZES: dict[Profile, int | None] = {"words": None, "token": 4, "chunky": 40}


@dataclass(frozen=True)
class ReplySettings:
    """Stream settings of a reply. A field is None if the configuration does not set it.

    Attributes:
        profile: Size of the chunks. `token`: 4 characters, `chunky`: 40 characters, `words`: five words.
        tokens_per_second: Speed. A reply takes (characters / `chars_per_token`) / `tokens_per_second` seconds.
        jitter: Maximum fraction of a chunk's delay by which the chunk is sent early, from 0 to 1. The same user message
            always gives the same jitter.
        delay: Additional delay before each chunk, in seconds.
        pause: A pause of `seconds` after a number of chunks, for example `{after: 2, seconds: 10}`.
        fail: An error after a number of chunks: `{after: 2, status: 429, message: Slow down, headers: {}}`.
        cut_after: Number of chunks after which the stream ends early, without its last object.
    """

    profile: Profile | None = None
    tokens_per_second: float | None = None
    jitter: float | None = None
    delay: float | None = None
    pause: tuple[int, float] | None = None
    fail: tuple[int, Failure] | None = None
    cut_after: int | None = None

    def merged_over(self, other: ReplySettings) -> ReplySettings:
        """Return these settings. Values that are not set (None) are taken from `other`."""
        own = {name: value for name, value in vars(self).items() if value is not None}
        return replace(other, **own) if own else other


_NO_SETTINGS = ReplySettings()

KINDS = {  # types of message responses, with their descriptions for the reference page
    "message": "The text of `content`.",
    "echo": "The latest user message, unchanged.",
    "mirror": "The request as JSON.",
    "lorem": "The built-in reply: filler text, followed by the latest user message.",
    "task": "The JSON that Open WebUI requests for a title, tags, queries, follow-ups, an image prompt, a completion, "
    "an emoji or a function call. Other requests get the built-in reply.",
    "demo": "The reply of the model `mochi-demo`: a short sentence, calls of the offered tools that the message names, "
    "or a sentence with the results of these calls.",
}


@dataclass(frozen=True)
class MessageResponse:
    """A configured reply with text, reasoning and tool calls.

    Attributes:
        content: A text, or a list of texts that are sent as separate chunks.
        reasoning: The reasoning before the text: a text or a list of texts.
        tool_calls: A list of tool calls, each `{name, arguments, id}`.
        usage: Token counts: `input`, `output` (including reasoning), `reasoning`, `cache_read`, `cache_creation`. If
            a count is missing, the stub calculates it.
        finish: Finish reason: `stop`, `length` or `content_filter`.
        think_tags: `true` puts the reasoning into the text, between `<think>` and `</think>`.
    """

    kind: str = "message"
    content: Content = ""
    reasoning: Content = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    finish: Finish = "stop"
    think_tags: bool = False
    settings: ReplySettings = ReplySettings()


@dataclass(frozen=True)
class VectorResponse:
    """A fixed vector as the response to an embedding request.

    Attributes:
        vector: `zero` for a vector of zeros, or a list of numbers.
    """

    numbers: tuple[float, ...] | None = None
    settings: ReplySettings = ReplySettings()


@dataclass(frozen=True)
class ErrorResponse:
    """An error instead of a reply.

    Attributes:
        status: The HTTP status, from 400 to 599. Default: 500.
        message: The text of the error. It is sent in the error format of the provider.
        headers: A mapping of HTTP headers. The names `connection`, `content-length`, `content-type` and
            `transfer-encoding` are rejected, because the server sets these headers itself.
    """

    failure: Failure
    settings: ReplySettings = ReplySettings()


@dataclass(frozen=True)
class FileResponse:
    """A recorded reply. If the file is missing or invalid, the reply is an error that names the problem.

    Attributes:
        path: The recorded file, relative to the folder of the configuration.
    """

    path: Path
    settings: ReplySettings
    source: Item


Response: TypeAlias = "MessageResponse | VectorResponse | ErrorResponse | FileResponse"


def reply_to(prompt: Prompt, response: Response, model: Model) -> Reply:
    """Return the reply that a configured response gives to a prompt. An invalid recorded file gives an error reply."""
    if isinstance(response, VectorResponse):
        return Reply(embedding=response.numbers or (0.0,) * model.embedding_length)
    if isinstance(response, ErrorResponse):
        return Reply([response.failure])
    if isinstance(response, MessageResponse):
        return _message_reply(prompt, response)
    try:
        return recorded(response.path).reply
    except ConfigError as error:
        return Reply([Failure(str(error))])


def _message_reply(prompt: Prompt, message: MessageResponse) -> Reply:
    if message.kind in ("lorem", "demo"):
        reply = default_reply(prompt) if message.kind == "lorem" else demo_reply(prompt)
        return replace(reply, finish=message.finish, usage=message.usage)
    content: Content | None = message.content
    if message.kind == "task":
        content = ui_task_reply(prompt)
    elif message.kind == "mirror":
        content = prompt.request.decode(errors="replace")
    elif message.kind == "echo":
        content = prompt.user_text
    if content is None:
        return default_reply(prompt)
    reasoning = message.reasoning
    if message.think_tags and reasoning:
        content, reasoning = f"<think>{joined(reasoning)}</think>\n\n{joined(content)}", ""
    calls, finish, usage = message.tool_calls, message.finish, message.usage
    return Reply.of(content, reasoning=reasoning, tool_calls=calls, finish=finish, usage=usage)


def with_settings(reply: Reply, settings: ReplySettings, model: Model, prompt: Prompt) -> Reply:
    """Return the reply with all stream settings applied: chunk size, speed, pause, premature end and error."""
    if settings == _NO_SETTINGS:
        return reply
    reply = replace(with_pace(reply, settings, model, prompt), frames=None)
    if settings.pause:
        reply = _insert(reply, settings.pause[0], Pause(settings.pause[1]))
    if settings.cut_after is not None:
        reply = _insert(reply, settings.cut_after, Cut())
    return _insert(reply, *settings.fail) if settings.fail else reply


def with_pace(reply: Reply, settings: ReplySettings, model: Model, prompt: Prompt) -> Reply:
    """Return the reply with the chunk size, speed, jitter and delay of the settings."""
    if not any((settings.profile, settings.tokens_per_second, settings.jitter, settings.delay)):
        return reply
    size, seed = CHUNK_SIZES[settings.profile or "words"], stable_hash(prompt.user_text)
    pace = Pace(size, jitter=settings.jitter or 0.0, seed=seed, delay=settings.delay or 0.0)
    rate = settings.tokens_per_second
    return replace(reply, pace=replace(pace, characters_per_second=rate * model.chars_per_token) if rate else pace)


def _insert(reply: Reply, count: int, inserted: Part) -> Reply:
    """Insert a part after the first `count` chunks of the reply, or at its end if it has fewer chunks."""
    parts: list[Part] = []
    for index, part in enumerate(reply.parts):
        if not isinstance(part, (Reasoning, Text)):
            parts.append(part)
            continue
        chunks = chunked(part.content, reply.pace)
        if len(chunks) >= count:
            before, after = (replace(part, content=content) for content in (chunks[:count], chunks[count:]))
            return replace(reply, parts=[*parts, before, inserted, after, *reply.parts[index + 1 :]])
        count -= len(chunks)
        parts.append(replace(part, content=chunks))
    return replace(reply, parts=[*parts, inserted])
