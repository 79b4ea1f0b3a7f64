"""Keys of a configuration as Pydantic models, and what each key changes in a reply."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo

from mochi_stub.models import Model, TemplateStyle
from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.recording import path_ending, recorded
from mochi_stub.replies import stable_hash
from mochi_stub.replies.built_in import BUILT_IN
from mochi_stub.replies.chunks import chunked
from mochi_stub.reply import (
    Cut,
    Durations,
    Failure,
    Finish,
    Pace,
    Part,
    Pause,
    Reasoning,
    Reply,
    Text,
    ToolCalls,
    Usage,
    joined,
)
from mochi_stub.yaml_file import ConfigError, Entry, Headers, plain, wrong_key

MAX_SECONDS = 24 * 3600
CHUNK_SIZES: dict[str, int | None] = {"words": None, "token": 4, "chunky": 40}
SERVER_HEADERS = ("connection", "content-length", "content-type", "transfer-encoding")
Match: TypeAlias = Literal["exact", "substring", "regex"]
Capability: TypeAlias = Literal[
    "completion", "tools", "thinking", "vision", "insert", "embedding", "audio", "image"
]
Seconds: TypeAlias = Annotated[float, Field(ge=0, le=MAX_SECONDS)]
Count: TypeAlias = Annotated[int, Field(ge=0)]
Texts: TypeAlias = Annotated["str | tuple[str, ...]", Field(union_mode="left_to_right")]
Json: TypeAlias = Annotated["dict[str, Any]", BeforeValidator(plain)]


def _without_server_headers(headers: dict[str, str]) -> dict[str, str]:
    for name in headers.keys() & SERVER_HEADERS:
        excluded = ", ".join(SERVER_HEADERS)
        raise wrong_key(name, f"a header other than {excluded}")
    return headers


def _recorded_path(text: Any, info: ValidationInfo) -> Path:
    folder = info.context or ""
    path = Path(folder, str(text))
    recording = recorded(path)
    is_error = recording.response.status >= 400
    if not is_error and not path_ending(recording.path):
        raise ValueError(
            f"a recorded reply of a model, found a response from {recording.request.url}"
        )
    return path


class PauseEntry(Entry):
    after: Count = 0
    seconds: Seconds


class FailureEntry(Entry):
    status: Annotated[int, Field(ge=400, le=599)] = 500
    message: str | None = None
    headers: Annotated[Headers, AfterValidator(_without_server_headers)] = Field(
        default_factory=dict
    )

    @cached_property
    def failure(self) -> Failure:
        message = self.message
        if message is None:
            message = f"error {self.status}"
        headers = tuple(self.headers.items())
        return Failure(message, self.status, headers)


class MidwayFailureEntry(FailureEntry):
    after: Count = 0


class ReplySettings(Entry):
    """Stream settings of a reply. A field is None if the configuration does not set it."""

    profile: Literal["words", "token", "chunky"] | None = None
    tokens_per_second: Annotated[float, Field(gt=0)] | None = None
    jitter: Annotated[float, Field(ge=0, le=1)] | None = None
    delay: Seconds | None = None
    pause: PauseEntry | None = None
    fail: MidwayFailureEntry | None = None
    cut_after: Count | None = None

    def applied_to(self, reply: Reply, model: Model, prompt: Prompt) -> Reply:
        """Return the reply with all settings applied: chunk size, speed, pause, and premature end
        or error.

        The end or error with the lower count ends the reply. With the same count, this is the
        premature end, and a pause comes before it.

        A changed reply loses its recorded frames. Embeddings have no text, so their replies stay
        unchanged.
        """
        if not self._own() or prompt.operation == "embed":
            return reply
        paced = self._paced(reply, model, prompt)
        reply = replace(paced, frames=None)
        cut_after = self.cut_after
        if self.fail and (cut_after is None or self.fail.after < cut_after):
            reply = _insert(reply, self.fail.after, self.fail.failure)
        elif cut_after is not None:
            reply = _insert(reply, cut_after, Cut())
        if self.pause:
            pause = Pause(self.pause.seconds)
            reply = _insert(reply, self.pause.after, pause)
        return reply

    def _paced(self, reply: Reply, model: Model, prompt: Prompt) -> Reply:
        """Return the reply with the pace of these settings: chunk size, speed, jitter and delay.

        If they set none of these, it keeps its own pace. A jitter or delay of 0 counts as not set.
        """
        if not any((self.profile, self.tokens_per_second, self.jitter, self.delay)):
            return reply
        profile = self.profile or "words"
        pace = Pace(
            CHUNK_SIZES[profile],
            jitter=self.jitter or 0.0,
            seed=stable_hash(prompt.user_text),
            delay=self.delay or 0.0,
        )
        if self.tokens_per_second:
            speed = self.tokens_per_second * model.chars_per_token
            pace = replace(pace, characters_per_second=speed)
        return replace(reply, pace=pace)

    def merged_over(self, other: ReplySettings) -> ReplySettings:
        """Return the settings of `other`, replaced by those that are set here."""
        return other.model_copy(update=self._own())

    def _own(self) -> dict[str, Any]:
        """Return the stream settings that are set here."""
        own = {}
        for name in STREAM:
            value = getattr(self, name)
            if value is not None:
                own[name] = value
        return own


STREAM = tuple(ReplySettings.model_fields)


def _insert(reply: Reply, count: int, inserted: Part) -> Reply:
    """Return the reply with a part after `count` chunks of reasoning and text, or at its end if it
    has fewer. There, a pause comes before a failure or a cut.
    """
    parts: list[Part] = []
    for index, part in enumerate(reply.parts):
        if not isinstance(part, (Reasoning, Text)):
            parts.append(part)
            continue
        chunks = chunked(part.content, reply.pace)
        if len(chunks) >= count:
            before = replace(part, content=chunks[:count])
            after = replace(part, content=chunks[count:])
            others = reply.parts[index + 1 :]
            parts += [before, inserted, after, *others]
            return replace(reply, parts=parts)
        count -= len(chunks)
        divided = replace(part, content=chunks)
        parts.append(divided)
    end = len(parts)
    if isinstance(inserted, Pause):
        while end and isinstance(parts[end - 1], (Cut, Failure)):
            end -= 1
    parts.insert(end, inserted)
    return replace(reply, parts=parts)


class ModelEntry(ReplySettings):
    """Entry `_model`: the properties of a model, and the stream settings of its replies."""

    capabilities: tuple[Capability, ...] | None = None
    context_length: Annotated[int, Field(ge=4)] | None = None
    embedding_length: Annotated[int, Field(ge=1, le=65536)] | None = None
    chars_per_token: Annotated[float, Field(gt=0, le=1000)] | None = None
    template_style: TemplateStyle | None = Field(None, validation_alias="habit")
    family: str | None = None
    parameter_size: Annotated[str, Field(pattern=r"^\d+(\.\d*)?[KMB]?$")] | None = None
    quantization: str | None = None
    size: Count | None = None
    modified_at: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")] | None = None
    parameters: Json | None = None
    system: str | None = None
    template: str | None = None
    license: str | None = None
    load_time: Annotated[float, Field(ge=0, le=3600)] | None = None
    out_of_memory_above: Annotated[int, Field(ge=1)] | None = None

    model_config = ConfigDict(populate_by_name=True)


class ToolCallEntry(Entry):
    name: str
    arguments: Json = Field(default_factory=dict)
    id: str | None = None


class Response(Entry):
    """A configured response. `match` is how the text of its trigger is compared with a message."""

    type: str
    match: Match = "exact"

    def applies_to(self, trigger: str, message: str) -> bool:
        if self.match == "regex":
            return re.search(trigger, message) is not None
        if self.match == "substring":
            return trigger in message
        return trigger == message

    def reply(self, prompt: Prompt, model: Model) -> Reply:
        """Return the reply, without the stream settings of the model and the response."""
        raise NotImplementedError


def _zero_as_empty(vector: Any) -> Any:
    return [] if vector == "zero" else vector


class EmbeddingResponse(Response):
    vector: Annotated[tuple[float, ...], BeforeValidator(_zero_as_empty)] = ()

    def reply(self, _prompt: Prompt, model: Model) -> Reply:
        zeros = (0.0,) * model.embedding_length
        return Reply(embedding=self.vector or zeros)


class ErrorResponse(Response, FailureEntry):
    def reply(self, _prompt: Prompt, _model: Model) -> Reply:
        return Reply([self.failure])


class FileResponse(Response, ReplySettings):
    path: Annotated[Path, BeforeValidator(_recorded_path)]

    def reply(self, _prompt: Prompt, _model: Model) -> Reply:
        try:
            return recorded(self.path).reply
        except ConfigError as error:
            return Reply([Failure(str(error))])


class GeneratedResponse(Response, ReplySettings):
    reasoning: Texts = ""
    tool_calls: tuple[ToolCallEntry, ...] = ()
    usage: dict[
        Literal["input", "output", "reasoning", "cache_read", "cache_creation"], Count | None
    ] = Field(default_factory=dict)
    durations: dict[Literal["total", "load", "prompt_eval", "eval"], Seconds] = Field(
        default_factory=dict
    )
    finish: Finish = "stop"
    think_tags: bool = False

    def reply(self, prompt: Prompt, _model: Model) -> Reply:
        generated = self._content(prompt)
        parts = list(generated.parts)
        if self.tool_calls:
            parts.append(self._calls())
        if self.reasoning and self.think_tags:
            parts = [part for part in parts if not isinstance(part, (Reasoning, Text))]
            tagged_text = f"<think>{joined(self.reasoning)}</think>\n\n{generated.text}"
            parts.insert(0, Text(tagged_text))
        elif self.reasoning:
            parts = [part for part in parts if not isinstance(part, Reasoning)]
            parts.insert(0, Reasoning(self.reasoning))
        usage = Usage(**self.usage)
        return Reply(parts, self.finish, usage)

    def _calls(self) -> ToolCalls:
        calls = []
        for entry in self.tool_calls:
            call = ToolCall(entry.name, entry.arguments, entry.id)
            calls.append(call)
        return ToolCalls(calls)

    def timed(self, reply: Reply) -> Reply:
        """Return a reply that reports the durations, and whose time is that of `load`,
        `prompt_eval` and `eval`.

        The first two are a pause. `eval` is the time of the texts, so it has no effect without a
        text. `total` is only reported.

        The texts and the chunk size of the reply must be final.
        """
        if not self.durations:
            return reply
        before_text = self.durations.get("load", 0) + self.durations.get("prompt_eval", 0)
        pause = Pause(before_text)
        length = len(reply.text) + len(reply.reasoning)
        seconds = self.durations.get("eval")
        pace = reply.pace
        if length and seconds:
            speed = length / seconds
            pace = replace(pace or Pace(), characters_per_second=speed)
        nanoseconds = {}
        for name, duration in self.durations.items():
            nanoseconds[name] = round(duration * 1e9)
        return replace(
            reply,
            parts=[pause, *reply.parts],
            durations=Durations(**nanoseconds),
            pace=pace,
        )

    def _content(self, prompt: Prompt) -> Reply:
        return BUILT_IN[self.type](prompt)


class MessageResponse(GeneratedResponse):
    content: Texts = ""

    def _content(self, _prompt: Prompt) -> Reply:
        return Reply.of(self.content)


RESPONSES: Mapping[str, type[Response]] = {
    "message": MessageResponse,
    **dict.fromkeys(BUILT_IN, GeneratedResponse),
    "embedding": EmbeddingResponse,
    "error": ErrorResponse,
    "file": FileResponse,
}


class ConfigFile(Entry):
    models: dict[str, Any] = Field(default_factory=dict)
    include: Literal["default"] | None = None


class TurnEntry(Entry):
    """Turn of a recorded conversation.

    The replies follow each other when the client sends results of tool calls.
    """

    user: str
    replies: tuple[Any, ...]
