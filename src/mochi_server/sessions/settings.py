"""Validation of metadata fields that clients and programs set.

In a session file, an invalid value becomes the default. A value that is set must be valid.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

# pydantic needs it before Python 3.12
from typing_extensions import NotRequired, TypedDict

from mochi_server.constants import RELOADING_OPTIONS
from mochi_server.sessions.serialization import sanitize
from mochi_server.sessions.types import (
    APPROVED,
    OPTION_PROPERTIES,
    AgentSettings,
    Format,
    KeepAlive,
    Message,
    ModelName,
    Role,
    StoredOptions,
    Tags,
    Think,
    Title,
    ToolSettings,
    window_config,
)
from mochi_server.util.text import nearest
from mochi_server.util.validation import MAX_REPORTED, describe, to_entries

_MAX_NAME_CHARS = 100
_TIME: TypeAdapter[AwareDatetime] = TypeAdapter(AwareDatetime)
_YEAR = re.compile("[0-9]{4}-")
_NOT_A_TIME = "must be a time with a time zone, such as 2030-01-31T12:00:00Z"
NO_HINTS: Mapping[str, str] = {}


def reject_unknown(
    names: Iterable[str], known: Collection[str], *, kind: str, hints: Mapping[str, str] = NO_HINTS
) -> None:
    """Raise a `ValidationError` for unknown fields or options.

    It names the first ones, each with its hint in ``hints`` or the nearest known one.
    """
    unknown = [name for name in names if name not in known]
    if unknown:
        problems = [_problem(name, known, kind, hints) for name in unknown[:MAX_REPORTED]]
        raise ValidationError.from_exception_data(kind, problems)


def _problem(
    name: str, known: Collection[str], kind: str, hints: Mapping[str, str]
) -> InitErrorDetails:
    # Lone surrogates are escaped.
    name = name[:_MAX_NAME_CHARS].encode(errors="backslashreplace").decode()
    similar = nearest(name, known)
    if name in hints:
        hint = hints[name]
    elif "options" in known and name in OPTION_PROPERTIES:
        hint = f'Send it in `options`: `{{"options": {{"{name}": ...}}}}`.'
    elif similar:
        hint = f"Did you mean `{similar}`?"
    else:
        hint = f"Known {kind}s: {', '.join(sorted(known)) or 'none'}."
    error = PydanticCustomError(
        "extra_forbidden", "unknown {kind}. {hint}", {"kind": kind, "hint": hint}
    )
    return InitErrorDetails(type=error, loc=(name,), input=None)


def _checked_options(options: dict[str, Any]) -> dict[str, Any]:
    forbidden = sorted(RELOADING_OPTIONS & options.keys())
    if forbidden:
        raise ValueError(
            f"{', '.join(forbidden)} would make Ollama reload the model. The server sets the "
            "context window. To change it, PATCH the session's `context_window`."
        )
    reject_unknown(options, OPTION_PROPERTIES, kind="option")
    return options


Options = Annotated[
    StoredOptions,
    AfterValidator(_checked_options),
    Field(json_schema_extra={"additionalProperties": False}),
]


def moment_of(text: str) -> datetime:
    """Return the moment of a time with a time zone. Raises ValueError."""
    try:
        moment = _TIME.validate_python(text)
    except ValidationError as error:
        raise ValueError(_NOT_A_TIME) from error
    if not _YEAR.match(text):  # pydantic accepts Unix seconds as text
        raise ValueError(_NOT_A_TIME)
    return moment


def _with_zone(text: str) -> str:
    moment_of(text)
    return text


def _readable_window(config: dict[str, Any]) -> dict[str, Any]:
    """Return a window configuration. Raises ValueError if the reader of files would change it."""
    kept = window_config(config)
    wrong = [name for name, value in config.items() if kept[name] != value]
    if wrong:
        raise ValueError(f"invalid value of {', '.join(wrong)}")
    return config


def _only(*names: str) -> BeforeValidator:
    """Return a validator that rejects unknown keys. Session files may contain such keys."""

    def check(value: object) -> object:
        if isinstance(value, dict):
            reject_unknown(value, names, kind="field")
        return value

    return BeforeValidator(check)


class SettableFields(TypedDict, total=False):
    """Metadata fields that can be set. None resets a field to its default."""

    __pydantic_config__ = ConfigDict(strict=True)  # type: ignore[misc]

    model: ModelName
    tool_settings: (
        Annotated[ToolSettings, Strict(False), _only(*ToolSettings.model_fields, APPROVED)] | None
    )
    agent_settings: (
        Annotated[AgentSettings, Strict(False), _only(*AgentSettings.model_fields)] | None
    )
    context_window_config: Annotated[dict[str, Any], AfterValidator(_readable_window)] | None
    title: Title | None
    options: Options | None
    keep_alive: KeepAlive
    think: Think
    format: Format | None
    tags: Tags | None
    pinned: bool | None
    archived: bool | None
    temporary: bool | None
    expires_at: Annotated[str, AfterValidator(_with_zone)] | None
    summary: dict[str, Any] | None
    summary_model: ModelName | None
    ollama_host: str | None
    summarized_by: str | None
    summarized_revision: str | None
    compaction: dict[str, Any] | None
    notices: list[dict[str, Any]] | None


_FIELDS = TypeAdapter(SettableFields)


def checked_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata fields as they are stored. Lone surrogates in texts become U+FFFD.

    Raises ValueError for an unknown or read-only field, or an invalid value.
    """
    unknown = values.keys() - SettableFields.__annotations__.keys()
    if unknown:
        raise ValueError(f"unknown or read-only metadata fields: {', '.join(sorted(unknown))}")
    checked: dict[str, Any] = _checked(_FIELDS, sanitize(dict(values)))
    return checked


class _MessageFields(TypedDict):
    role: Role
    content: NotRequired[str | None]


_MESSAGES = TypeAdapter(list[_MessageFields])


def check_messages(messages: Sequence[Message]) -> None:
    """Raise ValueError if the role or the text of a message is invalid.

    The store completes a missing text, and replaces lone surrogates.
    """
    _checked(_MESSAGES, sanitize(messages))


def _checked(adapter: TypeAdapter[Any], value: Any) -> Any:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise ValueError(describe(to_entries(error, value))) from error
