"""Types of the data that is stored with a session: generation options, settings, messages, images
and attached files.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from hashlib import sha256
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic_core import InitErrorDetails, PydanticCustomError

# pydantic needs these before Python 3.12
from typing_extensions import NotRequired, Required, TypedDict, is_typeddict

from mochi_server.constants import MAX_TAG_CHARS, MAX_TAGS, MAX_TITLE_CHARS
from mochi_server.util.clock import as_utc, timestamp

_NUMBERS = (
    "num_keep",
    "seed",
    "num_predict",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "repeat_last_n",
    "temperature",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
)
"""Ollama's options with a number or null as value. The only other supported option is `stop`."""
OPTION_PROPERTIES: JsonDict = {
    **{name: {"type": ["number", "null"]} for name in _NUMBERS},
    "stop": {"type": ["array", "null"], "items": {"type": "string"}},
}
"""JSON schemas of Ollama's options, by name."""

_DURATION = r"[-+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+|[-+]?0"


def _checked_values(options: dict[str, Any]) -> dict[str, Any]:
    for name in _NUMBERS:
        if isinstance(options.get(name), str | bool | list | dict):
            raise _invalid_option(name, "must be a number")
    stop = options.get("stop")
    if stop is not None and not (
        isinstance(stop, list) and all(isinstance(text, str) for text in stop)
    ):
        raise _invalid_option("stop", "must be a list of strings")
    return _finite(options)


def _invalid_option(name: str, problem: str) -> ValidationError:
    error = PydanticCustomError("value_error", "{problem}", {"problem": problem})
    details = InitErrorDetails(type=error, loc=(name,), input=None)
    return ValidationError.from_exception_data("options", [details])


def _finite(value: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(value, allow_nan=False)
    except ValueError as error:
        raise ValueError("contains a number that is not finite") from error
    return value


def _duration(value: str | float) -> str | float:
    if isinstance(value, str) and not re.fullmatch(_DURATION, value):
        raise ValueError('must be seconds, or a duration such as "5m" or "1h30m"')
    return value


StoredOptions = Annotated[
    dict[str, Any],
    AfterValidator(_checked_values),
    Field(json_schema_extra={"properties": OPTION_PROPERTIES}),
]
"""Ollama's options, and any other keys. The known options have values of the right types."""
_Duration = Annotated[
    Annotated[str, Field(json_schema_extra={"pattern": f"^({_DURATION})$"})]
    | Annotated[float, Field(allow_inf_nan=False)],
    AfterValidator(_duration),
]
KeepAlive = Annotated[
    _Duration | None,
    Field(
        description="How long Ollama keeps the model loaded: seconds, or a duration such as `5m`."
    ),
]
ThinkLevel = bool | Literal["low", "medium", "high", "max"]
Think = Annotated[
    ThinkLevel | None, Field(description="Reasoning of models that can think: on, off or a level.")
]
FiniteObject = Annotated[dict[str, Any], AfterValidator(_finite)]
"""Object without NaN and infinity, which JSON does not have."""
Format = Literal["json"] | FiniteObject


class ToolExecutionPolicy(str, Enum):
    """Policy that determines which tool calls need approval."""

    ALWAYS_CONFIRM = "always_confirm"
    NEVER_CONFIRM = "never_confirm"
    CONFIRM_DESTRUCTIVE = "confirm_destructive"


APPROVED = "approved_tools"
"""Key of the approved tools in the tool settings of a session."""

Names = Annotated[list[str], Field(max_length=1000, fail_fast=True)]
"""List of names. Validation stops at the first invalid item, to limit the size of the error."""


_CONTROL = r"\x00-\x1f\x7f-\x9f"
_LINE = rf"[^{_CONTROL}]*[^\s{_CONTROL}][^{_CONTROL}]*"


def _line(text: str) -> str:
    if not re.fullmatch(_LINE, text):
        raise ValueError("must be one line that is not blank and has no control characters")
    return text.strip()


ModelName = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=500),
    # Unlike Python, pydantic does not strip the separators from U+001C to U+001F.
    Field(json_schema_extra={"pattern": r"[^\s\x85]|[\x1c-\x1f]"}),
]
Title = Annotated[
    str,
    StringConstraints(max_length=MAX_TITLE_CHARS),
    AfterValidator(_line),
    Field(json_schema_extra={"pattern": f"^{_LINE}$"}),
]
Tag = Annotated[
    str,
    StringConstraints(max_length=MAX_TAG_CHARS),
    AfterValidator(_line),
    Field(json_schema_extra={"pattern": f"^{_LINE}$"}),
]
Tags = Annotated[list[Tag], Field(max_length=MAX_TAGS, fail_fast=True)]


class ToolSettings(BaseModel):
    """Tools that a session may use: the union of ``tools`` and the tools of ``tool_group``.

    ``tool_group`` is a group of ``GET /tools``: a group of the tools directory, or else the tools
    of an MCP server.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    tools: Names = Field(default_factory=list)
    tool_group: str | None = None
    execution_policy: ToolExecutionPolicy = ToolExecutionPolicy.ALWAYS_CONFIRM

    @property
    def approved(self) -> list[str]:
        return (self.model_extra or {}).get(APPROVED) or []

    @model_validator(mode="after")
    def _validate_approved(self) -> "ToolSettings":
        if not isinstance(self.approved, list) or not all(
            isinstance(name, str) for name in self.approved
        ):
            raise ValueError(f"{APPROVED} must be a list of names")
        return self


class AgentSettings(BaseModel):
    """Agents that a session may call."""

    model_config = ConfigDict(extra="allow", frozen=True)

    enabled_agents: Names = Field(default_factory=list)
    selection_metadata: dict[str, Any] | None = None


Role = Literal["system", "user", "assistant", "tool"]


class ToolCallFunction(TypedDict):
    """Function of a tool call.

    ``index`` is the position of the call among the tool calls of the message.
    """

    index: NotRequired[int]
    name: str
    arguments: dict[str, Any]
    raw_arguments: NotRequired[str]
    """Arguments as the model has written them, if they are not an object."""
    defect: NotRequired[str]
    """Error message for the model, if it has written arguments with which no tool can run."""


class ToolCall(TypedDict):
    """A tool call in Ollama's format."""

    id: str
    function: ToolCallFunction


class ImageReference(TypedDict):
    """An image of a message.

    ``sha256`` is the hash of its bytes, in hex. Its bytes are at ``blobs/{sha256}``.
    """

    sha256: str
    media_type: str
    unreadable: NotRequired[bool]
    """Whether a model could not decode the image. Prompts have a note in its place."""


class AttachmentReference(TypedDict):
    """A file of a message, with the number of ``characters`` that the model reads.

    ``sha256`` is the hash of its bytes and ``text_sha256`` that of its text, in hex. A text file in
    UTF-8 is its own text. Its bytes are at ``files/{sha256}``.
    """

    name: str
    media_type: str
    size: int
    sha256: str
    text_sha256: str
    characters: int


class _MessageFields(TypedDict):
    """Fields that the messages of all roles have."""

    content: str
    message_id: str
    timestamp: str


_Images = Annotated[
    list[ImageReference], Field(description="user and tool: images of the message.")
]
_Interrupted = Annotated[
    bool, Field(description="assistant and tool: `true` if it was interrupted.")
]
_KeyDigest = str
"""Hash of the session id and the idempotency key of the client's request, in hex."""


class SystemMessage(_MessageFields, total=False):
    """Instructions for the model."""

    role: Required[Literal["system"]]
    source_file: Annotated[str | None, Field(description="system: prompt file of the message.")]


class UserMessage(_MessageFields, total=False):
    """Message of the user."""

    role: Required[Literal["user"]]
    images: _Images
    attachments: Annotated[
        list[AttachmentReference], Field(description="user: files of the message.")
    ]
    key_digest: _KeyDigest


class AssistantMessage(_MessageFields, total=False):
    """Answer of a model. Only imported answers have images."""

    role: Required[Literal["assistant"]]
    model: Annotated[str, Field(description="assistant: model that answered.")]
    thinking: Annotated[str, Field(description="assistant: reasoning of the model.")]
    raw: Annotated[
        str, Field(description="assistant: text of the model, if the server has repaired it.")
    ]
    tool_calls: Annotated[list[ToolCall], Field(description="assistant: tool calls of the model.")]
    client_tool_calls: Annotated[
        list[str], Field(description="assistant: IDs of the tool calls that the client runs.")
    ]
    eval_count: Annotated[int, Field(description="assistant: number of tokens of the answer.")]
    prompt_eval_count: Annotated[
        int, Field(description="assistant: number of tokens of the prompt.")
    ]
    prompt_eval_cached_count: Annotated[
        int, Field(description="assistant: prompt tokens that were in the cache.")
    ]
    total_duration: Annotated[
        int, Field(description="assistant: time of the whole request, in nanoseconds.")
    ]
    load_duration: Annotated[
        int, Field(description="assistant: time to load the model, in nanoseconds.")
    ]
    prompt_eval_duration: Annotated[
        int, Field(description="assistant: time to read the prompt, in nanoseconds.")
    ]
    eval_duration: Annotated[
        int, Field(description="assistant: time to generate the answer, in nanoseconds.")
    ]
    done_reason: Annotated[
        str, Field(description="assistant: reason of the end, such as `stop` or `length`.")
    ]
    interrupted: _Interrupted
    images: _Images


class ToolMessage(_MessageFields, total=False):
    """Result of a tool call that the server or its client has run."""

    role: Required[Literal["tool"]]
    tool_name: Annotated[str, Field(description="tool: name of the tool.")]
    tool_call_id: Annotated[str, Field(description="tool: ID of the tool call.")]
    agent_name: Annotated[str, Field(description="tool: name of the agent that the call has run.")]
    agent_session_id: Annotated[
        str, Field(description="tool: ID of the session of the agent that the call has run.")
    ]
    success: Annotated[bool, Field(description="tool: whether the call succeeded.")]
    error_code: Annotated[str, Field(description="tool: code of the error.")]
    decided_by: Annotated[
        Literal["policy", "user", "timeout"],
        Field(description="tool: what approved or denied the call."),
    ]
    confirmation_id: Annotated[
        str, Field(description="tool: ID of the latest request for the approval of the call.")
    ]
    arguments: Annotated[
        dict[str, Any],
        Field(
            description="tool: arguments of the call if the approval replaced those of the model."
        ),
    ]
    result: Annotated[
        str,
        Field(description="tool: result of the tool if `content` also has notes of the approval."),
    ]
    execution_time: Annotated[
        float, Field(description="tool: seconds that the tool or agent ran, if it has run.")
    ]
    images: _Images
    key_digest: _KeyDigest
    interrupted: _Interrupted


class UnfinishedCalls(ToolMessage):
    """Placeholder for the results of open calls: the result of the first one.

    ``tool_calls`` are the other open calls.
    """

    tool_calls: NotRequired[list[ToolCall]]


Message = SystemMessage | UserMessage | AssistantMessage | ToolMessage
"""A stored message. Its ``role`` determines its type.

Messages are dictionaries, so that unknown keys of session files are preserved.
"""
PartialMessage = AssistantMessage | UnfinishedCalls
"""Partial answer of a turn, or a placeholder of results, from which crash recovery makes
messages.
"""


def default_window_config() -> dict[str, Any]:
    return {
        "dynamic_enabled": True,
        "current_window": None,
        "last_adjustment": None,
        "adjustment_history": [],
        "manual_override": False,
    }


_WINDOW_TYPES = {
    "dynamic_enabled": bool,
    "last_adjustment": str,
    "adjustment_history": list,
    "manual_override": bool,
}


def window_config(stored: object) -> dict[str, Any]:
    """Return a stored context window configuration. Missing and invalid values become defaults."""
    defaults = default_window_config()
    config = defaults | (stored if isinstance(stored, dict) else {})
    wrong = [name for name, kind in _WINDOW_TYPES.items() if not isinstance(config[name], kind)]
    window = config["current_window"]
    if type(window) is not int or window < 1:  # a bool is an int, too
        wrong.append("current_window")
    return config | {name: defaults[name] for name in wrong}


def _reader(kind: type[BaseModel]) -> Callable[[object], BaseModel]:
    """Return a function that converts stored settings to ``kind``.

    Nulls become defaults. If a value is invalid, all values become defaults.
    """

    def read(stored: object) -> BaseModel:
        fields = stored.items() if isinstance(stored, Mapping) else ()
        given = {k: v for k, v in fields if v is not None or k not in kind.model_fields}
        try:
            return kind.model_validate(given)
        except ValidationError:
            return kind()

    return read


def optional(kind: Any, *, always_written: bool = False) -> dict[str, Any]:
    """Return dataclass field metadata for an optional setting of this type.

    Stored values of other types become None. If ``always_written`` is false, files contain the
    setting only if it is set.
    """
    config = None if is_typeddict(kind) else ConfigDict(strict=True)
    adapter: TypeAdapter[Any] = TypeAdapter(kind, config=config)

    def read(stored: object) -> object:
        if stored is None:  # as most settings are; a validation would take longer
            return None
        try:
            adapter.validate_python(stored)
        except ValidationError:
            return None
        return stored

    return {"read": read, "only_if_set": not always_written}


def _flag(stored: object) -> bool:
    return stored is True


def _tags(stored: object) -> list[str]:
    """Return stored tags without duplicates, and without values that are no strings."""
    tags = stored if isinstance(stored, list) else []
    texts = [tag for tag in tags if isinstance(tag, str)]
    return list(dict.fromkeys(texts))


def _time(stored: object) -> str | None:
    """Return a stored time in UTC, or None for another value."""
    if not isinstance(stored, str) or not timestamp(stored):
        return None
    return as_utc(stored)


_FLAG: dict[str, Any] = {"read": _flag, "only_if_set": True}


@dataclass(kw_only=True)
class SessionSettings:
    """Settings of a session that clients choose. ``schemas/sessions.py`` has their schemas."""

    tool_settings: ToolSettings = field(
        default_factory=ToolSettings, metadata={"read": _reader(ToolSettings)}
    )
    agent_settings: AgentSettings = field(
        default_factory=AgentSettings, metadata={"read": _reader(AgentSettings)}
    )
    context_window_config: dict[str, Any] = field(
        default_factory=default_window_config, metadata={"read": window_config}
    )
    title: str | None = field(default=None, metadata=optional(str))
    options: dict[str, Any] | None = field(default=None, metadata=optional(StoredOptions))
    keep_alive: str | float | None = field(default=None, metadata=optional(KeepAlive))
    think: bool | str | None = field(default=None, metadata=optional(Think))
    format: str | dict[str, Any] | None = field(default=None, metadata=optional(Format))
    tags: list[str] = field(default_factory=list, metadata={"read": _tags, "only_if_set": True})
    pinned: bool = field(default=False, metadata=_FLAG)
    archived: bool = field(default=False, metadata=_FLAG)
    temporary: bool = field(default=False, metadata=_FLAG)
    """Whether the server deletes the session when no turn has run for some hours."""
    expires_at: str | None = field(default=None, metadata={"read": _time, "only_if_set": True})
    """Time from which the server deletes the session."""


@dataclass
class SessionCreationOptions(SessionSettings):
    """Model, system prompt and settings of a new session."""

    model: str
    system_prompt: str | None = None
    system_prompt_source_file: str | None = None


@dataclass(frozen=True)
class SessionQuery:
    """Query for one page of the sessions that match all filters.

    A page has ``limit`` sessions after the first ``offset``. Sessions match if they contain every
    word of ``text`` and have all ``tags``. Filters that are None match all sessions.
    """

    limit: int | None = None
    offset: int = 0
    text: str | None = None
    owner: str | None = None
    tags: tuple[str, ...] = ()
    archived: bool | None = None
    temporary: bool | None = None
    pinned_first: bool = False


_SHA256 = re.compile(r"[0-9a-f]{64}")
_SIGNATURES = {
    "image/png": rb"\x89PNG\r\n\x1a\n",
    "image/jpeg": rb"\xff\xd8\xff",
    "image/webp": rb"(?s)RIFF.{4}WEBP",
    "image/gif": rb"GIF8[79]a",
    # Texts can also start with BM.
    "image/bmp": rb"(?s)BM.{12}[\x0c\x10\x28\x34\x38\x40\x6c\x7c]\0{3}",
}
MEDIA_TYPES = tuple(_SIGNATURES)
_AnyBlob = TypeVar("_AnyBlob", bound="Blob")


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes that messages reference by their SHA-256 in hex."""

    sha256: str
    media_type: str
    data: bytes = field(default=b"", compare=False, repr=False)

    @classmethod
    def hashed(cls, data: bytes, media_type: str) -> "Blob":
        return cls(sha256(data).hexdigest(), media_type, data)

    def without_data(self: _AnyBlob) -> _AnyBlob:
        return replace(self, data=b"")


@dataclass(frozen=True, slots=True)
class Image(Blob):
    """An image."""

    @classmethod
    def of(cls, data: bytes) -> "Image":
        """Create an image from PNG, JPEG, WebP, GIF or BMP data.

        Raises ValueError for other data.
        """
        media_type = media_type_of(data)
        if media_type is None:
            raise ValueError("not an image in a supported format: use PNG, JPEG, WebP, GIF or BMP")
        return cls(sha256(data).hexdigest(), media_type, data)

    @property
    def reference(self) -> ImageReference:
        """Value by which a message references this image."""
        return {"sha256": self.sha256, "media_type": self.media_type}


def media_type_of(data: bytes) -> str | None:
    """Detect the media type of ``data`` from its first bytes.

    Return None if it is not one of ``MEDIA_TYPES``.
    """
    return next(
        (kind for kind, signature in _SIGNATURES.items() if re.match(signature, data)), None
    )


def is_sha256(value: object) -> bool:
    """Return whether a value is a SHA-256 in hex. Other values must not be used as file names."""
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


def tool_calls_of(message: Message) -> Sequence[ToolCall]:
    """Return the tool calls of an answer. Messages of other roles have none."""
    if message["role"] != "assistant":
        return ()
    return message.get("tool_calls") or ()


def images_of(message: Message) -> list[str]:
    """Return the hashes of a message's images in order, ignoring invalid references."""
    return [image["sha256"] for image in image_references_of(message)]


def readable_images_of(message: Message) -> list[str]:
    """Return the hashes of the images that prompts contain: all that the model can decode."""
    references = image_references_of(message)
    unreadable = {image["sha256"] for image in references if image.get("unreadable")}
    return [image["sha256"] for image in references if image["sha256"] not in unreadable]


def image_references_of(message: Message) -> list[ImageReference]:
    """Return the images of a message in order, ignoring invalid references."""
    if message["role"] == "system":
        return []
    references: list[ImageReference] = []
    for image in message.get("images") or ():
        if _is_image(image):
            references.append(image)
    return references


def with_unreadable_images(message: Message) -> Message:
    """Return a message whose images are marked as unreadable, except for invalid references."""
    if message["role"] == "system" or not message.get("images"):
        return message
    marked = message.copy()
    marked["images"] = [
        {**image, "unreadable": True} if _is_image(image) else image for image in message["images"]
    ]
    return marked


def _is_image(value: object) -> bool:
    return isinstance(value, dict) and is_sha256(value.get("sha256"))


def attachments_of(message: Message) -> list[AttachmentReference]:
    """Return the files of a message in order, ignoring invalid references."""
    if message["role"] != "user":
        return []
    return [each for each in message.get("attachments") or () if _is_attachment(each)]


def _is_attachment(value: object) -> bool:
    match value:
        case {
            "name": str(),
            "media_type": str(),
            "size": int(),
            "characters": int(),
            "sha256": sha256,
            "text_sha256": text_sha256,
        }:
            return is_sha256(sha256) and is_sha256(text_sha256)
    return False


def blobs_of(message: Message) -> list[str]:
    """Return the hashes of a message's images, and of its files and their texts."""
    names = images_of(message)
    for attachment in attachments_of(message):
        names += blobs_of_file(attachment)
    return names


def blobs_of_file(attachment: AttachmentReference) -> tuple[str, str]:
    """Return the hashes of a file and of its text."""
    return attachment["sha256"], attachment["text_sha256"]


def blobs_in(messages: Iterable[Message]) -> set[str]:
    """Return the hashes of the images, files and texts that the messages reference."""
    names: set[str] = set()
    for message in messages:
        names.update(blobs_of(message))
    return names
