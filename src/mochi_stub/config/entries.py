"""Entries of a configuration as Pydantic models: the responses of triggers, and the properties of a model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo

from mochi_stub.models import Model, TemplateStyle
from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.recording import recorded
from mochi_stub.recording.translation import api_of
from mochi_stub.replies.built_in import default_reply, demo_reply, ui_task_reply
from mochi_stub.reply import Content, Failure, Finish, Part, Reasoning, Reply, Text, Usage, joined
from mochi_stub.yaml_file import ConfigError, Entry, Headers, found, plain, wrong_key

MAX_SECONDS = 24 * 3600
SERVER_HEADERS = ("connection", "content-length", "content-type", "transfer-encoding")
Match: TypeAlias = Literal["exact", "substring", "regex"]
Capability: TypeAlias = Literal["completion", "tools", "thinking", "vision", "insert", "embedding", "audio", "image"]
Seconds: TypeAlias = Annotated[float, Field(ge=0, le=MAX_SECONDS)]
Count: TypeAlias = Annotated[int, Field(ge=0)]
Texts: TypeAlias = Annotated["str | tuple[str, ...]", Field(union_mode="left_to_right")]
_INTEGERS = ("num_ctx", "num_predict", "seed", "top_k")


def _without_server_headers(headers: dict[str, str]) -> dict[str, str]:
    for name in headers:
        if name in SERVER_HEADERS:
            raise wrong_key(name, f"a header other than {', '.join(SERVER_HEADERS)}")
    return headers


def _checked_parameters(parameters: dict[str, Any]) -> dict[str, Any]:
    for name, value in parameters.items():
        values = value if name == "stop" and isinstance(value, list) else [value]
        kinds = (str,) if name == "stop" else (int,) if name in _INTEGERS else (str, int, float)
        if not all(isinstance(item, kinds) for item in values) or (name in _INTEGERS and isinstance(value, bool)):
            expected = {"stop": "a text or a list of texts"}.get(name, "a number, a text, true or false")
            expected = "a whole number" if name in _INTEGERS else expected
            raise ValueError(f"{expected} as {name}, found {found(value)}")
    return parameters


def _recorded_path(text: Any, info: ValidationInfo) -> Path:
    if not isinstance(text, str):
        raise ValueError("a path to a recorded file")
    path = Path(info.context or "", text)
    if not path.exists():
        raise ValueError(f"a recorded file, found none at {path}")
    recording = recorded(path)
    if recording.status < 400 and not api_of(recording.path):
        raise ValueError(f"a recorded reply of a model, found a response from {recording.url}")
    return path


def _vector(value: Any) -> Any:
    if value == []:
        raise ValueError("zero or a list of numbers, found an empty list")
    return None if value == "zero" else value


Json: TypeAlias = Annotated["dict[str, Any]", BeforeValidator(plain)]


class PauseEntry(Entry):
    """Pause after the first `after` chunks."""

    after: Count = 0
    seconds: Seconds


class FailureEntry(Entry):
    """Error of a reply."""

    status: Annotated[int, Field(ge=400, le=599)] = 500
    message: str | None = None
    headers: Annotated[Headers, AfterValidator(_without_server_headers)] = Field(default_factory=dict)

    @cached_property
    def failure(self) -> Failure:
        message = f"error {self.status}" if self.message is None else self.message
        return Failure(message, self.status, tuple(self.headers.items()))


class MidwayFailureEntry(FailureEntry):
    """Error after the first `after` chunks."""

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

    def merged_over(self, other: ReplySettings) -> ReplySettings:
        """Return these settings. Values that are not set (None) are taken from `other`."""
        own = {name: value for name in STREAM if (value := getattr(self, name)) is not None}
        return other.model_copy(update=own) if own else other


STREAM = tuple(ReplySettings.model_fields)
NO_SETTINGS = ReplySettings()


class ModelEntry(ReplySettings):
    """Entry `_model`: the properties of a model, and the stream settings of its replies."""

    capabilities: tuple[Capability, ...] | None = None
    context_length: Annotated[int, Field(ge=4)] | None = None
    embedding_length: Annotated[int, Field(ge=256, le=65536)] | None = None
    chars_per_token: Annotated[float, Field(gt=0, le=1000)] | None = None
    template_style: TemplateStyle | None = Field(None, validation_alias="habit")
    family: str | None = None
    parameter_size: Annotated[str, Field(pattern=r"^\d+(\.\d*)?[KMB]?$")] | None = None
    quantization: str | None = None
    size: Count | None = None
    modified_at: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")] | None = None
    parameters: Annotated[Json, AfterValidator(_checked_parameters)] | None = None
    system: str | None = None
    template: str | None = None
    license: str | None = None
    load_time: Annotated[float, Field(ge=0, le=3600)] | None = None
    out_of_memory_above: Annotated[int, Field(ge=1)] | None = None

    model_config = ConfigDict(populate_by_name=True)

    @property
    def properties(self) -> dict[str, Any]:
        """Fields that the configuration sets."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class ToolCallEntry(Entry):
    """Tool call of a reply."""

    name: str
    arguments: Json = Field(default_factory=dict)
    id: str | None = None


class UsageEntry(Entry):
    """Token counts of a reply."""

    input: Count | None = None
    output: Count | None = None
    reasoning: Count | None = None
    cache_read: Count | None = None
    cache_creation: Count | None = None


class Response(Entry):
    """A configured response. `match` is how the text of its trigger is compared with a message."""

    type: str
    match: Match = "exact"

    @property
    def settings(self) -> ReplySettings:
        return NO_SETTINGS

    def applies_to(self, trigger: str, message: str) -> bool:
        """Return whether a message matches the trigger of this response."""
        if self.match == "regex":
            return re.search(trigger, message) is not None
        return trigger in message if self.match == "substring" else trigger == message

    def reply(self, prompt: Prompt, model: Model) -> Reply:
        """Return the reply to a prompt."""
        raise NotImplementedError


class EmbeddingResponse(Response):
    """Vector of an embedding request. None stands for a vector of zeros."""

    vector: Annotated[tuple[float, ...] | None, BeforeValidator(_vector)] = None

    def reply(self, _prompt: Prompt, model: Model) -> Reply:
        return Reply(embedding=self.vector or (0.0,) * model.embedding_length)


class ErrorResponse(Response, FailureEntry):
    """Error instead of a reply."""

    def reply(self, _prompt: Prompt, _model: Model) -> Reply:
        return Reply([self.failure])


class StreamedResponse(Response, ReplySettings):
    """Response with stream settings."""

    @property
    def settings(self) -> ReplySettings:
        return self


class FileResponse(StreamedResponse):
    """Recorded reply."""

    path: Annotated[Path, BeforeValidator(_recorded_path)]

    def reply(self, _prompt: Prompt, _model: Model) -> Reply:
        try:
            return recorded(self.path).reply
        except ConfigError as error:
            return Reply([Failure(str(error))])


class GeneratedResponse(StreamedResponse):
    """Response of a type that generates its text."""

    reasoning: Texts = ""
    tool_calls: tuple[ToolCallEntry, ...] = ()
    usage: UsageEntry = Field(default_factory=UsageEntry)
    finish: Finish = "stop"
    think_tags: bool = False

    def reply(self, prompt: Prompt, _model: Model) -> Reply:
        reply = self._content(prompt)
        calls = [ToolCall(call.name, call.arguments, call.id) for call in self.tool_calls]
        parts: list[Part] = [*reply.parts, *Reply.of(tool_calls=calls).parts]
        if self.reasoning and self.think_tags:
            tagged = Text(f"<think>{joined(self.reasoning)}</think>\n\n{reply.text}")
            parts = [tagged, *(part for part in parts if not isinstance(part, (Reasoning, Text)))]
        elif self.reasoning:
            parts = [Reasoning(self.reasoning), *(part for part in parts if not isinstance(part, Reasoning))]
        return Reply(parts, self.finish, Usage(**vars(self.usage)))

    def _content(self, prompt: Prompt) -> Reply:
        content: Content | None = None
        if self.type == "demo":
            return demo_reply(prompt)
        if self.type == "task":
            content = ui_task_reply(prompt)
        elif self.type == "mirror":
            content = prompt.request.decode(errors="replace")
        elif self.type == "echo":
            content = prompt.user_text
        return default_reply(prompt) if content is None else Reply.of(content)


class MessageResponse(GeneratedResponse):
    """Response with a fixed content."""

    content: Texts = ""

    def _content(self, _prompt: Prompt) -> Reply:
        return Reply.of(self.content)


RESPONSES: Mapping[str, type[Response]] = {
    "message": MessageResponse,
    **dict.fromkeys(("echo", "mirror", "lorem", "task", "demo"), GeneratedResponse),
    "embedding": EmbeddingResponse,
    "error": ErrorResponse,
    "file": FileResponse,
}
