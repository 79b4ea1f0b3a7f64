"""Response types of a configuration, and their conversion to replies."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from mochi_stub.config.yaml_source import ConfigError
from mochi_stub.models.catalogue import Model
from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.recording.files import recorded
from mochi_stub.replies.chunks import chunked
from mochi_stub.replies.default_reply import default_reply, ui_task_reply
from mochi_stub.replies.demo_reply import demo_reply
from mochi_stub.replies.lorem import stable_hash
from mochi_stub.reply import Content, Cut, Failure, Finish, Pace, Part, Pause, Reasoning, Reply, Text, Usage, joined

Match = Literal["exact", "substring", "regex"]
Profile = Literal["words", "token", "chunky"]
CHUNK_SIZES: dict[Profile, int | None] = {"words": None, "token": 4, "chunky": 40}


@dataclass(frozen=True)
class ReplySettings:
    """Stream settings of a reply. A field is None if the configuration does not set it.

    `pause` has a number of chunks and the seconds of the pause after them. `fail` has a number of chunks and the error
    after them. `cut_after` is a number of chunks. `jitter` and `delay` are those of `Pace`.
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


@dataclass(frozen=True)
class Response:
    """A configured response. `kind` is its type in the configuration, which determines the fields that are used.

    `match` is how the text of its trigger is compared with a message.
    `vector` is None for a vector of zeros. `path` is the path of a recorded file.
    """

    kind: str = "message"
    settings: ReplySettings = _NO_SETTINGS
    match: Match = "exact"
    content: Content = ""
    reasoning: Content = ""
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    finish: Finish = "stop"
    think_tags: bool = False
    vector: tuple[float, ...] | None = None
    failure: Failure | None = None
    path: Path | None = None

    def applies_to(self, trigger: str, message: str) -> bool:
        """Return whether a message matches the trigger of this response."""
        if self.match == "regex":
            return re.search(trigger, message) is not None
        return trigger in message if self.match == "substring" else trigger == message

    def reply(self, prompt: Prompt, model: Model) -> Reply:
        """Return the reply to a prompt. An invalid recorded file gives an error reply."""
        if self.kind == "embedding":
            return Reply(embedding=self.vector or (0.0,) * model.embedding_length)
        if self.failure is not None:
            return Reply([self.failure])
        if self.path is not None:
            try:
                return recorded(self.path).reply
            except ConfigError as error:
                return Reply([Failure(str(error))])
        reply = self._content(prompt)
        parts: list[Part] = [*reply.parts, *Reply.of(tool_calls=self.tool_calls).parts]
        if self.reasoning and self.think_tags:
            tagged = Text(f"<think>{joined(self.reasoning)}</think>\n\n{reply.text}")
            parts = [tagged, *(part for part in parts if not isinstance(part, (Reasoning, Text)))]
        elif self.reasoning:
            parts = [Reasoning(self.reasoning), *(part for part in parts if not isinstance(part, Reasoning))]
        return Reply(parts, self.finish, self.usage)

    def _content(self, prompt: Prompt) -> Reply:
        if self.kind == "demo":
            return demo_reply(prompt)
        content: Content | None = self.content
        if self.kind == "task":
            content = ui_task_reply(prompt)
        elif self.kind == "mirror":
            content = prompt.request.decode(errors="replace")
        elif self.kind == "echo":
            content = prompt.user_text
        return default_reply(prompt) if content is None or self.kind == "lorem" else Reply.of(content)


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
