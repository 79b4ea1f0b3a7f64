"""Configuration files: their entries as Pydantic models, loading and validation."""

from __future__ import annotations

import logging
import re
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationInfo

from mochi_stub.models import MIN_CONTEXT, Model, TemplateStyle
from mochi_stub.prompt import Prompt, ToolCall
from mochi_stub.recording import path_ending, recorded, recordings_below
from mochi_stub.replies.built_in import default_reply, demo_reply, ui_task_reply
from mochi_stub.reply import Durations, Failure, Finish, Pace, Part, Pause, Reasoning, Reply, Text, Usage, joined
from mochi_stub.yaml_file import ConfigError, Document, Entry, Headers, Scalar, WatchedFile, parse, plain, wrong_key

logger = logging.getLogger("mochi_stub")

MAX_SECONDS = 24 * 3600
SERVER_HEADERS = ("connection", "content-length", "content-type", "transfer-encoding")
Match: TypeAlias = Literal["exact", "substring", "regex"]
Capability: TypeAlias = Literal["completion", "tools", "thinking", "vision", "insert", "embedding", "audio", "image"]
Seconds: TypeAlias = Annotated[float, Field(ge=0, le=MAX_SECONDS)]
Count: TypeAlias = Annotated[int, Field(ge=0)]
Texts: TypeAlias = Annotated["str | tuple[str, ...]", Field(union_mode="left_to_right")]
Json: TypeAlias = Annotated["dict[str, Any]", BeforeValidator(plain)]


def _without_server_headers(headers: dict[str, str]) -> dict[str, str]:
    for name in headers.keys() & SERVER_HEADERS:
        raise wrong_key(name, f"a header other than {', '.join(SERVER_HEADERS)}")
    return headers


def _recorded_path(text: Any, info: ValidationInfo) -> Path:
    path = Path(info.context or "", str(text))
    recording = recorded(path)
    if recording.response.status < 400 and not path_ending(recording.path):
        raise ValueError(f"a recorded reply of a model, found a response from {recording.request.url}")
    return path


def _folder(text: Any, info: ValidationInfo) -> Path:
    folder = Path(info.context or "", str(text))
    if not folder.is_dir():
        raise ValueError(f"a folder of recordings, found none at {folder}")
    return folder


class PauseEntry(Entry):
    after: Count = 0
    seconds: Seconds


class FailureEntry(Entry):
    status: Annotated[int, Field(ge=400, le=599)] = 500
    message: str | None = None
    headers: Annotated[Headers, AfterValidator(_without_server_headers)] = Field(default_factory=dict)

    @cached_property
    def failure(self) -> Failure:
        message = f"error {self.status}" if self.message is None else self.message
        return Failure(message, self.status, tuple(self.headers.items()))


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

    def merged_over(self, other: ReplySettings) -> ReplySettings:
        """Return the settings of `other`, replaced by those that are set here."""
        return other.model_copy(update={name: value for name in STREAM if (value := getattr(self, name)) is not None})


STREAM = tuple(ReplySettings.model_fields)


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
        return trigger in message if self.match == "substring" else trigger == message

    def reply(self, prompt: Prompt, model: Model) -> Reply:
        raise NotImplementedError


class EmbeddingResponse(Response):
    vector: Annotated[tuple[float, ...], BeforeValidator(lambda value: [] if value == "zero" else value)] = ()

    def reply(self, _prompt: Prompt, model: Model) -> Reply:
        return Reply(embedding=self.vector or (0.0,) * model.embedding_length)


class ErrorResponse(Response, FailureEntry):
    def reply(self, _prompt: Prompt, _model: Model) -> Reply:
        return Reply([self.failure])


class StreamedResponse(Response, ReplySettings):
    """Response with stream settings."""


class FileResponse(StreamedResponse):
    path: Annotated[Path, BeforeValidator(_recorded_path)]

    def reply(self, _prompt: Prompt, _model: Model) -> Reply:
        try:
            return recorded(self.path).reply
        except ConfigError as error:
            return Reply([Failure(str(error))])


class GeneratedResponse(StreamedResponse):
    reasoning: Texts = ""
    tool_calls: tuple[ToolCallEntry, ...] = ()
    usage: dict[Literal["input", "output", "reasoning", "cache_read", "cache_creation"], Count | None] = Field(
        default_factory=dict
    )
    durations: dict[Literal["total", "load", "prompt_eval", "eval"], Seconds] = Field(default_factory=dict)
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
        reply = Reply(parts, self.finish, Usage(**self.usage))
        return self._timed(reply) if self.durations else reply

    def _timed(self, reply: Reply) -> Reply:
        """Return a reply that reports the durations and takes as long: first a pause, then the time of its texts."""
        seconds, length = self.durations, len(reply.text) + len(reply.reasoning)
        pause = Pause(seconds.get("load", 0) + seconds.get("prompt_eval", 0))
        pace = Pace(characters_per_second=length / seconds["eval"]) if length and seconds.get("eval") else None
        durations = Durations(**{name: round(value * 1e9) for name, value in seconds.items()})
        return replace(reply, parts=[pause, *reply.parts], durations=durations, pace=pace)

    def _content(self, prompt: Prompt) -> Reply:
        if self.type == "demo":
            return demo_reply(prompt)
        if self.type == "mirror":
            return Reply.of(prompt.request.decode(errors="replace"))
        if self.type == "echo":
            return Reply.of(prompt.user_text)
        text = ui_task_reply(prompt) if self.type == "task" else None
        return default_reply(prompt) if text is None else Reply.of(text)


class MessageResponse(GeneratedResponse):
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


PACKAGED = Path(__file__).parent / "default.yaml"
FAULT_MODELS = (
    *("paused-stream", "cut-stream", "rate-limited", "rate-limited-midway", "failing", "finish-length"),
    *("finish-content-filter", "weirdo", "embed-zero"),
)
LATEST_CHANGE = datetime(2026, 1, 15, tzinfo=timezone.utc)
_UNDECLARED = Model("", get_args(Capability)[:6], context_length=131072, embedding_length=768)


class ConfigFile(Entry):
    models: dict[str, Any] = Field(default_factory=dict)
    include: Literal["default"] | None = None
    recordings: Annotated[Path, BeforeValidator(_folder)] | None = None


class TurnEntry(Entry):
    """Turn of a recorded conversation. The replies follow each other when the client sends results of tool calls."""

    user: str
    replies: tuple[Any, ...]


@dataclass
class Script:
    """Configuration entries of one model: responses by trigger, a default response, and the fields of `_model`."""

    name: str
    document: Document
    triggers: dict[str, Response] = field(default_factory=dict)
    default: Response | None = None
    turns: list[tuple[str, list[Response]]] = field(default_factory=list)
    parent: str = ""
    parent_path: tuple[str | int, ...] = ()
    properties: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ConfiguredModel:
    """Model with its default stream settings. `scripts` has the model's own script first, then those of its parents."""

    model: Model
    settings: ReplySettings
    scripts: tuple[Script, ...]


@dataclass(frozen=True)
class Config:
    """Loaded configuration. `by_name` maps normalised names to models. `recordings` is a folder of recorded replies."""

    path: Path
    by_name: Mapping[str, ConfiguredModel]
    recordings: Path | None = None

    @cached_property
    def models(self) -> tuple[Model, ...]:
        return tuple(configured.model for configured in self.by_name.values())

    def find(self, model: str) -> ConfiguredModel | None:
        return self.by_name.get(normalized_name(model))


def load(path: Path) -> Config:
    """Load a configuration. Raises ConfigError for the first invalid entry or recorded file."""
    return _watched(path).current()


def reloading_config(path: Path) -> Callable[[], Config]:
    """Return a function that reloads a changed file and returns the last valid configuration.

    Raises ConfigError if the configuration is invalid now. The returned function logs errors instead.
    """
    watched = _watched(path)
    config, problem = watched.current(), ""

    def current() -> Config:
        nonlocal config, problem
        try:
            config, problem = watched.current(), ""
        except ConfigError as error:
            if str(error) != problem:
                logger.error("configuration not reloaded, the last valid configuration remains in use: error=%s", error)
            problem = str(error)
        return config

    return current


def validate_config(path: Path) -> list[str]:
    """Return the error messages for a configuration and its recorded files. Each message is one line."""
    try:
        config, problems = WatchedFile(path, partial(_read, path)).current()
    except ConfigError as error:
        return [str(error)]
    recordings = recordings_below(config.recordings, config.path)[1] if config.recordings else []
    return list(dict.fromkeys([*map(str, problems), *recordings]))


@lru_cache(maxsize=1)
def packaged_config() -> Config:
    return load(PACKAGED)


def test_mode_config(*, all_models: bool) -> Config:
    """Return the packaged models with four characters per token, without `FAULT_MODELS` unless `all_models` is true."""
    by_name = {
        name: replace(entry, model=replace(entry.model, chars_per_token=4))
        for name, entry in packaged_config().by_name.items()
        if all_models or name not in FAULT_MODELS
    }
    return replace(packaged_config(), by_name=by_name)


def normalized_name(model: str) -> str:
    """Return a model name in lower case, without the default registry, namespace and tag."""
    return model.lower().removeprefix("registry.ollama.ai/").removeprefix("library/").removesuffix(":latest")


def _watched(path: Path) -> WatchedFile[Config]:
    def read(data: bytes) -> Config:
        config, problems = _read(path, data)
        if problems:
            raise problems[0]
        return config

    return WatchedFile(path, read)


def _read(path: Path, data: bytes) -> tuple[Config, list[ConfigError]]:
    problems: list[ConfigError] = []
    document = parse(data, str(path))
    top: dict[str, Any] = {}
    keys = document.validate(dict[str, Any], document.data)
    for key, value in keys.items():
        with _collected(problems):
            top[key] = getattr(document.validate(ConfigFile, {key: value}), key)
    own = {name: _script(name, value, document, problems) for name, value in top.get("models", {}).items()}
    packaged = packaged_config().by_name if "include" in keys else {}
    names = set(map(normalized_name, own))
    included = [entry.scripts[0] for name, entry in packaged.items() if name not in names]
    scripts = {**{script.name: script for script in included}, **own}
    by_name: dict[str, ConfiguredModel] = {}
    for position, (name, script) in enumerate(scripts.items()):
        with _collected(problems):
            chain = _with_parents(script, scripts)
            properties = dict(ChainMap(*(ancestor.properties for ancestor in chain)))
            settings = ReplySettings(**{key: properties.pop(key) for key in STREAM if key in properties})
            model = model_from_properties(name, properties, position)
            by_name[normalized_name(name)] = ConfiguredModel(model, settings, chain)
    return Config(path, by_name, top.get("recordings")), problems


def model_from_properties(name: str, properties: Mapping[str, Any], position: int) -> Model:
    """Return a model. The first model of the file (`position` 0) has the latest default modification time."""
    modified_at = (LATEST_CHANGE - timedelta(minutes=position)).strftime("%Y-%m-%dT%H:%M:%SZ")
    least_context = None if "capabilities" in properties else MIN_CONTEXT  # default vision does not raise the minimum
    return replace(
        _UNDECLARED, **{"name": name, "modified_at": modified_at, "least_context": least_context, **properties}
    )


def _with_parents(script: Script, scripts: Mapping[str, Script]) -> tuple[Script, ...]:
    chain = [script]
    while parent := chain[-1].parent:
        if parent not in scripts or scripts[parent] in chain:
            expected = f"another model of this file, without a cycle, in _inherit, found {parent!r}"
            raise chain[-1].document.error(expected, *chain[-1].parent_path)
        chain.append(scripts[parent])
    return tuple(chain)


def _script(name: str, value: Any, document: Document, problems: list[ConfigError]) -> Script:
    script, path = Script(name, document), ("models", name)
    with _collected(problems):
        for index, entry in enumerate(document.validate(list[Any], value or [], *path)):
            with _collected(problems):
                for trigger, reply in document.validate(dict[str, Any], entry, *path, index).items():
                    _add_entry(script, trigger, reply, (*path, index, trigger))
    return script


def _add_entry(script: Script, trigger: str, value: Any, path: tuple[str | int, ...]) -> None:
    document = script.document
    if trigger == "_inherit":
        script.parent, script.parent_path = document.validate(str, value, *path), path
    elif trigger == "_model":
        entry = document.validate(ModelEntry, value, *path)
        script.properties = {name: given for name, given in entry if given is not None}
    elif trigger == "_turns":
        for index, turn in enumerate(document.validate(list[TurnEntry], value, *path)):
            place = (*path, index, "replies")
            replies = [_response(reply, document, (*place, number)) for number, reply in enumerate(turn.replies)]
            script.turns.append((turn.user, replies))
    elif trigger == "_default":
        script.default = _response(value, document, path)
    else:
        script.triggers[trigger] = response = _response(value, document, path)
        if response.match == "regex":
            try:
                re.compile(trigger)
            except (re.error, OverflowError) as error:
                raise document.key_error(f"a regular expression, found {trigger!r} ({error})", *path) from None


def _response(value: Any, document: Document, path: tuple[str | int, ...]) -> Response:
    if isinstance(value, str) and not (isinstance(value, Scalar) and value.value is None):
        return MessageResponse(type="message", content=str(value))
    schema = RESPONSES.get(str(document.validate(dict[str, Any], value, *path).get("type")))
    if schema is None:
        raise document.error(f"a type: {', '.join(RESPONSES)}", *path, "type")
    return document.validate(schema, value, *path)


@contextmanager
def _collected(problems: list[ConfigError]) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        problems.append(error)
